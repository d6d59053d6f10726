"""The head of an A/B page: sides, changes, evidence and warnings."""

from __future__ import annotations

from specbench.harness.metrics.figures import TPOT_MS
from specbench.harness.store.ab_judgement import JudgedMetric, Judgement
from specbench.harness.store.arm_record import FORCED
from specbench.reports.cells import TOO_WIDE, change_text, is_too_wide_change, outputs_equal, size_text
from specbench.reports.document import Fact
from specbench.reports.experiments.verdict_table import (
    NO_VERDICT,
    RANDOM_WEIGHTS,
    apart,
    arm_marks,
    interval,
    is_not_judged,
    side_figure,
    tpot_words,
    verdict_words,
)

from . import badges
from .runs import SiteRun

_PRODUCT = TPOT_MS.name  # what the user waits for, of which step time and tokens per step are the factors


def claim_title(record: Judgement) -> str:
    """`B state_update=fused against A state_update=torch; both eagle:k=4`, or `A/A: eagle:k=4`."""
    sides, both = apart(record)
    if record.is_aa:
        return f"A/A: {both}"
    return f"B {sides['B']} against A {sides['A']}" + (f"; both {both}" if both else "")


def claim_sides(record: Judgement) -> str:
    """`state_update=fused against state_update=torch`: only what differs; empty for equal sides."""
    sides, _ = apart(record)
    return "" if record.is_aa else f"{sides['B']} against {sides['A']}"


def claim_facts(run: SiteRun) -> tuple[Fact, ...]:
    """The change of each gated metric, TPOT first, with interval and power; then the evidence for equal outputs. Empty
    for an experiment without a verdict, because a large figure would look like one."""
    record = run.ab
    assert record is not None
    if record.verdict in NO_VERDICT:
        return ()
    gated = [c for c in record.metrics if c.metric.gated and c.change is not None]
    changes = [_change(c) for c in sorted(gated, key=lambda c: c.metric.name != _PRODUCT)]
    return (*changes, *_proof(run, record))


def claim_sentence(record: Judgement) -> str:
    """The sides, the change of TPOT with its interval or the reason why there is none, and equal outputs."""
    change, same = claim_words(record) or verdict_words(record), record.same_output
    equal = f"; {outputs_equal(same.num_same, same.num_pairs)}" if same.num_pairs else ""
    if is_not_judged(record):
        equal = "; outputs not judged"
    return f"{claim_title(record)}: {change}{equal}."


def claim_words(record: Judgement) -> str:
    """`TPOT -18.5% [-18.50%, -18.46%]`, and whether acceptance is forced; empty without a verdict or a figure."""
    change = "" if record.verdict in NO_VERDICT else tpot_words(record)
    return change + (" (forced acceptance)" if change and arm_marks(record, FORCED) else "")


def caution(record: Judgement) -> tuple[str, ...]:
    """What must be read before any figure of the experiment: doubts first, then facts."""
    return (*claim_doubts(record), *claim_conditions(record))


def claim_doubts(record: Judgement) -> tuple[str, ...]:
    """Doubts about the figures."""
    found = []
    if record.verdict in NO_VERDICT:
        found.append(f"The measurement is {record.verdict}: the results of single metrics below are not verdicts.")
    if record.mismatches:
        found.append(f"NOT THE SAME on both sides (--allow-mismatch): {'; '.join(record.mismatches)}.")
    return tuple(found)


def claim_conditions(record: Judgement) -> tuple[str, ...]:
    """Conditions under which the figures hold: facts, not doubts."""
    forced, found = arm_marks(record, FORCED), []
    if forced:
        rates = "; ".join(f"{label}: {note.removeprefix(FORCED).strip(' ()')}" for label, note in forced.items())
        found.append(
            f"Acceptance is forced ({rates}): tokens per step is set, not measured; TPOT is valid for these rates "
            "only; the outputs are not the model's own."
        )
    if random := arm_marks(record, RANDOM_WEIGHTS):
        found.append(f"Random weights ({' and '.join(random)}): times are real, outputs are meaningless.")
    return tuple(found)


def _change(c: JudgedMetric) -> Fact:
    metric = c.metric
    assert c.change is not None
    known = "" if c.low is None or c.high is None else f"95% {interval(c.low, c.high)}"
    notes = [known, f"{side_figure(c, c.a)} to {side_figure(c, c.b)} {metric.unit}".strip()]
    if c.least_effect is not None:
        notes.append(f"MDE {size_text(c.least_effect, max_decimals=2)} with {c.num_pairs} {metric.pairs}")
    value = TOO_WIDE if is_too_wide_change(c.low, c.high) else change_text(c.change, max_decimals=2)
    return Fact(name=metric.name, value=value, note="; ".join(filter(None, notes)))


def _proof(run: SiteRun, record: Judgement) -> tuple[Fact, Fact]:
    same, note = record.same_output, "acceptance is forced" if arm_marks(record, FORCED) else ""
    if same.num_same < same.num_pairs and not note:
        note = "the others: a near-tie resolved differently, or an error"
    answers = f"{same.num_same} of {same.num_pairs}" if same.num_pairs else "not compared"
    answers = "not judged" if is_not_judged(record) else answers
    certificate = "not certified" if run.certificate is None else badges.certificate(run).text
    return Fact(name="same answers", value=answers, note=note), Fact(name="losslessness", value=certificate)
