"""Figures as text: four significant digits, a dash where there is nothing, intervals in brackets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from specbench.harness.metrics import figures
from specbench.harness.metrics.registered import foreign_figures
from specbench.harness.store.results import Acceptance, ArmSummary
from specbench.reports.experiments.certificate_marks import NOT_LOSSLESS
from specbench.reports.run.accuracy_columns import accuracy_columns
from specbench.reports.run.graph_columns import VOID, graph_columns

if TYPE_CHECKING:
    from specbench.reports.run.view import RunView

NOTHING = "-"
HEADERS = (
    "strategy",
    f"{figures.TPS.name} (x)",
    figures.TPOT_MS.heading,
    figures.TTFT_MS.heading,
    "spread",
    f"{figures.ACCEPTANCE_LENGTH.name} [95% CI]",
    figures.TOKENS_PER_FORWARD.heading,
    "accepted by position",
    figures.SYNCS_PER_ROUND.heading,
    "marks",
)


def comparison(view: RunView) -> tuple[tuple[str, ...], list[dict[str, str]]]:
    """Headers and rows of the comparison table: HEADERS, with the columns of traces, of an evaluation and of other
    packages' figures before the marks."""
    columns = graph_columns(view.graphs) | accuracy_columns(view.accuracy) | _foreign_columns(view.arms)
    rows = [
        comparison_cells(arm) | {header: cells.get(arm.label, NOTHING) for header, cells in columns.items()}
        for arm in view.arms
    ]
    return (*HEADERS[:-1], *columns, HEADERS[-1]), rows


def _foreign_columns(arms: Sequence[ArmSummary]) -> dict[str, dict[str, str]]:
    """Cells by header and arm label, of figures that an arm has."""
    known = {figure: {a.label: a.median(figure.block) for a in arms} for figure in foreign_figures()}
    return {
        figure.heading: {label: number(value) for label, value in values.items()}
        for figure, values in known.items()
        if any(value is not None for value in values.values())
    }


def comparison_cells(arm: ArmSummary) -> dict[str, str]:
    """One row of the comparison table, by the names in HEADERS."""
    accepted = arm.acceptance
    values = (
        arm.label,
        _tps(arm),
        milliseconds(arm.median(figures.TPOT_MS.block)),
        milliseconds(arm.median(figures.TTFT_MS.block)),
        tps_spread(arm),
        acceptance_length(accepted),
        number(accepted.tokens_per_forward if accepted else None),
        rates(accepted.marginal if accepted else ()),
        number(arm.median(figures.SYNCS_PER_ROUND.block)),
        "; ".join(arm.marks) or NOTHING,
    )
    return dict(zip(HEADERS, values, strict=True))


def row_name(arm: ArmSummary) -> str:
    """The label, with what no figure of its row may hide: forced acceptance, a failed certificate."""
    return marked_name(arm.label, arm.marks)


def marked_name(label: str, marks: Sequence[str]) -> str:
    kept = [word for word in ("synthetic", NOT_LOSSLESS, VOID) if any(mark.startswith(word) for mark in marks)]
    return label + "".join(f" ({word})" for word in kept)


def number(value: float | None) -> str:
    """Up to four digits, whole numbers from 1,000: 0.381, 1.234, 123.4, 23266."""
    if value is None:
        return NOTHING
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def milliseconds(value: float | None) -> str:
    """Always four digits, so that a column lines up: 8.050, 20.00, 123.4; whole numbers from 1,000."""
    return number(value) if value is None or abs(value) >= 1000 else f"{value:#.4g}"


def percent(value: float | None) -> str:
    """Signed percentage with one decimal."""
    return NOTHING if value is None else f"{value:+.1%}"


def rates(values: Sequence[float | None]) -> str:
    """Rates by position, two decimals, separated by blanks."""
    return " ".join(NOTHING if value is None else f"{value:.2f}" for value in values) or NOTHING


def acceptance_length(found: Acceptance | None) -> str:
    """`2.67 [2.51, 2.83]`."""
    if found is None or found.acceptance_length is None:
        return NOTHING
    interval = found.acceptance_length_interval
    return f"{found.acceptance_length:.2f}" + (f" [{interval.low:.2f}, {interval.high:.2f}]" if interval else "")


def _tps(arm: ArmSummary) -> str:
    text = number(arm.median(figures.TPS.block))
    if arm.speedup is None or arm.speedup.tps_ratio is None:
        return text
    return f"{text} ({arm.speedup.tps_ratio:.2f}x)"


def tps_spread(arm: ArmSummary) -> str:
    """Half of max - min of TPS over repeats, as a fraction of the median."""
    tps = arm.spreads.get(figures.TPS.block)
    if tps is None:
        return NOTHING
    return f"±{tps.half_range_fraction:.1%} (n={tps.n})" if tps.n > 1 else "n=1"
