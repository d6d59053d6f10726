"""What a terminal shows of a sweep on one screen: speed-ups by load, break-even concurrencies, and what was run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from specbench.harness.stats.crossover import Ratio
from specbench.harness.store.crossover_file import Crossover, CrossoverArm, LoadCell
from specbench.harness.store.inputs_record import WorkloadRecord
from specbench.reports.cells import NOTHING, counted, is_no_figure
from specbench.reports.document import Table, fitting

from .crossover_notes import dips, doubt_notes, missing, no_verdict, troubles
from .crossover_table import end_text, has_intervals, ratio_text, unmeasured

_OPEN = "~"  # before a factor whose interval, left out, holds 1
_NO_INTERVALS = "without intervals: one block has none."


def crossover_brief(record: Crossover, names: Mapping[str, str], width: int | None) -> Table:
    """A row per strategy. If the intervals do not fit into `width` characters, factors are shown without them; then the
    last loads are left out."""
    how, left_out = _NO_INTERVALS, _NO_INTERVALS
    if has_intervals(record):
        how = "[95% interval over blocks and prompts]."
        left_out = f"{_OPEN}: the 95% interval holds 1; intervals: --format wide."
    whole = _table(record, names, ratio_text, how)
    if fitting(whole, width).headers == whole.headers:
        return whole
    short = _table(record, names, _short_ratio, left_out)
    table = fitting(short, width)
    hidden = short.headers[len(table.headers) :]
    return replace(table, notes=(*table.notes, f"not shown here: {', '.join(hidden)}")) if hidden else table


def _table(record: Crossover, names: Mapping[str, str], cell: Callable[[Ratio | None], str], how: str) -> Table:
    rows = [(names[arm.label], _crossing(arm), *_factors(arm, record, cell)) for arm in record.arms]
    rows += [(refused.label, NOTHING, *["refused"] * len(record.loads)) for refused in record.refused]
    notes = [
        f"Against {record.baseline} of the same run; {how}",
        *troubles(record, names),
        *dips(record, "tpot", names),
    ]
    notes += [*doubt_notes(record, names), *missing(record), *record.notes, *_about(record)]
    headers = ("strategy", "break-even [95% CI]", *(f"at {load}" for load in record.loads))
    return Table(title="Speed-up of TPOT by concurrency", headers=headers, rows=tuple(rows), notes=tuple(notes))


def _factors(arm: CrossoverArm, record: Crossover, text: Callable[[Ratio | None], str]) -> list[str]:
    cells: dict[int, LoadCell] = {cell.load: cell for cell in arm.points}
    is_base = record.is_baseline(arm.label)
    found = []
    for load in record.loads:
        cell = cells.get(load)
        own = "1.00x" if is_base else text(cell.tpot if cell else None)
        found.append(unmeasured(cell) or own + ("*" if cell and cell.error else ""))
    return found


def _short_ratio(ratio: Ratio | None) -> str:
    """`1.54x`; `~1.05x` if the interval includes 1."""
    if ratio is None or is_no_figure(ratio.low, ratio.high):
        return ratio_text(ratio)
    is_open = ratio.low is not None and ratio.high is not None and ratio.low <= 1 <= ratio.high
    return f"{_OPEN if is_open else ''}{ratio.ratio:.2f}x"


def _crossing(arm: CrossoverArm) -> str:
    """`22.6 [18, 31]`, `>64`, `<1 [<1, 1.6]`."""
    found = arm.crossing["tpot"]
    if no_verdict(arm):
        return "no verdict"
    if found is None:
        return NOTHING
    value = end_text(found, found.value, found.value_side, "<", ">")
    if found.low_side is None or found.high_side is None:
        return value
    ends = ((found.low, found.low_side), (found.high, found.high_side))
    low, high = (end_text(found, at, side, "<", ">") for at, side in ends)
    return value if value == low == high else f"{value} [{low}, {high}]"


def _about(record: Crossover) -> list[str]:
    workload = record.workload or WorkloadRecord()
    digest = f" (sha256 {workload.sha256[:12]})" if workload.sha256 else ""
    prompts = f"{record.num_prompts} prompts of {workload.name or 'an unknown data set'}{digest}"
    blocks = f"{counted(max(record.num_blocks.values(), default=0), 'block')} per load"
    return [", ".join(filter(None, (prompts, blocks, record.model, record.hardware)))]
