"""How many drafts the target accepts: by position, and how many per verification."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from specbench.harness.store.results import ArmSummary
from specbench.reports.cells import acceptance_length, pooled, row_name
from specbench.reports.charts.chart import Styles
from specbench.reports.document import Section, Table, table_of
from specbench.reports.run.charts import acceptance_charts, position_frame
from specbench.reports.run.comparison import tps_cell

from .groups import Group, by_case
from .page import Page, newest_sections, one_open, or_nothing
from .runs import SiteRun

PATH = "acceptance.html"
MAX_GROUPS = 10
_COLUMNS: dict[str, Callable[[ArmSummary], str]] = {
    "strategy": row_name,
    "AL [95% CI]": lambda arm: acceptance_length(arm.acceptance),
    "tokens/forward": pooled(lambda a: a.tokens_per_forward),
    "by position": pooled(lambda a: a.marginal),
    "given those before": pooled(lambda a: a.conditional),
    "verifications": pooled(lambda a: a.num_verifications),
    "TPS (x)": tps_cell,
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
    drafted = [arm for arm in run.arms if arm.acceptance and arm.acceptance.num_verifications]
    return table_of("Acceptance", _COLUMNS, drafted, (_NOTE,))


def _section(group: Group, n: int, styles: Styles) -> Section:
    run = group.newest
    charts = acceptance_charts(run.arms, styles, n)
    tables = (acceptance_table(run),)
    return Section(title=group.title, anchor=run.anchor, links=(run.link,), charts=charts, tables=tables)
