"""How many drafts the target accepts: by position, and how many per verification."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from specbench.harness.store.results import Acceptance, ArmSummary
from specbench.reports.cells import acceptance_length, number, rates, row_name
from specbench.reports.charts.chart import Styles
from specbench.reports.document import Section, Table, table_of
from specbench.reports.run.charts import acceptance_charts, position_frame
from specbench.reports.run.comparison import tps_cell

from .groups import Group, by_case
from .page import Page, newest_sections, one_open, or_nothing
from .runs import SiteRun

PATH = "acceptance.html"
MAX_GROUPS = 10
_COLUMNS: dict[str, Callable[[tuple[ArmSummary, Acceptance]], str]] = {
    "strategy": lambda row: row_name(row[0]),
    "AL [95% CI]": lambda row: acceptance_length(row[1]),
    "tokens/forward": lambda row: number(row[1].tokens_per_forward),
    "by position": lambda row: rates(row[1].marginal),
    "given those before": lambda row: rates(row[1].conditional),
    "verifications": lambda row: f"{row[1].num_verifications:,}",
    "TPS (x)": lambda row: tps_cell(row[0]),
}
_NOTE = (
    "AL: tokens per verification, the bonus token included, all repeats pooled. By position: this draft and all before "
    "it accepted, as in vLLM's counters."
)


def acceptance_page(runs: Sequence[SiteRun], styles: Styles) -> Page:
    """The newest run of each workload that verified drafts."""
    groups = [group for group in by_case(runs) if len(position_frame(group.newest.arms))]
    sections = newest_sections(groups, MAX_GROUPS, lambda group, n: _section(group, n, styles))
    return Page(
        path=PATH,
        title="Acceptance",
        lead="How good the drafts are, whatever the machine's speed, in the newest run of each workload.",
        sections=or_nothing(one_open(sections), "Nothing to draw", "No run here verified a draft."),
    )


def acceptance_table(run: SiteRun) -> Table:
    """Figures of the arms that verified drafts."""
    drafted = [(arm, arm.acceptance) for arm in run.arms if arm.acceptance and arm.acceptance.num_verifications]
    return table_of("Acceptance", _COLUMNS, drafted, (_NOTE,))


def _section(group: Group, n: int, styles: Styles) -> Section:
    run = group.newest
    charts = acceptance_charts(run.arms, styles, n)
    tables = (acceptance_table(run),)
    return Section(title=group.title, anchor=run.anchor, links=(run.link,), charts=charts, tables=tables)
