"""`specbench check-head`: does this folder hold a usable EAGLE-3 head for this target?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specbench.harness.exit_codes import ExitCode
from specbench.harness.spec.commands import CheckHeadOptions

from .derived import takes_options

if TYPE_CHECKING:
    from specbench.harness.training.check import HeadReport
    from specbench.harness.training.evaluate import HeadEvaluation
    from specbench.harness.training.pipeline import LoadedTarget

    from .progress import RunProgress

_PROMPTS = (
    "What is the capital of France, and what is it known for?",
    "Write a short story about a lighthouse keeper who finds a letter.",
    "A shop sells pens at 3 dollars each. Anna buys 4 pens and pays with a 20 dollar bill. How much does she get back?",
    "Explain how a bicycle stays upright.",
)


@takes_options
def check_head(
    head: Annotated[
        Path, typer.Argument(help="Folder with config.json and model.safetensors, or shipped:NAME.", metavar="DIR")
    ],
    options: CheckHeadOptions,
) -> None:
    """Check tensors, shapes, vocabulary maps and layer convention of an EAGLE-3 head, and try it on a few prompts.

    Exit code: 0 all well, 1 problems found (they are listed), 2 no engine could load it.

    Examples:

      specbench check-head heads/smollm2 --target smollm2-135m-instruct

      specbench check-head heads/smollm2 --evaluate 200 --temperature 0 --temperature 0.7 --write
    """
    from specbench.harness.models.shipped_heads import PREFIX, shipped_folder
    from specbench.harness.training.check import check_files
    from specbench.harness.training.check import check_head as run_check
    from specbench.harness.training.load import load_for_training

    from .progress import RunProgress

    if options.write and not options.evaluate:
        raise ValueError("write: there is nothing to store without --evaluate N")
    if str(head).startswith(PREFIX):
        head = shipped_folder(str(head))
    if not head.is_dir():  # said before the target takes its time
        raise ValueError(f"head: {head} is not a directory; give the folder of an EAGLE-3 checkpoint")
    with RunProgress(quiet=options.format == "json") as progress:
        loaded = load_for_training(options.target, options.device, options.dtype, progress.asset)
        check_files(head, loaded.model)  # what cannot be loaded ends here
        asked = [loaded.tokenizer.apply_chat_template([{"role": "user", "content": text}]) for text in _PROMPTS]
        report = run_check(head, loaded.model, [tuple(ids) for ids in asked], loaded.stop_token_ids, k=options.k)
        evaluations = []
        for name in options.workload if options.evaluate else ():
            _fetch(name, progress)
            for temperature in options.temperatures:
                progress.say(f"{name}: {options.evaluate} prompts at temperature {temperature}")
                evaluations.append(_evaluate(head, loaded, name, temperature, options))
    if options.write:
        from specbench.harness.training.model_card import ACCEPTANCE, write_json, write_model_card

        write_json(head / ACCEPTANCE, [e.to_dict() for e in evaluations])
        write_model_card(head)
    if options.format == "json":
        typer.echo(json.dumps({**report.to_dict(), "evaluations": [e.to_dict() for e in evaluations]}, indent=2))
    else:
        _print(report, evaluations)
    if not report.ok:
        raise typer.Exit(ExitCode.FAILED)


def _fetch(name: str, progress: RunProgress) -> None:
    """What the workload reads, while somebody watches."""
    from specbench.workloads.asset_table import asset_of_workload
    from specbench.workloads.assets import resolve

    asset = asset_of_workload(name)  # none where a path is given: NAME=PATH
    if asset is not None:
        resolve(asset.name, progress=progress.asset)


def _evaluate(
    head: Path, loaded: LoadedTarget, name: str, temperature: float, options: CheckHeadOptions
) -> HeadEvaluation:
    from specbench.harness.registry import WORKLOADS, lookup
    from specbench.harness.training.evaluate import evaluate_head
    from specbench.workloads.base import WorkloadRequest

    name, _, path = name.partition("=")
    request = WorkloadRequest(
        name=name,
        path=path or None,
        num_prompts=options.evaluate,
        seed=options.seed,
        output_len=options.output_len,
        max_model_len=2048,
    )
    return evaluate_head(
        head,
        loaded.model,
        lookup(WORKLOADS, name, "workload")(request, loaded.tokenizer),
        stop_token_ids=loaded.stop_token_ids,
        k=options.k,
        temperature=temperature,
        seed=options.seed,
    )


def _print(report: HeadReport, evaluations: list[HeadEvaluation]) -> None:
    typer.echo(f"head: {report.head}, {len(report.tensors)} tensors, {report.num_bytes / 1e6:.1f} MB in all")
    for name, what in report.tensors.items():
        typer.echo(f"  {name}: {what}")
    typer.echo(f"draft vocabulary: {report.draft_vocab_size:,} tokens")
    typer.echo(f"features: states entering layers {', '.join(map(str, report.aux_layers))}")
    for layers, share in report.agreement.items():
        typer.echo(f"  first drafts right with features entering {layers}: {share:.3f}")
    if report.acceptance:
        typer.echo(f"acceptance length over {report.acceptance.num_prompts} prompts: {report.acceptance.length:.2f}")
    for e in evaluations:
        typer.echo(_line(e))
    for problem in report.problems:
        typer.echo(f"problem: {problem}")
    typer.echo("ok" if report.ok else f"{len(report.problems)} problem(s)")


def _line(e: HeadEvaluation) -> str:
    rates = " ".join("-" if r is None else f"{r:.3f}" for r in e.all.conditional)
    interval = "" if e.all.low is None else f" ({e.all.low:.3f} to {e.all.high:.3f})"
    straight = "" if e.without_loops is None else f", {e.without_loops.length:.3f} without loops"
    return (
        f"{e.workload}, K = {e.k}, temperature {e.temperature}: acceptance length {e.all.length:.3f}{interval}; "
        f"{e.num_loops} of {e.all.num_prompts} outputs loop{straight}; conditional {rates}"
    )
