"""How many drafts the target accepts: by position, and how often how many."""

from __future__ import annotations

from collections.abc import Sequence

from specbench.reports.cells import acceptance_length, number, rates, row_name
from specbench.reports.charts.chart import Styles
from specbench.reports.document import Table
from specbench.reports.run.charts import acceptance_charts, position_frame

from .groups import Group, by_case, left_out
from .page import Cell, Page, Section
from .runs import SiteRun

PATH = "acceptance.html"
MAX_GROUPS = 10
_HEADERS = (
    "strategy",
    "AL [95% CI]",
    "tokens/forward",
    "by position",
    "given the ones before",
    "verifications",
    "TPS (x)",
)


def acceptance_page(runs: Sequence[SiteRun], styles: Styles) -> Page:
    """The newest run of each workload that verified drafts."""
    groups = [g for g in by_case(runs) if len(position_frame(g.newest.arms))]
    shown = [_section(group, n, styles) for n, group in enumerate(groups[:MAX_GROUPS])]
    shown += left_out(len(groups), MAX_GROUPS)
    if not shown:
        shown = [Section(title="Nothing to draw", sentences=("No run here verified a draft.",))]
    return Page(
        path=PATH,
        title="Acceptance",
        lead="What the drafter is worth, apart from how fast the machine runs it. The newest run of each workload.",
        sections=tuple(shown),
    )


def acceptance_table(run: SiteRun) -> Table:
    """Figures of the arms that verified drafts."""
    rows = []
    for arm in run.arms:
        found = arm.acceptance
        if found is None or not found.num_verifications:
            continue
        tps = number(arm.median("tps"))
        ratio = arm.speedup.tps_ratio if arm.speedup else None
        rows.append(
            (
                row_name(arm),
                acceptance_length(found),
                number(found.tokens_per_forward),
                rates(found.marginal),
                rates(found.conditional),
                str(found.num_verifications),
                f"{tps} ({ratio:.2f}x)" if ratio else tps,
            )
        )
    notes = (
        "AL: tokens per verification, the bonus token among them, all repeats pooled. By position: this draft and all "
        "before it accepted, as in vLLM's counters.",
    )
    return Table(title="Acceptance", headers=_HEADERS, rows=tuple(rows), notes=notes)


def _section(group: Group, n: int, styles: Styles) -> Section:
    run = group.newest
    return Section(
        title=group.title,
        links=(Cell(text=run.run_id, href=run.page),),
        charts=acceptance_charts(run.arms, styles, n),
        tables=(acceptance_table(run),),
    )
