"""`specbench ab`: is B faster than A, by how much, and how sure is that?"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .run import typed_command
from .run_plan import is_typed

if TYPE_CHECKING:
    from specbench.harness.ab.plan import AbPlan

_WITH_RESUME = ("resume", "as_json", "quiet", "strict")
PASS_THROUGH = {"allow_extra_args": True, "ignore_unknown_options": True}


def ab(
    ctx: typer.Context,
    a: Annotated[
        str,
        typer.Option(
            "--a", "-A", help="An arm, options of `specbench run`, or both; ref:REVISION in front runs that revision."
        ),
    ] = "",
    b: Annotated[str, typer.Option("--b", "-B", help="The other side, as A.")] = "",
    ref_a: Annotated[str | None, typer.Option(help="Run A from this git revision of the checkout.")] = None,
    ref_b: Annotated[str | None, typer.Option(help="Run B from this git revision.")] = None,
    checkout: Annotated[
        str | None, typer.Option(help="Where revisions are looked up; default: the checkout this command runs from.")
    ] = None,
    blocks: Annotated[int, typer.Option(help="Pairs of runs, one of each side; below 6 there is no verdict.")] = 10,
    min_effect: Annotated[str, typer.Option(help="The smallest change that matters.")] = "1%",
    in_process: Annotated[
        bool,
        typer.Option(
            "--in-process", help="Alternate in one process where start-up is dear, instead of a process a block."
        ),
    ] = False,
    order_seed: Annotated[int, typer.Option(help="Draws which side goes first in each block.")] = 42,
    min_same_output: Annotated[
        str, typer.Option(help="Share of answers that must be identical on both sides, else exit code 6.")
    ] = "0%",
    allow_mismatch: Annotated[
        bool, typer.Option("--allow-mismatch", help="Compare sides that differ in prompts, sampling or load.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit code 3 where the verdict is inconclusive.")] = False,
    output_dir: Annotated[Path, typer.Option(help="Where run directories go.")] = Path("runs"),
    label: Annotated[str, typer.Option(help="Word in the run directory's name.")] = "ab",
    resume: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Go on with an interrupted experiment, or judge it again.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print ab.json on stdout instead of the table.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")] = False,
) -> None:
    """Measure two sides in interleaved blocks, on the same prompts, and say whether B differs from A.

    All further options are those of `specbench run` and hold for both sides; -A and -B add to them. A block is a run of
    each side back to back, which goes first is drawn; each is a process of its own unless --in-process. Step time,
    tokens per step and TPOT get a verdict (improved, regressed, equivalent, or inconclusive and how many more blocks it
    takes), with a 95% interval and the smallest effect that the experiment could have found. Where they go both ways,
    as with more drafts a step, the whole is mixed and TPOT decides. The number of blocks is fixed beforehand: looking
    until something is significant finds things that are not there.

    Exit code: 0 improved or equivalent (also inconclusive, unless --strict), 1 regressed (mixed: by TPOT alone), 2 bad
    input, 3 inconclusive with --strict, 4 no valid verdict (fewer than 6 blocks, more than 20% rejected, a change
    between equal sides, mixed without a TPOT), 5 the sides are not comparable, 6 outputs differ too often
    (--min-same-output), 130 interrupted.

    Examples:

      specbench ab -A eagle:k=2 -B eagle:k=4 --dataset-name sharegpt-held-out --num-prompts 20

      specbench ab -A "--state-update torch" -B "--state-update fused" -s eagle:k=4 --in-process --blocks 20

      specbench ab -A ref:main -B ref:my-branch -s eagle:k=4 --blocks 10 --strict
    """
    from specbench.harness.experiments.ab import new_experiment, resume_experiment
    from specbench.harness.experiments.session import Output

    from .ab_output import print_verdict
    from .ab_sides import configs_of
    from .ending import end
    from .progress import RunProgress

    if resume is not None:
        check_only_resumed(ctx, _WITH_RESUME)
        with RunProgress(quiet) as progress:
            directory = resume_experiment(resume, typed_command(), progress)
        end(print_verdict(directory, as_json=as_json, strict=strict))
        return
    if not any((a, b, ref_a, ref_b)):
        raise ValueError("a: name the sides with -A and -B, as -A eagle:k=2 -B eagle:k=4; for A/A use specbench power")
    plan = make_plan(
        ctx.args,
        (a, b),
        (ref_a, ref_b),
        num_blocks=blocks,
        min_effect=min_effect,
        min_same_output=min_same_output,
        order_seed=order_seed,
        in_process=in_process,
        allow_mismatch=allow_mismatch,
        checkout=checkout,
    )
    output = Output(output_dir, label, tuple(typed_command()))
    with RunProgress(quiet) as progress:
        directory = new_experiment(plan, configs_of(plan), output, progress)
    end(print_verdict(directory, as_json=as_json, strict=strict))


def check_only_resumed(ctx: typer.Context, kept: Sequence[str]) -> None:
    """An experiment has its own options: any other beside --resume would be ignored, so it is refused."""
    given = ["--" + n.replace("_", "-") for n in ctx.params if n not in kept and is_typed(ctx, n)]
    if given or ctx.args:
        raise ValueError(f"resume: an experiment goes on with its own options; drop {' '.join([*given, *ctx.args])}")


def make_plan(
    common: list[str],
    texts: tuple[str, str],
    refs: tuple[str | None, str | None],
    *,
    min_effect: str,
    min_same_output: str,
    checkout: str | None,
    in_process: bool,
    **rest: Any,
) -> AbPlan:
    """The plan that the words say, refs resolved to commits. Raises ValueError for words that cannot be one."""
    from specbench.harness.ab.code import find_checkout, resolve_ref
    from specbench.harness.ab.plan import LABELS, AbPlan

    from .ab_sides import parse_side
    from .percent import parse_percent

    sides = [parse_side(label, text, ref, common) for label, text, ref in zip(LABELS, texts, refs, strict=True)]
    has_refs = any(side.ref is not None for side in sides)
    if has_refs and in_process:
        raise ValueError("in_process: two revisions cannot live in one process; leave --in-process out")
    root = find_checkout(checkout) if has_refs or checkout else None
    sides = [
        dataclasses.replace(side, sha=resolve_ref(root, side.ref)) if root is not None and side.ref else side
        for side in sides
    ]
    return AbPlan(
        sides=(sides[0], sides[1]),
        min_effect=parse_percent("min_effect", min_effect),
        min_same_output=parse_percent("min_same_output", min_same_output),
        in_process=in_process,
        checkout=str(root) if root is not None else None,
        **rest,
    )
