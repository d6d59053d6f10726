"""The verdict card of an A/B experiment as a table: one row per metric, with the evidence in its notes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from specbench.harness.metrics.figures import TPOT_MS
from specbench.harness.stats.verdict import EQUIVALENT, EXPLORATORY, INCONCLUSIVE, MIN_PAIRS, NO_DATA
from specbench.harness.store.ab_judgement import INVALID, MAX_REJECTED, MIXED, UNFINISHED, JudgedMetric, Judgement
from specbench.harness.store.ab_record import Side
from specbench.harness.store.arm_record import FORCED
from specbench.reports.cells import (
    NOTHING,
    TOO_WIDE,
    change_text,
    formatted,
    is_too_wide_change,
    machine_notes,
    milliseconds,
    number,
    size_text,
)
from specbench.reports.document import Table, table_of

NO_VERDICT = (INVALID, UNFINISHED)  # verdicts of a whole experiment under which no metric has a verdict
RANDOM_WEIGHTS = "synthetic weights"  # how the arm's note about it begins
_MARKS = {EQUIVALENT: "~ ", INCONCLUSIVE: "? "}
_MAX_REASONS = 5
_FRESH = "a fresh process for each side and block"


def side_figure(c: JudgedMetric, value: float | None) -> str:
    """`value` of one side; a dash if there is no change to show with it."""
    return (milliseconds if c.metric.unit == "ms" else number)(value if c.change is not None else None)


FIGURES: Mapping[str, Callable[[JudgedMetric], str]] = {
    "metric": lambda c: ", ".join(filter(None, (c.metric.name, c.metric.unit))),
    "A": lambda c: side_figure(c, c.a),
    "B": lambda c: side_figure(c, c.b),
}


def verdict_table(record: Judgement) -> Table:
    """From `ab.json`, finished or not."""
    columns = {
        **FIGURES,
        "change [95% CI]": lambda c: _mark(c, record.verdict) + change_of(c),
        "MDE": lambda c: size_text(c.least_effect, max_decimals=2),
        "verdict": lambda c: metric_verdict(c, record.verdict),
        "p (Holm)": lambda c: formatted(c.p_holm, ".2g"),
        "p (signed rank)": lambda c: formatted(c.p_signed_rank, ".2g"),
        "n": lambda c: f"{c.num_pairs} {c.metric.pairs}",
    }
    return table_of(verdict_title(record), columns, record.metrics, _notes(record))


def verdict_title(record: Judgement) -> str:
    """`B against A: improved`, with what the experiment was if it was not a complete A/B."""
    what = "A/A (both sides are the same code and configuration)" if record.is_aa else "B against A"
    unfinished = "" if record.status == "complete" else f" ({record.status})"
    return f"{what}: {verdict_words(record)}{unfinished}"


def verdict_words(record: Judgement) -> str:
    """The verdict of the whole experiment; for a mixed one, TPOT's; and whether it is worthless because the outputs are
    not as required."""
    mixed = record.verdict == MIXED
    word = f"{MIXED}, TPOT {record.decisive}" if mixed else record.verdict
    same = record.same_output
    if same.is_enough:
        return word
    return f"{word}, but the answers {'are WRONG' if same.num_pairs else 'CANNOT BE COMPARED'}"


def interval(low: float, high: float) -> str:
    """`[-24.5%, -19.9%]`; with one more digit if the ends would otherwise look equal: `[-11.19%, -11.16%]`."""
    ends = change_text(low, max_decimals=2), change_text(high, max_decimals=2)
    if ends[0] == ends[1] and low != high and max(low, high) <= 10:
        ends = f"{low:+.2%}", f"{high:+.2%}"
    return f"[{ends[0]}, {ends[1]}]"


def apart(record: Judgement) -> tuple[dict[str, str], str]:
    """What only one side has, by its label, and what both have. If the options are equal, the text as typed
    distinguishes them. Forced acceptance is shown elsewhere, unless nothing else differs."""
    sides = {side.label: side for side in record.plan.sides}
    arms = record.arms
    parts = {label: (arms[label].name or arms[label].strategy).split(",") for label in "AB"}
    kept = {label: [p for p in found if not p.startswith("acceptance=")] for label, found in parts.items()}
    if record.is_aa or set(kept["A"]) != set(kept["B"]):
        parts = kept
    both = [p for p in parts["A"] if p in parts["B"]]
    only = {label: ",".join(p for p in found if p not in both) for label, found in parts.items()}
    refs = {label: f"at {side.ref}" if side.ref else "" for label, side in sides.items()}
    if not all(only.values()) and not any(refs.values()):
        return {label: sides[label].text or ",".join(parts[label]) for label in "AB"}, ",".join(both)
    return {label: f"{only[label]} {refs[label]}".strip() or "the current code" for label in "AB"}, ",".join(both)


def arm_marks(record: Judgement, beginning: str) -> dict[str, str]:
    """By side, the note with this beginning; only sides that have one."""
    found = {label: [n for n in arm.notes if n.startswith(beginning)] for label, arm in record.arms.items()}
    return {label: notes[0] for label, notes in found.items() if notes}


def change_of(c: JudgedMetric) -> str:
    """`-22.2% [-24.5%, -19.9%]`."""
    if c.change is None:
        return NOTHING
    text = change_text(c.change, max_decimals=2)
    if c.low is None or c.high is None:
        return text
    return TOO_WIDE if is_too_wide_change(c.low, c.high) else f"{text} {interval(c.low, c.high)}"


def tpot_of(record: Judgement) -> JudgedMetric | None:
    """What decides and what a user waits for, if it was measured."""
    return next((c for c in record.metrics if c.metric.name == TPOT_MS.name and c.change is not None), None)


def tpot_words(record: Judgement) -> str:
    """`TPOT -18.5% [-18.50%, -18.46%]`; empty without a figure."""
    tpot = tpot_of(record)
    return f"{TPOT_MS.name} {change_of(tpot)}" if tpot else ""


def _mark(c: JudgedMetric, whole: str) -> str:
    return "" if c.change is None or whole in NO_VERDICT else _MARKS.get(c.verdict, "")


def metric_verdict(c: JudgedMetric, whole: str) -> str:
    """`whole`: the verdict of the experiment. If there is none, a metric's own verdict is not shown, because it would
    be read as one."""
    if c.change is None:
        return ": ".join(filter(None, (NO_DATA, c.unknown)))
    if whole in NO_VERDICT:
        return f"no verdict: {whole}"
    if not c.metric.gated:
        return EXPLORATORY
    if c.verdict == EXPLORATORY and c.why_too_few:
        return f"{EXPLORATORY}: {c.why_too_few}"
    if c.verdict != INCONCLUSIVE:
        return c.verdict
    what = c.metric.pairs
    more = c.more_pairs
    needs = f"impractically many more {what}" if more is None else f"about {more} more {what}"
    return f"{INCONCLUSIVE}: needs {needs}"


def _notes(record: Judgement) -> list[str]:
    sides = [f"{side.label}: {_side(side, record)}" for side in record.plan.sides]
    return [*sides, *cautions(record), *_design(record), *_blocks(record), *_beside(record), *_reading(record)]


def cautions(record: Judgement) -> list[str]:
    """What a reader must know before any figure of the experiment."""
    notes = []
    if record.mismatches:
        notes.append(f"NOT THE SAME on both sides (--allow-mismatch): {'; '.join(record.mismatches)}")
    if record.driven_otherwise:
        notes.append(f"exploratory: {record.driven_otherwise}")
    if record.is_aa:
        notes.append("A/A: the sides are identical, so a verdict of change is false and invalidates the measurement")
    return notes


def is_not_judged(record: Judgement) -> bool:
    """Whether outputs differ because acceptance is forced, so nobody expects them to be equal."""
    same = record.same_output
    return bool(arm_marks(record, FORCED)) and same.num_same < same.num_pairs


def how_measured(record: Judgement) -> list[str]:
    """In a few lines: processes, the blocks that count and why others do not, and equal outputs if there are too
    few."""
    where = "in ONE process (--in-process): no interval covers a restart" if record.plan.in_process else _FRESH
    outputs = [] if record.same_output.is_enough else _outputs(record)
    counted, *doubts = _blocks(record)
    return [f"{counted}; {where}", *doubts, *outputs]


def _side(side: Side, record: Judgement) -> str:
    arm = record.arms[side.label]
    typed = f" ({side.text})" if side.text and side.text != arm.name else ""
    code = f" at {side.ref} ({side.sha[:12]})" if side.sha else ""
    marks = "; ".join(arm.notes)
    return f"{arm.name or 'not run'}{typed}{code}" + (f" [{marks}]" if marks else "")


def _design(record: Judgement) -> list[str]:
    plan = record.plan
    how = (
        "both sides alternate in ONE process (--in-process): what is fixed at process start is the same in all blocks"
        if plan.in_process
        else _FRESH
    )
    order = " ".join("".join(pair) for pair in plan.order())
    return [f"{plan.num_blocks} blocks, {how}; order (seed {plan.order_seed}): {order}", *_outputs(record)]


def _outputs(record: Judgement) -> list[str]:
    least, same = record.plan.min_same_output, record.same_output
    if same.num_pairs:
        line = f"{same.num_same} of {same.num_pairs} outputs are the same on both sides"
        wrong = f", fewer than the required {least:.0%}: WRONG" if not same.is_enough else ""
        forced = " (forced acceptance: not a model's own outputs)" if arm_marks(record, FORCED) else ""
        return [line + wrong + forced]
    if same.is_enough:
        return []
    return [f"no outputs of the same prompts: the required {least:.0%} cannot be checked: INVALID"]


def _blocks(record: Judgement) -> list[str]:
    reasons = [f"block {b.block + 1}: {'; '.join(b.reasons)}" for b in record.blocks if b.reasons]
    more = f"; and {len(reasons) - _MAX_REASONS} more" if len(reasons) > _MAX_REASONS else ""
    listed = f" ({'; '.join(reasons[:_MAX_REASONS])}{more})" if reasons else ""
    num_blocks = record.plan.num_blocks
    notes = [f"{record.num_kept} of {num_blocks} blocks count, {record.num_rejected} rejected{listed}"]
    if record.num_rejected / num_blocks > MAX_REJECTED:
        notes.append(f"more than {MAX_REJECTED:.0%} of the blocks are rejected: the measurement is invalid")
    if record.verdict == UNFINISHED:
        notes.append("not all blocks are measured: no verdict yet")
    elif record.num_kept < MIN_PAIRS:
        notes.append(f"exploratory: no verdict with fewer than {MIN_PAIRS} blocks")
    return notes


def _beside(record: Judgement) -> list[str]:
    """Other activity on the machine, as far as it is known."""
    notes = []
    loads = [v for b in record.blocks for pair in b.load_average.values() for v in pair or () if v is not None]
    if loads:
        notes.append(f"load average around the blocks: {min(loads):.2f} to {max(loads):.2f}")
    notes += machine_notes([machine for b in record.blocks for machine in b.machine.values()])
    return [*notes, *(f"not checked: {what}" for what in record.unchecked)]


def _reading(record: Judgement) -> list[str]:
    effect = record.plan.min_effect
    return [
        "A, B: geometric means over n pairs; change: paired t on their log ratios. MDE: minimum "
        f"detectable effect with this many pairs and this spread, at 80% power and {record.alpha:.0%} error.",
        f"improved, regressed: p (Holm, over the metrics with a verdict) at most {record.alpha:g} and a change of "
        f"{effect:.2%} or more; equivalent (~): the interval lies within ±{effect:.2%}; inconclusive (?) is not "
        "'unchanged'; mixed: one metric improved and another regressed, TPOT decides.",
        "step time: median decode round, gaps included. tokens per step: for each prompt, over all its blocks.",
    ]
