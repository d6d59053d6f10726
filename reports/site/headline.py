"""Which run may stand at the head of the site: one whose claim has an interval; before all others, one whose figures
nobody must doubt."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from specbench.harness.metrics.doubts import casts_doubt
from specbench.harness.metrics.figures import TPOT_MS
from specbench.harness.store.ab_judgement import Judgement
from specbench.reports.cells import is_no_figure
from specbench.reports.experiments.verdict_table import NO_VERDICT, verdict_words
from specbench.reports.run.answer import answer, fastest, ratio_text

from .runs import SiteRun


def headlines(runs: Sequence[SiteRun]) -> list[SiteRun]:
    """Those that may stand first, in their order: the ones without a doubt, or, where there are none, all that claim
    something."""
    claims = [run for run in runs if not objection(run)]
    return [run for run in claims if not doubts_of(run)] or claims


def objection(run: SiteRun) -> str:
    """Why the run claims nothing about speed, the first reason found; empty if it does."""
    return next(_objections(run), "")


def doubts_of(run: SiteRun) -> tuple[str, ...]:
    """Marks that make its figures doubtful, each with its arm."""
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
        yield "A/A: both sides are the same, so that it measures noise"
    if run.ab.verdict in NO_VERDICT or not run.ab.same_output.is_enough:
        yield verdict_words(run.ab)
    if not _has_interval(run.ab):
        yield f"the change of {TPOT_MS.name} has no interval"


def _has_interval(record: Judgement) -> bool:
    """Of TPOT, and one that says something: a claim has words for it."""
    return any(
        c.metric.name == TPOT_MS.name
        and c.low is not None
        and c.high is not None
        and not is_no_figure(1 + c.low, 1 + c.high)
        for c in record.metrics
    )


def _of_arms(run: SiteRun) -> Iterator[str]:
    best = fastest(run.figures)
    if best is None or best.speedup is None:
        yield answer(run.figures)
        return
    if best.speedup.tpot_ratio_low is None or best.speedup.tpot_ratio_high is None:
        yield f"{best.label}: {ratio_text(best)}, a speed-up without an interval"
    yield from (f"{arm.label}: {arm.status}: {arm.error}" for arm in run.arms if arm.num_repeats and arm.status != "ok")
