"""Which run may be the headline of the site: one whose claim has an interval, preferably one without doubts about its
figures."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from specbench.harness.metrics.doubts import casts_doubt
from specbench.harness.metrics.figures import TPOT_MS
from specbench.harness.store.ab_judgement import Judgement
from specbench.reports.cells import is_too_wide_change
from specbench.reports.experiments.verdict_table import NO_VERDICT, tpot_of, verdict_words
from specbench.reports.run.answer import answer, fastest, ratio_text

from .runs import SiteRun


def headlines(runs: Sequence[SiteRun]) -> list[SiteRun]:
    """The runs that may be the headline, in order: those without a doubt or, if there are none, all that make a
    claim."""
    claims = [run for run in runs if not objection(run)]
    return [run for run in claims if not doubts_of(run)] or claims


def objection(run: SiteRun) -> str:
    """The first reason why the run makes no claim about speed; empty if it makes one."""
    return next(_objections(run), "")


def doubts_of(run: SiteRun) -> tuple[str, ...]:
    """Marks that make the figures doubtful, each with its arm."""
    return tuple(f"{arm.label}: {mark}" for arm in run.arms for mark in arm.marks if casts_doubt(mark))


def _objections(run: SiteRun) -> Iterator[str]:
    if run.record.status != "complete":
        yield f"not complete (status {run.record.status})"
    if run.record.profile is not None or not run.arms:
        yield "no speed was measured"
    yield from _of_experiment(run) if run.is_experiment else _of_arms(run)


def _of_experiment(run: SiteRun) -> Iterator[str]:
    if run.ab is None:
        yield f"not judged yet: specbench ab --resume {shlex.quote(str(run.path))}"
        return
    if run.ab.is_aa:
        yield "A/A: both sides are the same, so it measures noise"
    if run.ab.verdict in NO_VERDICT or not run.ab.same_output.is_enough:
        yield verdict_words(run.ab)
    if not _has_interval(run.ab):
        yield f"the change of {TPOT_MS.name} has no interval"


def _has_interval(record: Judgement) -> bool:
    """Whether TPOT has an informative interval, for which a claim has words."""
    tpot = tpot_of(record)
    return tpot is not None and None not in (tpot.low, tpot.high) and not is_too_wide_change(tpot.low, tpot.high)


def _of_arms(run: SiteRun) -> Iterator[str]:
    best = fastest(run.figures)
    if best is None or best.speedup is None:
        yield answer(run.figures)
        return
    if best.speedup.tpot_ratio_low is None or best.speedup.tpot_ratio_high is None:
        yield f"{best.label}: {ratio_text(best)}, a speed-up without an interval"
    yield from (f"{arm.label}: {arm.status}: {arm.error}" for arm in run.arms if arm.num_repeats and arm.status != "ok")
