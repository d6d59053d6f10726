"""`specbench accuracy`: task accuracy of strategies on the same items, by lm-eval."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specbench.harness.accuracy.extra import require_lm_eval

from .gen_kwargs import check_gen_kwargs
from .run import typed_command
from .run_plan import check_alone


def accuracy(
    ctx: typer.Context,
    strategy: Annotated[
        list[str] | None,
        typer.Option("--strategy", "-s", help="An arm, as in `specbench run`. Repeatable. Default: no-spec and ngram."),
    ] = None,
    tasks: Annotated[
        str, typer.Option(help="lm-eval task names, separated by commas; NAME:LIMIT for a limit of its own.")
    ] = "gsm8k",
    num_fewshot: Annotated[
        int | None,
        typer.Option("--num-fewshot", "--num_fewshot", help="Examples before each question. Default: the task's."),
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Only so many first items of each task. Default: all.")] = None,
    apply_chat_template: Annotated[
        bool,
        typer.Option("--apply-chat-template", "--apply_chat_template", help="Ask through the model's chat template."),
    ] = False,
    gen_kwargs: Annotated[
        str | None,
        typer.Option("--gen-kwargs", "--gen_kwargs", help="They replace the task's own; as max_gen_toks=128."),
    ] = None,
    include_path: Annotated[
        str | None, typer.Option("--include-path", "--include_path", help="A folder of further lm-eval tasks.")
    ] = None,
    gsm8k_path: Annotated[str | None, typer.Option(help="Your file of GSM8K test rows.")] = None,
    fewshot_path: Annotated[str | None, typer.Option(help="Your file of GSM8K train rows for the examples.")] = None,
    model: Annotated[str, typer.Option(help="Asset name, hub name, Hugging Face directory or .gguf.")] = (
        "smollm2-135m-instruct"
    ),
    dtype: Annotated[str, typer.Option(help="auto, bfloat16 or float32.")] = "auto",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    max_concurrency: Annotated[
        int, typer.Option("--max-concurrency", "--batch-size", "--batch_size", help="Requests in flight at once.")
    ] = 8,
    max_model_len: Annotated[int, typer.Option(help="Most tokens of a request, prompt and output.")] = 2048,
    seed: Annotated[int, typer.Option(help="Seed of sampled decoding.")] = 42,
    warmup_max_s: Annotated[
        float, typer.Option(help="Longest warm-up of an arm before its items; it ends earlier once rounds are stable.")
    ] = 8.0,
    output_dir: Annotated[Path, typer.Option(help="Where run directories go.")] = Path("runs"),
    label: Annotated[str, typer.Option(help="Word in the run directory's name.")] = "accuracy",
    resume: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Go on with an interrupted evaluation, with its own options.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")] = False,
) -> None:
    """Score every arm on the same items with lm-eval, and compare the arms item by item.

    Outputs go to runs/<UTC>-<label>-<id>/ as they come; Ctrl-C keeps them, --resume goes on.

    Exit code: 0 all arms scored, 1 an arm failed, 2 bad input, 130 interrupted.

    Examples:

      specbench accuracy -s no-spec -s ngram:k=4 --tasks gsm8k --num_fewshot 5 --limit 500

      specbench accuracy -s no-spec -s eagle:k=4 --tasks gsm8k:200,my_task:50 --include-path my-tasks/
    """
    require_lm_eval()
    from specbench.harness.accuracy.eval_config import EvalConfig, check_real_text, parse_tasks
    from specbench.harness.experiments.accuracy import new_evaluation, resume_evaluation
    from specbench.harness.experiments.session import Output
    from specbench.harness.run_config import RunConfig, parse_arm
    from specbench.workloads.base import WorkloadRequest

    from .accuracy_output import print_evaluation
    from .ending import end
    from .progress import RunProgress

    if resume is not None:
        check_alone(ctx, ("resume", "quiet"), "an evaluation")
        with RunProgress(quiet) as progress:
            directory = resume_evaluation(resume, typed_command(), progress)
        end(print_evaluation(directory))
        return
    check_gen_kwargs(gen_kwargs)
    asked = EvalConfig(
        tasks=parse_tasks(tasks, limit),
        num_fewshot=num_fewshot,
        include_path=include_path,
        apply_chat_template=apply_chat_template,
        gen_kwargs=gen_kwargs,
    )
    config = RunConfig(
        arms=tuple(parse_arm(text, {}) for text in strategy or ["no-spec", "ngram"]),
        workload=WorkloadRequest(name="gsm8k", path=gsm8k_path, num_prompts=limit or 1319, max_model_len=max_model_len),
        model=model,
        dtype=dtype,
        device=device,
        max_concurrency=max_concurrency,
        seed=seed,
        num_repeats=1,
        warmup_max_s=warmup_max_s,
    )
    check_real_text(config.arms)
    output = Output(output_dir, label, tuple(typed_command()))
    with RunProgress(quiet) as progress:
        directory = new_evaluation(config, asked, (gsm8k_path, fewshot_path), output, progress)
    end(print_evaluation(directory))
