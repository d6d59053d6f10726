"""The content of the card of a run or an A/B experiment: `specbench show RUN --card FILE.png`."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from pathlib import Path

from specbench.harness.metrics.doubts import casts_doubt
from specbench.harness.store.inputs_record import WorkloadRecord
from specbench.harness.store.results import ArmSummary
from specbench.reports.cells import NOTHING, acceptance_length, median_ms
from specbench.reports.charts.card import Card, write_card
from specbench.reports.charts.chart import Chart
from specbench.reports.charts.pictures import num_lines
from specbench.reports.document import Fact
from specbench.reports.experiments.verdict_table import verdict_words
from specbench.reports.run.answer import answer, equal_outputs, fastest, ratio_text

from .runs import SiteRun, read_site_runs
from .speedup_chart import strategy_chart
from .verdict_charts import verdict_charts
from .verdict_claim import claim_conditions, claim_doubts, claim_facts, claim_sentence

_MAX_ROWS, _MAX_LINES = 5, 12


def write_card_of(path: Path, file: Path) -> None:
    """Writes the card as a PNG; ValueError as in `card_of`."""
    write_card(card_of(path), file)


def card_of(path: Path) -> Card:
    """ValueError for a directory that cannot be read or has only traces, and for an experiment that is not judged."""
    runs, problems = read_site_runs([path])
    if problems:
        raise ValueError(problems[0].reason)
    (run,) = runs
    if not run.arms:
        raise ValueError(f"card: {run.run_id} has no measured speed, so there is nothing to draw")
    if run.is_experiment and run.ab is None:
        raise ValueError(f"card: {run.run_id} is not judged yet: specbench ab --resume {path}")
    sentence, facts, chart, warnings, conditions = _of_experiment(run) if run.ab else _of_arms(run)
    return Card(
        heading=f"specbench · {run.run_id} · {run.record.status}",
        answer=sentence,
        facts=facts,
        chart=None if chart is None else _short(chart),
        warnings=warnings,
        conditions=conditions,
        about=_about(run),
        command=run.record.command,
    )


_Said = tuple[str, tuple[Fact, ...], Chart | None, tuple[str, ...], tuple[str, ...]]


def _of_experiment(run: SiteRun) -> _Said:
    assert run.ab is not None
    known = claim_facts(run)
    changes, proof = known[:-2], known[-2:]
    facts = (*changes[:1], _acceptance(run.arms[-1], "acceptance length of B"), *proof[:1])
    warnings = claim_doubts(run.ab)
    if not run.ab.same_output.is_enough:
        warnings = (*warnings, f"{verdict_words(run.ab)}.")
    chart = next(iter(verdict_charts(run.ab)), None)
    return claim_sentence(run.ab), facts, chart, warnings, claim_conditions(run.ab)


def _of_arms(run: SiteRun) -> _Said:
    best = fastest(run.figures)
    if best is None or best.speedup is None:
        arm = next((arm for arm in run.arms if arm.num_repeats), run.arms[0])
        only = (Fact(name="TPOT", value=f"{median_ms('tpot_ms.mean')(arm)} ms"),)
        return answer(run.figures), only, None, _doubts(arm), _conditions(arm)
    factor, _, interval = ratio_text(best).partition(" ")
    same = equal_outputs(best)
    facts = (
        Fact(
            name=f"speed-up of TPOT against {best.speedup.baseline}",
            value=factor,
            note=f"{interval} 95% interval" if interval else "no interval",
        ),
        _acceptance(best, "acceptance length"),
        Fact(
            name="outputs equal",
            value="{} of {}".format(*same) if same[1] else NOTHING,
            note=f"those of {best.speedup.baseline}",
        ),
    )
    beside = [arm for arm in run.arms if arm.label == best.speedup.baseline]
    return answer(run.figures), facts, strategy_chart(run), _doubts(best, *beside), _conditions(best)


def _doubts(*arms: ArmSummary) -> tuple[str, ...]:
    """A sentence per arm: the doubts about its figures."""
    found = ((arm.label, [mark for mark in arm.marks if casts_doubt(mark)]) for arm in arms)
    return tuple(f"{label}: {'; '.join(marks)}." for label, marks in found if marks)


def _conditions(arm: ArmSummary) -> tuple[str, ...]:
    """The arm's other marks, which are facts."""
    marks = [mark for mark in arm.marks if not casts_doubt(mark)]
    return (f"{arm.label}: {'; '.join(marks)}.",) if marks else ()


def _acceptance(arm: ArmSummary, name: str) -> Fact:
    length, _, interval = acceptance_length(arm.acceptance).partition(" ")
    return Fact(name=name, value=length, note=f"{interval} tokens a verification" if length != NOTHING else "")


def _short(chart: Chart) -> Chart:
    """As many of the first rows as have room for their names."""
    lines = [num_lines(name) for name in chart.frame["y"].head(_MAX_ROWS)]
    fits = sum(end <= _MAX_LINES for end in accumulate(lines))
    frame = chart.frame.head(max(1, fits))
    return replace(chart, frame=frame.assign(y=frame["y"].map(_short_name)))


def _short_name(name: str) -> str:
    """Cuts the middle of a text that takes too many lines, because names often differ only at their ends."""
    kept = len(name) // 2
    short = name
    while num_lines(short) > _MAX_LINES:
        kept -= 4
        short = f"{name[:kept]} ... {name[-kept:]}"
    return short


def _about(run: SiteRun) -> str:
    workload, sampling = run.record.workload or WorkloadRecord(), run.record.sampling
    load = f", concurrency {run.concurrency}" if run.concurrency else ""
    how = f", {sampling.said_temperature}" if sampling and sampling.said_temperature else ""
    prompts = f"{workload.num_prompts or '?'} prompts of {workload.name or 'an unknown data set'}"
    return f"{run.model}, {prompts}{load}{how}; {run.hardware}; specbench {run.commit}"
