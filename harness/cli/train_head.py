"""`specbench train-head`: an EAGLE-3 head for a target, trained on the target's responses."""

from __future__ import annotations

import shlex

import typer

from specbench.harness.training.config import TrainHeadOptions

from .derived import takes_options, typed_command


@takes_options
def train_head(options: TrainHeadOptions) -> None:
    """Train an EAGLE-3 draft head on the target's responses to prompts.

    Stages: prompts (without ShareGPT's held-out conversations and the texts of --exclude), responses through the
    engine, training (fused features of three layers, unrolled on the head's outputs, soft targets), export in the
    format that vLLM and SGLang read, and a model card. Every stage can be interrupted and resumed.

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
