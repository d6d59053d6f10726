"""`specbench check-head`: does this folder hold a usable EAGLE head for this target?"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specbench.harness.exit_codes import ExitCode
from specbench.harness.spec.commands import CheckHeadOptions

from .derived import takes_options
from .output import end

if TYPE_CHECKING:
    from specbench.harness.training.check import HeadReport
    from specbench.harness.training.evaluate import HeadEvaluation


@takes_options
def check_head(
    head: Annotated[
        Path, typer.Argument(help="Folder with config.json and weights, hub name, or shipped:NAME.", metavar="DIR")
    ],
    options: CheckHeadOptions,
) -> None:
    """Check the tensors, shapes, vocabulary maps and layer convention of an EAGLE head, and try it on a few prompts.

    Exit code: 0 no problems, 1 problems (they are listed), 2 the head cannot be loaded.

    Examples:

      specbench check-head heads/smollm2 --target smollm2-135m-instruct

      specbench check-head heads/smollm2 --evaluate 200 --temperature 0 --temperature 0.7 --write

      specbench check-head heads/smollm2 --evaluate 80 --dataset-name humaneval,mt-bench,gsm8k
    """
    from specbench.harness.experiments.check_head import store_evaluations, try_head

    from .progress import RunProgress

    with RunProgress(quiet=options.format == "json") as progress:
        folder, report, evaluations = try_head(head, options, progress)
    if options.format == "json":
        record = {**dataclasses.asdict(report), "evaluations": [dataclasses.asdict(e) for e in evaluations]}
        typer.echo(json.dumps({"ok": report.ok, **record}, indent=2))
    else:
        _print(report, evaluations)
    if options.write:
        store_evaluations(folder, evaluations)
    end(ExitCode.PASSED if report.ok else ExitCode.FAILED)


def _print(report: HeadReport, evaluations: list[HeadEvaluation]) -> None:
    typer.echo(f"head: {report.head}, {len(report.tensors)} tensors, {report.num_bytes / 1e6:.1f} MB in all")
    for name, what in report.tensors.items():
        typer.echo(f"  {name}: {what}")
    typer.echo(f"draft vocabulary: {report.draft_vocab_size:,} tokens")
    layers = ", ".join(map(str, report.aux_layers))
    typer.echo(f"features: states entering layers {layers}" if layers else "features: the target's last state, normed")
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
