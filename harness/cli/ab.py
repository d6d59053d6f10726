"""`specbench ab`: is B faster than A, by how much, and how sure is that?"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from specbench.harness.spec.commands import AbOptions

from .derived import takes_options, typed_command

if TYPE_CHECKING:
    from specbench.harness.ab.plan import AbPlan


@takes_options
def ab(options: AbOptions, words: list[str]) -> None:
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
    from specbench.harness.ab.sides import configs_of
    from specbench.harness.experiments.ab import new_experiment, resume_experiment
    from specbench.harness.experiments.session import Output

    from .ab_output import print_verdict
    from .ending import end
    from .progress import RunProgress

    if options.resume is not None:
        options.check_alone("an experiment", words)
        with RunProgress(options.quiet) as progress:
            directory = resume_experiment(options.resume, typed_command(), progress)
        end(print_verdict(directory, options.format, strict=options.strict))
        return
    if not any((options.a, options.b, options.ref_a, options.ref_b)):
        raise ValueError("a: name the sides with -A and -B, as -A eagle:k=2 -B eagle:k=4; for A/A use specbench power")
    plan = make_plan(options, words, num_blocks=options.blocks)
    output = Output(options.output_dir, options.label, tuple(typed_command()))
    with RunProgress(options.quiet) as progress:
        directory = new_experiment(plan, configs_of(plan), output, progress)
    end(print_verdict(directory, options.format, strict=options.strict))


def make_plan(options: AbOptions, common: Sequence[str], num_blocks: int) -> AbPlan:
    """The plan, refs resolved to commits; `common` are options of a run for both sides.

    Raises ValueError for words that cannot be one.
    """
    from specbench.harness.ab.code import find_checkout, resolve_ref
    from specbench.harness.ab.plan import LABELS, AbPlan
    from specbench.harness.ab.sides import parse_side

    from .percent import parse_percent

    texts = ((options.a, options.ref_a), (options.b, options.ref_b))
    sides = [parse_side(label, text, ref, common) for label, (text, ref) in zip(LABELS, texts, strict=True)]
    has_refs = any(side.ref is not None for side in sides)
    if has_refs and options.in_process:
        raise ValueError("in_process: two revisions cannot live in one process; leave --in-process out")
    root = find_checkout(options.checkout) if has_refs or options.checkout else None
    sides = [
        dataclasses.replace(side, sha=resolve_ref(root, side.ref)) if root is not None and side.ref else side
        for side in sides
    ]
    return AbPlan(
        sides=(sides[0], sides[1]),
        num_blocks=num_blocks,
        min_effect=parse_percent("min_effect", options.min_effect),
        min_same_output=parse_percent("min_same_output", options.min_same_output),
        order_seed=options.order_seed,
        in_process=options.in_process,
        allow_mismatch=options.allow_mismatch,
        checkout=str(root) if root is not None else None,
    )
