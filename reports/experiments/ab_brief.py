"""What a terminal shows of an A/B experiment on one screen: answer, sides, figures, and how it was measured."""

from __future__ import annotations

from specbench.harness.metrics.figures import TPOT_MS
from specbench.harness.stats.verdict import (
    EQUIVALENT,
    EXPLORATORY,
    IMPROVED,
    INCONCLUSIVE,
    MIN_PAIRS,
    NO_DATA,
    REGRESSED,
)
from specbench.harness.store.ab_judgement import Judgement
from specbench.reports.cells import NOT_JUDGED, outputs_equal, size_text
from specbench.reports.document import Table, fitting, table_of
from specbench.reports.experiments.verdict_table import (
    FIGURES,
    NO_VERDICT,
    apart,
    cautions,
    change_of,
    how_measured,
    is_not_judged,
    metric_verdict,
    tpot_words,
    verdict_title,
)

_CLAIMS = {IMPROVED: "B is faster than A", REGRESSED: "B is slower than A", EQUIVALENT: "B is as fast as A"}


def ab_answer(record: Judgement) -> str:
    """`B against A: improved. B is faster than A: TPOT -22.5% [-25.7%, -19.2%]; 160 of 160 outputs equal.`"""
    claim = _CLAIMS.get(record.product, "It is unclear which side is faster")
    if record.verdict in NO_VERDICT:
        claim = "No verdict"
    change = tpot_words(record) or "no TPOT was measured"
    same = record.same_output
    outputs = NOT_JUDGED if is_not_judged(record) else outputs_equal(same.num_same, same.num_pairs)
    return f"{verdict_title(record)}. {claim}: {change}; {outputs}."


def ab_unequal(record: Judgement) -> str:
    """The number of outputs that differ between the sides, unless acceptance is forced; empty if none do."""
    same = record.same_output
    if same.num_same == same.num_pairs or is_not_judged(record):
        return ""
    return f"{same.num_pairs - same.num_same} of {same.num_pairs} outputs differ, near-ties or errors"


def ab_sides(record: Judgement) -> dict[str, str]:
    """The part of each label that only that side has, and `both`: what they share; marks without the text in
    brackets."""
    only, both = apart(record)
    marks = {label: [note.partition(" (")[0] for note in arm.notes] for label, arm in record.arms.items()}
    shared = [mark for mark in marks.get("A", ()) if mark in marks.get("B", ())]
    sides = {}
    for side in record.plan.sides:
        own = [mark for mark in marks.get(side.label, ()) if mark not in shared]
        sides[side.label] = "; ".join([only[side.label] + (f" ({side.sha[:12]})" if side.sha else ""), *own])
    common = "; ".join(filter(None, ("" if record.is_aa else both, *shared)))
    return {**sides, "both": common} if common else sides


def ab_brief_table(record: Judgement, width: int | None) -> Table:
    """A row per metric, with the columns that fit into `width` characters. The notes say what is undecided and which
    figures are doubtful."""
    columns = {
        **FIGURES,
        "change [95% CI]": change_of,
        "verdict": lambda c: metric_verdict(c, record.verdict).partition(":")[0],
        "MDE": lambda c: size_text(c.least_effect, max_decimals=2),
    }
    notes = [*_undecided(record), *cautions(record), *how_measured(record)]
    return fitting(table_of("", columns, record.metrics, notes), width)


def _undecided(record: Judgement) -> list[str]:
    """What single metrics lack for a verdict; that there are too few blocks for any is said once, elsewhere."""
    found = {c.metric.name: metric_verdict(c, record.verdict).partition(": ") for c in record.metrics}
    needed = [f"{name} {why}" for name, (word, _, why) in found.items() if word == INCONCLUSIVE]
    needed = [need for need in needed if need.startswith(TPOT_MS.name)] or needed  # what decides
    words = {NO_DATA} if record.num_kept < MIN_PAIRS else {NO_DATA, EXPLORATORY}
    untested = [f"{name}: {word}: {why}" for name, (word, _, why) in found.items() if word in words and why]
    return ["; ".join(each) for each in (needed, untested) if each]
