"""`specbench train-head`: an EAGLE-3 head for a target, from its own responses."""

from __future__ import annotations

import shlex

import typer

from specbench.harness.training.config import TrainHeadOptions

from .derived import takes_options, typed_command


@takes_options
def train_head(options: TrainHeadOptions) -> None:
    """Train an EAGLE-3 draft head: the target answers the prompts itself, the head learns to run ahead of it.

    Stages: prompts (ShareGPT's held-out conversations and the texts of --exclude left out), responses through the
    engine, training (fused features of three layers, unrolled on its own outputs, soft targets), export in the format
    that vLLM and SGLang read, and a model card. Every stage can be interrupted and resumed.

    Examples:

      specbench train-head --target smollm2-135m-instruct --data sharegpt --data 'gsm8k-train*4' --out heads/smollm2

      specbench train-head --target smollm2-135m-instruct --data sharegpt --out heads/smollm2 --budget-s 3600

      specbench train-head --target ./my-model --data prompts.jsonl --out heads/mine --resume
    """
    from specbench.harness.training import pipeline
    from specbench.harness.training.load import load_for_training

    from .train_progress import TrainProgress

    with TrainProgress(options.quiet) as progress:
        progress.say(f"loading {options.target}")
        target = load_for_training(options.target, options.device, options.dtype, progress.asset)
        folder = pipeline.train_head(options, shlex.join(typed_command()), target, progress)
    typer.echo(str(folder))
