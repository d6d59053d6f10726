"""The comparison table of a run: a row per arm, with columns for traces, evaluations and other packages' figures."""

from __future__ import annotations

from collections.abc import Callable

from specbench.harness.metrics import figures, goodput
from specbench.harness.metrics.registered import foreign_figures
from specbench.harness.store.results import ArmSummary
from specbench.reports.cells import (
    NOTHING,
    TPOT_RATIO,
    acceptance_length,
    median,
    median_ms,
    number,
    pooled,
    row_name,
    share,
    tps_spread,
)
from specbench.reports.document import Table, table_of
from specbench.reports.run.accuracy_columns import accuracy_columns
from specbench.reports.run.answer import ratio_text
from specbench.reports.run.graph_columns import graph_columns
from specbench.reports.run.notes import conventions, footnotes
from specbench.reports.run.roofline_table import roofline_column
from specbench.reports.run.view import RunView


def comparison_table(view: RunView) -> Table:
    """Its notes say how to read the columns, what was run and how to repeat it."""
    columns = {**_COLUMNS, **goodput_column(view), **more_columns(view), "marks": _marks}
    about = [f"{name}: {value}" for name, value in footnotes(view)]
    return table_of("", columns, view.arms, (*conventions(view), *about))


def arms_table(view: RunView) -> Table:
    """The same for a page, which shows elsewhere what was run. Marks become notes, because a column of long marks makes
    rows too tall."""
    columns = {**_COLUMNS, "strategy": row_name, **goodput_column(view), **more_columns(view)}
    marks = [f"{arm.label}: {'; '.join(arm.marks)}" for arm in view.arms if arm.marks]
    return table_of("Arms", columns, view.arms, (*marks, *conventions(view)))


def more_columns(view: RunView) -> dict[str, Callable[[ArmSummary], str]]:
    """Columns from the roofline, traces, evaluations and other packages, if there are any."""
    more = (
        _factors(view)
        | roofline_column(view.roofline.arms)
        | graph_columns(view.graphs)
        | accuracy_columns(view.accuracy)
        | _foreign_columns(view)
    )
    return {header: _of_arm(cells) for header, cells in more.items()}


def goodput_column(view: RunView) -> dict[str, Callable[[ArmSummary], str]]:
    """`12.3 (87%)`, if limits were given."""
    if not view.slos:
        return {}
    return {_GOODPUT: lambda arm: goodput_cell(arm.median(goodput.REQUESTS_PER_S), arm.median(goodput.SHARE))}


def goodput_cell(per_s: float | None, kept: float | None) -> str:
    return NOTHING if per_s is None else f"{number(per_s)} ({share(kept)})"


def _of_arm(cells: dict[str, str]) -> Callable[[ArmSummary], str]:
    return lambda arm: cells.get(arm.label, NOTHING)


def _factors(view: RunView) -> dict[str, dict[str, str]]:
    """For imported files: without repeats, only the interval over requests shows how certain a factor is."""
    if not view.record.is_imported:
        return {}
    return {TPOT_RATIO: {arm.label: ratio_text(arm) for arm in view.arms}}


def _foreign_columns(view: RunView) -> dict[str, dict[str, str]]:
    """Cells by header and arm label, for figures that at least one arm has."""
    values = {figure: {arm.label: arm.median(figure.block) for arm in view.arms} for figure in foreign_figures()}
    return {
        figure.heading: {label: number(value) for label, value in by_arm.items()}
        for figure, by_arm in values.items()
        if any(value is not None for value in by_arm.values())
    }


def tps_cell(arm: ArmSummary) -> str:
    """`196.3 (1.77x)`: with the speed-up against the baseline of the run."""
    text = number(arm.median(figures.TPS.block))
    return text if arm.speedup is None or arm.speedup.tps_ratio is None else f"{text} ({arm.speedup.tps_ratio:.2f}x)"


def _marks(arm: ArmSummary) -> str:
    return "; ".join(arm.marks) or NOTHING


_COLUMNS: dict[str, Callable[[ArmSummary], str]] = {
    "strategy": lambda arm: arm.label,
    f"{figures.TPS.name} (x)": tps_cell,
    figures.TPOT_MS.heading: median_ms(figures.TPOT_MS.block),
    figures.TTFT_MS.heading: median_ms(figures.TTFT_MS.block),
    "spread": tps_spread,
    f"{figures.ACCEPTANCE_LENGTH.name} [95% CI]": lambda arm: acceptance_length(arm.acceptance),
    figures.TOKENS_PER_FORWARD.heading: pooled(lambda a: a.tokens_per_forward),
    "accepted by position": pooled(lambda a: a.marginal),
    figures.SYNCS_PER_ROUND.heading: median(figures.SYNCS_PER_ROUND.block),
    figures.SAME_OUTPUT.heading: lambda arm: share(arm.speedup.same_output_rate if arm.speedup else None),
}
_GOODPUT = f"{figures.GOODPUT.heading} (share)"
