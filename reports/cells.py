"""Figures as text: four significant digits, a dash for missing values, intervals in brackets."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from specbench.harness.metrics import figures
from specbench.harness.metrics.doubts import OF_ARM, OF_RUN
from specbench.harness.store.block_records import MachineSeen
from specbench.harness.store.files import Json
from specbench.harness.store.results import Acceptance, ArmSummary, Speedup
from specbench.reports.document import NOTHING as NOTHING

WIDEST = 3.0
_THOUSAND = 999.95  # 1,000 in four digits
TOO_WIDE = f"inconclusive: interval wider than a factor of {WIDEST:g}"  # in place of a figure
TPOT_RATIO = "TPOT (x) [95% CI]"  # the header of `tpot_ratio`
NOT_JUDGED = "outputs not judged (forced acceptance)"


def row_name(arm: ArmSummary) -> str:
    """The label, with whatever qualifies every figure of the row: forced acceptance, a failed certificate, a doubt."""
    return marked_name(arm.label, arm.marks)


def arm_name(arm: ArmSummary) -> str:
    """The same without remarks about a single measurement, for rows that join several runs."""
    return _named(arm.label, arm.marks, OF_ARM)


def marked_name(label: str, marks: Sequence[str]) -> str:
    return _named(label, marks, (*OF_ARM, *OF_RUN))


def doubt_words(marks: Sequence[str]) -> str:
    """` (IMPOSSIBLE)`, to put after a figure whose row does not name the run."""
    return _named("", marks, OF_RUN)


def _named(label: str, marks: Sequence[str], words: Sequence[str]) -> str:
    kept = [word for word in words if any(mark.startswith(word) for mark in marks)]
    return label + "".join(f" ({word})" for word in kept)


def number(value: float | None) -> str:
    """Up to four digits, whole numbers from 1,000: 0.381, 1.234, 123.4, 23,266."""
    if value is None:
        return NOTHING
    return f"{value:,.0f}" if abs(value) >= _THOUSAND else f"{value:.4g}"


def milliseconds(value: float | None) -> str:
    """Always four digits, so that columns line up: 8.050, 20.00, 123.4; whole numbers from 1,000."""
    return number(value) if value is None or abs(value) >= _THOUSAND else f"{value:#.4g}"


def factor(value: float | None, low: float | None = None, high: float | None = None) -> str:
    """`1.54x`; `1.54x [1.41, 1.66]` if both ends of its interval are known."""
    if value is None:
        return NOTHING
    return f"{value:.2f}x" + (f" [{low:.2f}, {high:.2f}]" if low is not None and high is not None else "")


def formatted(value: float | None, form: str) -> str:
    """`value` as the format specification `form` writes it."""
    return NOTHING if value is None else f"{value:{form}}"


def with_interval(write: Callable[[float], str], value: float | None, low: float | None, high: float | None) -> str:
    """`VALUE [LOW, HIGH]`; the value alone if an end of its interval is not known."""
    if value is None:
        return NOTHING
    return write(value) if low is None or high is None else f"{write(value)} [{write(low)}, {write(high)}]"


def counted(n: int, noun: str) -> str:
    """`1 run`, `3 runs`, `2 directories`."""
    plural = noun.removesuffix("y") + "ies" if noun.endswith("y") else f"{noun}s"
    return f"{n} {noun if n == 1 else plural}"


def outputs_equal(num_same: int, num_pairs: int) -> str:
    """`8 of 8 outputs equal`, or that no pair was compared."""
    return f"{num_same} of {num_pairs} outputs equal" if num_pairs else "outputs were not compared"


def median(name: str) -> Callable[[ArmSummary], str]:
    """The cell of a block figure: its median over repeats."""
    return lambda arm: number(arm.median(name))


def median_ms(name: str) -> Callable[[ArmSummary], str]:
    """The same for a time in ms."""
    return lambda arm: milliseconds(arm.median(name))


def pooled(figure: Callable[[Acceptance], float | Sequence[float | None] | None]) -> Callable[[ArmSummary], str]:
    """The cell of a figure of acceptance: a number, or rates by position."""

    def cell(arm: ArmSummary) -> str:
        value = figure(arm.acceptance) if arm.acceptance else None
        return rates(value) if isinstance(value, Sequence) else number(value)

    return cell


def percent(value: float | None) -> str:
    """Signed percentage with one decimal."""
    return formatted(value, "+.1%")


def share(value: float | None) -> str:
    """`100%` only for all and `0%` only for none: 0.9996 is `>99.9%`, 0.0001 is `<0.1%`."""
    if value is None:
        return NOTHING
    if 0.999 < value < 1:
        return ">99.9%"
    if 0 < value < 0.001:
        return "<0.1%"
    return f"{value:.1%}".replace(".0%", "%")


def change_text(change: float | None, max_decimals: int = 3) -> str:
    """A fraction as a signed percentage with three significant digits: +12.4%, -2.53%, -0.312%; no decimals above
    1000%; an infinite one is `from 0`."""
    if change is None:
        return NOTHING
    if math.isinf(change):
        return "from 0"
    if change > 10:
        return ">+1000%"
    size = 100 * abs(change)
    decimals = 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 1 else 3
    return f"{100 * change:+.{min(decimals, max_decimals)}f}%"


def size_text(change: float | None, max_decimals: int = 3) -> str:
    """The same without the sign, for a minimum detectable effect."""
    return change_text(change, max_decimals).replace("+", "")


def machine_notes(seen: Sequence[MachineSeen]) -> list[str]:
    """Other activity on the machine during the blocks, as far as it is known."""
    shares = {
        "CPU time of other guests (steal)": [one.steal for one in seen if one.steal is not None],
        "stalled for lack of memory": [one.memory_stall for one in seen if one.memory_stall is not None],
    }
    notes = [f"{name}: at most {max(known):.1%} of a block" for name, known in shares.items() if known]
    limits = sorted({limit for one in seen for limit in one.power_limits_w or ()})
    capped = [one for one in seen if one.is_power_capped]
    if limits:
        watts = " to ".join(f"{limit:.0f} W" for limit in dict.fromkeys((limits[0], limits[-1])))
        notes.append(f"power limit: {watts}, reached in {len(capped)} of {len(seen)} blocks")
    return notes


def is_no_figure(low: float | None, high: float | None) -> bool:
    """Whether the interval of a ratio is inconclusive: it includes 1, and its ends are more than a factor of WIDEST
    apart."""
    return low is not None and high is not None and low <= 1 <= high and high > WIDEST * low


def is_too_wide_change(low: float | None, high: float | None) -> bool:
    """The same for the interval of a change, a fraction."""
    return low is not None and high is not None and is_no_figure(1 + low, 1 + high)


def rates(values: Sequence[float | None]) -> str:
    """Rates by position, two decimals, separated by blanks."""
    return " ".join(formatted(value, ".2f") for value in values) or NOTHING


def acceptance_length(acceptance: Acceptance | None) -> str:
    """`2.67 [2.51, 2.83]`."""
    if acceptance is None:
        return NOTHING
    interval = acceptance.acceptance_length_interval
    ends = (interval.low, interval.high) if interval else (None, None)
    return with_interval("{:.2f}".format, acceptance.acceptance_length, *ends)


def tpot_ratio(compared: Speedup | None) -> str:
    """`1.60x [1.52, 1.68]`: baseline / arm, above 1 the arm is faster."""
    if compared is None:
        return NOTHING
    low, high = compared.tpot_ratio_low, compared.tpot_ratio_high
    return TOO_WIDE if is_no_figure(low, high) else factor(compared.tpot_ratio, low, high)


def tps_spread(arm: ArmSummary) -> str:
    """Half of max - min of TPS over repeats, as a fraction of the median."""
    tps = arm.spreads.get(figures.TPS.block)
    if tps is None:
        return NOTHING
    return f"±{tps.half_range_fraction:.1%} (n={tps.n})" if tps.n > 1 else "n=1"


def compact(value: Json | Mapping[str, Json]) -> str:
    """A configuration value in one line: `temperature=0.0, seed=42`; nested values keep only what is set."""
    if isinstance(value, Mapping):
        return ", ".join(f"{k}={compact(v)}" for k, v in value.items() if v not in (None, {}, [], ""))
    if isinstance(value, list):
        return "[" + ", ".join(compact(item) for item in value) + "]"
    return "" if value is None else str(value)
