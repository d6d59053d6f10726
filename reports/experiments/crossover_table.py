"""A crossover as tables: speed-ups by load, the break-even concurrency, the best number of drafts, the ideal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from specbench.harness.judge.crossover_record import FIGURES
from specbench.harness.metrics.figures import GOODPUT
from specbench.harness.spec.table_records import SweepArm
from specbench.harness.stats.crossover import BreakEven, Ratio, Side
from specbench.harness.store.crossover_file import BestArm, Crossover, CrossoverArm, LoadCell
from specbench.harness.store.roofline_record import IdealArm
from specbench.reports.cells import NOTHING, TOO_WIDE, factor, is_no_figure, marked_name, milliseconds, number
from specbench.reports.document import Table
from specbench.reports.experiments.interactivity import interactivity_table
from specbench.reports.run.comparison import goodput_cell
from specbench.reports.run.notes import goodput_note

from .crossover_notes import dips, doubt_notes, doubts, missing, no_verdict, troubles

FIGURE_NAMES = {word: figure.name for word, figure in FIGURES.items()}
BREAK_EVEN, INTERVAL = "break-even concurrency", "95% interval"
HOW_CROSSED = (
    "Break-even concurrency: where the speed-up falls below 1 for good, interpolated over log2 of the concurrency; "
    "below or beyond: outside the measured range, with the share of the resamples that say so."
)
_FIGURE_NOTES = {
    "tpot": "Speed-up of TPOT against no-spec of the same run, paired by block and prompt; [95% interval].",
    "tps": "Throughput in tokens/s (medians over blocks) and the speed-up against no-spec of the same block.",
}
_IDEAL_NOTES = (
    "First: the speed-up of decode rounds that the machine's limits allow at the measured acceptance, batch and "
    "context (roofline). Second: the ideal time of a round over the measured one.",
    "The batch is the mean of an arm's decode rounds: with few prompts for the concurrency it empties towards the end, "
    "sooner in a faster arm, and the ideal is for that smaller batch.",
)


def crossover_tables(record: Crossover, names: Mapping[str, str]) -> list[Table]:
    """The tables that the record has data for. `names`: what to call the arms, by label."""
    tables = [_figure_table(record, figure, names) for figure in FIGURE_NAMES]
    if record.slos:
        tables.append(goodput_table(record, names))
    if (matched := interactivity_table(record, names)) is not None:
        tables.append(matched)
    if any(best.num_arms > 1 for best in record.best):
        tables.append(_best_table(record))
    if any(cell.ideal for arm in record.arms for cell in arm.points):
        tables.append(_ideal_table(record, names))
    return tables


def display_names(record: Crossover) -> dict[str, str]:
    """Labels, with the marks that must accompany every figure of an arm."""
    return {arm.label: _display_name(arm) for arm in record.arms}


def _display_name(arm: CrossoverArm) -> str:
    marked = marked_name(arm.label, [*arm.notes, *(mark for _, mark in doubts(arm))])
    return f"{marked} (driven differently)" if no_verdict(arm) else marked


def end_text(crossing: BreakEven, at: float | None, side: Side, below: str = "below ", beyond: str = "beyond ") -> str:
    """`9.3`, `below 1` or `beyond 16`: an end of a break-even or of its interval."""
    if side == "between":
        return f"{at:.3g}"
    return f"{below}{crossing.first_load}" if side == "below" else f"{beyond}{crossing.last_load}"


def crossing_text(crossing: BreakEven | None) -> str:
    """`9.3`, or `beyond 16 (97% of resamples)`."""
    if crossing is None:
        return NOTHING
    text = end_text(crossing, crossing.value, crossing.value_side)
    if crossing.value_side == "between" or crossing.low_side is None:
        return text
    share = crossing.share_below if crossing.value_side == "below" else crossing.share_beyond
    return f"{text} ({share:.0%} of resamples)"


def interval_text(crossing: BreakEven | None) -> str:
    """`6.1 to beyond 16`; one word if both ends lie on the same side of the measured range."""
    if crossing is None or crossing.low_side is None or crossing.high_side is None:
        return NOTHING
    low = end_text(crossing, crossing.low, crossing.low_side)
    high = end_text(crossing, crossing.high, crossing.high_side)
    return low if low == high and crossing.low_side != "between" else f"{low} to {high}"


def ratio_text(ratio: Ratio | None) -> str:
    """`1.43x [1.40, 1.46]`."""
    if ratio is None:
        return NOTHING
    if is_no_figure(ratio.low, ratio.high):
        return TOO_WIDE
    return factor(ratio.ratio, ratio.low, ratio.high)


def has_intervals(record: Crossover) -> bool:
    """Whether any speed-up has one: a single block gives none."""
    return any(cell.tpot is not None and cell.tpot.low is not None for arm in record.arms for cell in arm.points)


def plan_table(
    loads: Sequence[int], arms: Sequence[SweepArm], num_blocks: int, num_prompts: int, notes: Sequence[str]
) -> Table:
    """What a sweep would measure: a row per arm, a column per load."""
    rows = tuple((arm.label, *["refused" if arm.refused else f"{num_blocks} blocks"] * len(loads)) for arm in arms)
    refused = [f"{arm.label}: refused: {arm.refused}" for arm in arms if arm.refused]
    all_notes = (f"{num_prompts} prompts in each block; nothing was measured (--dry-run).", *notes, *refused)
    title = f"{len(loads)} points, a run each"
    return Table(title=title, headers=("strategy", *map(_load_header, loads)), rows=rows, notes=all_notes)


def _figure_table(record: Crossover, figure: str, names: Mapping[str, str]) -> Table:
    rows = []
    for arm in record.arms:
        name, crossing = names[arm.label], arm.crossing[figure]
        cells = {cell.load: cell for cell in arm.points}
        texts = [_cell(cells.get(load), figure, record.is_baseline(arm.label)) for load in record.loads]
        ends = "no verdict" if no_verdict(arm) else crossing_text(crossing)
        rows.append((name, *texts, ends, interval_text(crossing)))
    rows += [(each.label, *["refused"] * len(record.loads), NOTHING, NOTHING) for each in record.refused]
    headers = ("strategy", *map(_load_header, record.loads), BREAK_EVEN, INTERVAL)
    title = f"{'Speed-up of TPOT' if figure == 'tpot' else 'Throughput (TPS)'} by concurrency"
    notes = [_FIGURE_NOTES[figure]]
    if figure == "tpot":  # below the first table once
        notes += [HOW_CROSSED, f"Intervals: {record.method}.", *troubles(record, names)]
    notes += dips(record, figure, names)
    if figure == "tpot":
        notes += [*doubt_notes(record, names), *missing(record), *record.notes]
    return Table(title=title, headers=headers, rows=tuple(rows), notes=tuple(notes))


def _cell(cell: LoadCell | None, figure: str, is_baseline: bool) -> str:
    if cell is None or not cell.num_blocks:
        return unmeasured(cell)
    own = f"{milliseconds(cell.tpot_ms)} ms" if figure == "tpot" else number(cell.tps_median)
    if cell.speedup(figure) is None:
        return own if is_baseline or figure == "tps" else NOTHING
    partial = " (partly failed)" if cell.error else ""
    ratio = ratio_text(cell.speedup(figure))
    return (ratio if figure == "tpot" else f"{own} ({ratio})") + partial


def unmeasured(cell: LoadCell | None) -> str:
    """Why a load has no figures; empty if it has some."""
    if cell is None:
        return NOTHING
    return "" if cell.num_blocks else "failed" if cell.error else "not run"


def goodput_table(record: Crossover, names: Mapping[str, str]) -> Table:
    rows = []
    for arm in record.arms:
        kept = {cell.load: cell.goodput for cell in arm.points if cell.goodput}
        cells = (goodput_cell(kept[n].requests_per_s, kept[n].share) if n in kept else NOTHING for n in record.loads)
        rows.append((names[arm.label], *cells))
    headers, note = ("strategy", *map(_load_header, record.loads)), goodput_note(record.slos)
    return Table(title=f"Goodput ({GOODPUT.unit}) by concurrency", headers=headers, rows=tuple(rows), notes=(note,))


def _best_table(record: Crossover) -> Table:
    families = list(dict.fromkeys(best.family for best in record.best if best.num_arms > 1))
    rows = []
    for family in families:
        for figure, name in FIGURE_NAMES.items():
            found = {b.load: b for b in record.best if b.family == family and b.figure == figure}
            rows.append((family, name, *(_best_cell(found.get(load)) for load in record.loads)))
        if any(ideals := [_ideals(record, family, load) for load in record.loads]):
            rows.append((family, "ideal", *map(_best_ideal, ideals)))
    headers = ("strategy", "by", *map(_load_header, record.loads))
    note = (
        "The number of drafts, its speed-up, and the share of the resamples in which it is the fastest; ideal: by the "
        "machine's limits, at the measured acceptance."
    )
    return Table(title="Best number of drafts", headers=headers, rows=tuple(rows), notes=(note,))


def _ideals(record: Crossover, family: str, load: int) -> dict[int, float]:
    """Ideal speed-up by number of drafts."""
    arms = [(arm, arm.num_drafts) for arm in record.arms if arm.family == family and arm.num_drafts]
    cells = {k: cell.ideal for arm, k in arms for cell in arm.points if cell.load == load}
    return {k: ideal.ideal_speedup for k, ideal in cells.items() if ideal and ideal.ideal_speedup}


def _best_ideal(ideals: Mapping[int, float]) -> str:
    if not ideals:
        return NOTHING
    k = max(ideals, key=ideals.__getitem__)
    return _or_no_speedup(f"k={k}: {ideals[k]:.2f}x", ideals[k])


def _or_no_speedup(text: str, ratio: float) -> str:
    return text if ratio >= 1 else f"no speed-up ({text})"


def _best_cell(best: BestArm | None) -> str:
    if best is None:
        return NOTHING
    share = "" if best.share is None else f" ({best.share:.0%})"
    return _or_no_speedup(f"k={best.num_drafts}: {best.ratio:.2f}x{share}", best.ratio)


def _ideal_table(record: Crossover, names: Mapping[str, str]) -> Table:
    rows: list[tuple[str, ...]] = []
    unknown: dict[str, str] = {}
    for arm in record.arms:
        cells = {cell.load: cell.ideal for cell in arm.points}
        texts = [_ideal_cell(cells.get(load)) for load in record.loads]
        rows.append((names[arm.label], *texts, crossing_text(arm.crossing["ideal"])))
        unknown |= {ideal.unknown: names[arm.label] for ideal in cells.values() if ideal and ideal.unknown}
    notes = [*_IDEAL_NOTES, *([f"Machine: {record.machine.described}."] if record.machine else [])]
    notes += [f"{name}: no ideal: {why}." for why, name in unknown.items()]
    headers = ("strategy", *map(_load_header, record.loads), f"ideal {BREAK_EVEN}")
    title = "Ideal speed-up and efficiency, from the machine's limits"
    return Table(title=title, headers=headers, rows=tuple(rows), notes=tuple(notes))


def _ideal_cell(ideal: IdealArm | None) -> str:
    if not ideal or ideal.ideal_speedup is None:
        return NOTHING
    return f"{ideal.ideal_speedup:.2f}x" + ("" if ideal.efficiency is None else f", {ideal.efficiency:.0%}")


def _load_header(load: int) -> str:
    return f"concurrency {load}"
