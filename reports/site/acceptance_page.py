"""How many drafts the target accepts: by position, and how often how many."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from specbench.reports.cells import acceptance_length, number, rates, row_name
from specbench.reports.document import Table

from .groups import Group, by_case, left_out
from .page import Cell, Page, Section
from .plots import Bars, Lines, Styles
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
    groups = [g for g in by_case(runs) if len(position_frame(g.newest))]
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


def position_frame(run: SiteRun) -> pd.DataFrame:
    """series, x: draft position from 1, y: rate; dashed: given that all before it were accepted."""
    rows = []
    for arm in run.arms:
        for dashed, key in ((False, "marginal"), (True, "conditional")):
            found: Sequence[float | None] = getattr(arm.acceptance, key) if arm.acceptance else ()
            rows += [
                {"series": row_name(arm), "x": i, "y": rate, "dashed": dashed}
                for i, rate in enumerate(found, start=1)
                if rate is not None
            ]
    return pd.DataFrame(rows)


def histogram_frame(run: SiteRun) -> pd.DataFrame:
    """series, x: drafts accepted in a verification, y: share of the verifications."""
    rows = []
    for arm in run.arms:
        counts = arm.acceptance.accepted_histogram if arm.acceptance else ()
        total = sum(counts)
        rows += [{"series": row_name(arm), "x": j, "y": n / total} for j, n in enumerate(counts) if total]
    return pd.DataFrame(rows)


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
    positions, histogram = position_frame(run), histogram_frame(run)
    own = styles.of(positions["series"])
    charts = (
        Lines(
            name=f"positions-{n + 1}",
            title="Accepted by draft position",
            description="Solid: with all drafts before it. Dashed: given that all before it were accepted.",
            frame=positions,
            x_title="draft position",
            y_title="accepted",
            styles=own,
            scale="ordinal",
            shares=True,
        ),
        Bars(
            name=f"histogram-{n + 1}",
            title="Drafts accepted in a verification",
            description="Share of the verifications that accepted 0, 1, ... drafts.",
            frame=histogram,
            x_title="accepted drafts",
            y_title="share of verifications",
            styles=own,
        ),
    )
    link = Cell(text=run.run_id, href=run.page)
    return Section(title=group.title, links=(link,), charts=charts, tables=(acceptance_table(run),))
