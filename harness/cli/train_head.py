"""`specbench train-head`: an EAGLE-3 head for a target, from its own responses."""

from __future__ import annotations

import math
import shlex
from pathlib import Path
from typing import Annotated

import typer

from .run import typed_command


def train_head(
    target: Annotated[str, typer.Option(help="Asset name, hub name, Hugging Face directory or .gguf.")],
    data: Annotated[
        list[str],
        typer.Option(
            help="Prompts: sharegpt, gsm8k-train, or a file (.json, .jsonl, .parquet); *N: N samples of each."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder of the head; everything else goes below it.")],
    exclude: Annotated[
        list[str] | None, typer.Option(help="Evaluation data whose texts are never trained on. Default: gsm8k.")
    ] = None,
    responses: Annotated[
        Path | None, typer.Option(help="Folder of the target's responses, to share them. Default: OUT/responses.")
    ] = None,
    num_prompts: Annotated[int, typer.Option(help="Most conversations; 0: all.")] = 0,
    max_turns: Annotated[int, typer.Option(help="Human turns a conversation; the target answers each.")] = 3,
    max_prompt_tokens: Annotated[
        int, typer.Option(help="Longer ones, earlier turns included, end their conversation.")
    ] = 640,
    max_response_tokens: Annotated[int, typer.Option(help="Most tokens of a response.")] = 256,
    samples_per_prompt: Annotated[int, typer.Option(help="Times each conversation is held.")] = 2,
    greedy_share: Annotated[
        float, typer.Option(help="Greedy ones among all samples; at most one of a conversation.")
    ] = 0.5,
    temperature_low: Annotated[float, typer.Option(help="Sampled responses: from this temperature ...")] = 0.7,
    temperature_high: Annotated[float, typer.Option(help="... to this one.")] = 1.0,
    generate_batch: Annotated[
        int | None, typer.Option(help="Requests in flight while generating. Default: 512 on a GPU, 8 on a CPU.")
    ] = None,
    draft_vocab_size: Annotated[
        int, typer.Option(help="Tokens that the head can draft: the most frequent of the responses.")
    ] = 12_000,
    intermediate_size: Annotated[int, typer.Option(help="Width of the MLP in the head's layer; 0: the target's.")] = 0,
    unroll: Annotated[int, typer.Option(help="Steps on the head's own outputs while training.")] = 5,
    decay: Annotated[float, typer.Option(help="Weight of an unrolled step relative to the one before.")] = 0.9,
    lr: Annotated[float, typer.Option(help="Peak learning rate.")] = 1e-3,
    epochs: Annotated[float, typer.Option(help="Passes over the responses.")] = 8.0,
    steps: Annotated[int, typer.Option(help="Optimiser steps in place of epochs; 0: by epochs.")] = 0,
    batch_tokens: Annotated[int, typer.Option(help="Tokens of an optimiser step, padding included.")] = 32_768,
    max_sequence_tokens: Annotated[int, typer.Option(help="Longer sequences are cut.")] = 1024,
    log_every: Annotated[int, typer.Option(help="Optimiser steps from one row of training_log.csv to the next.")] = 50,
    budget_s: Annotated[float, typer.Option(help="Most seconds of the whole command.")] = math.inf,
    generate_budget_s: Annotated[
        float, typer.Option(help="Most of these seconds for responses; 0: train on those that are there.")
    ] = math.inf,
    only_responses: Annotated[
        bool, typer.Option("--only-responses", help="Stop once the responses are there.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of prompts, sampling, weights and batches.")] = 0,
    dtype: Annotated[str, typer.Option(help="auto, bfloat16 or float32.")] = "auto",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    resume: Annotated[bool, typer.Option("--resume", help="Go on in OUT with the same options.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")] = False,
) -> None:
    """Train an EAGLE-3 draft head: the target answers the prompts itself, the head learns to run ahead of it.

    Stages: prompts (ShareGPT's held-out conversations and the texts of --exclude left out), responses through the
    engine, training (fused features of three layers, unrolled on its own outputs, soft targets), export in the format
    that vLLM and SGLang read, and a model card. Every stage can be interrupted and resumed.

    Examples:

      specbench train-head --target smollm2-135m-instruct --data sharegpt --data 'gsm8k-train*4' --out heads/smollm2

      specbench train-head --target smollm2-135m-instruct --data sharegpt --out heads/smollm2 --budget-s 3600

      specbench train-head --target ./my-model --data prompts.jsonl --out heads/mine --resume
    """
    from specbench.harness.training.config import GenerateConfig, TrainConfig
    from specbench.harness.training.load import load_for_training
    from specbench.harness.training.pipeline import Job
    from specbench.harness.training.pipeline import train_head as run_job

    from .train_progress import TrainProgress

    if not budget_s > 0 or not generate_budget_s >= 0:
        raise ValueError(f"budget_s: {budget_s} / {generate_budget_s} is not allowed; must be > 0 / >= 0")
    train = TrainConfig(
        draft_vocab_size=draft_vocab_size,
        intermediate_size=intermediate_size,
        unroll=unroll,
        decay=decay,
        lr=lr,
        epochs=epochs,
        steps=steps,
        batch_tokens=batch_tokens,
        max_sequence_tokens=max_sequence_tokens,
        log_every=log_every,
        seed=seed,
    )
    with TrainProgress(quiet) as progress:
        progress.say(f"loading {target}")
        loaded = load_for_training(target, device, dtype, progress.asset)
        cuda = loaded.model.device.type == "cuda"
        job = Job(
            generate=GenerateConfig(
                target=loaded.described["name"],
                data=tuple(data),
                exclude=tuple(exclude if exclude is not None else ["gsm8k"]),
                num_prompts=num_prompts,
                max_turns=max_turns,
                max_prompt_tokens=max_prompt_tokens,
                max_response_tokens=max_response_tokens,
                samples_per_prompt=samples_per_prompt,
                greedy_share=greedy_share,
                temperature_low=temperature_low,
                temperature_high=temperature_high,
                generate_batch=generate_batch or (512 if cuda else 8),
                seed=seed,
            ),
            train=train,
            out=out,
            responses=responses or out / "responses",
            command=shlex.join(typed_command()),
            budget_s=budget_s,
            generate_budget_s=generate_budget_s,
            resume=resume,
            only_responses=only_responses,
        )
        folder = run_job(job, loaded, progress)
    typer.echo(str(folder or job.responses))
