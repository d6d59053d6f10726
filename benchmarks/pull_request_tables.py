"""Tables of the four pull requests: from the reports that were kept of our engine, and from stored runs of theirs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from kept import HERE, is_pooled, kept_file, report_command, report_model, report_table

from specbench.reports.document import Command, Section, Table
from specbench.reports.run.recipe_table import recipe_table
from specbench.reports.site.runs import SiteRun

RECIPES = HERE.parent / "harness" / "spec" / "recipes"
NO_REPEATS = "Only the report was kept, not the repeats"


@dataclass(frozen=True, kw_only=True, slots=True)
class PullRequest:
    """`report`: as kept; `recipe`: its name today; `columns`, `rows`: what is shown of its table; `answer`: the row and
    the two columns that tell the result beside the claim."""

    report: str
    recipe: str
    columns: tuple[str, ...]
    answer: tuple[str, str, str]
    rows: str = ""


PULL_REQUESTS = (
    PullRequest(
        report="seed-20078-h200.md",
        recipe="vllm-pr-20078",
        columns=("arm", "TPOT ms", "TPOT change [95% CI]", "claimed tpot", "spread", "syncs/round"),
        answer=("fused, single", "TPOT change [95% CI]", "claimed tpot"),
    ),
    PullRequest(
        report="seed-25196-h200.md",
        recipe="vllm-pr-25196",
        columns=("arm", "TPS", "factor", "claimed tps", "claimed factor", "spread", "drafter rows/round"),
        answer=("FlashInfer, padded", "factor", "claimed factor"),
    ),
    PullRequest(
        report="seed-34880-h200.md",
        recipe="vllm-pr-34880",
        columns=("arm", "TPOT ms", "TPOT change [95% CI]", "AL [95% CI]", "claimed acceptance", "same output"),
        answer=("EAGLE K=4, FULL_AND_PIECEWISE", "TPOT change [95% CI]", "claimed acceptance"),
        rows="K=4",
    ),
    PullRequest(
        report="pr-6995-h200-x2.md",
        recipe="sglang-pr-6995",
        columns=("arm", "requests/s", "speed-up", "claimed req s", "claimed speed-up", "spread", "target rows/round"),
        answer=("naive EAGLE", "speed-up", "claimed speed-up"),
    ),
)


def pull_requests(pages: Mapping[str, SiteRun]) -> list[Section]:
    sections = []
    for request in PULL_REQUESTS:
        table = report_table(request.report, request.columns, request.rows)
        title, _, about = table.title.partition(": ")
        only = f" Rows with {request.rows}." if request.rows else ""
        sections.append(
            Section(
                title=title,
                links=(kept_file(f"results/{request.report}", "the full report"),),
                sentences=(_answer(table, *request.answer),),
                commands=(_command(request),),
                tables=(
                    replace(table, title=about, notes=(*table.notes, f"{NO_REPEATS}.{only}")),
                    *_in_engine(request.recipe, pages),
                ),
            )
        )
    return sections


def _command(request: PullRequest) -> Command:
    """Recipes change: one may have another model today than in the report."""
    recipe = (RECIPES / f"{request.recipe}.toml").read_text(encoding="utf-8")
    today, then = re.findall(r'^model = "(.+)"', recipe, re.MULTILINE)[0], report_model(request.report)
    name = "Reproduce" if today == then else f"The recipe now uses {today}; the report is for {then}"
    if is_pooled(request.report):
        name += " a repeat; specbench pool makes one run of several"
    return Command(name=name, text=report_command(request.report, request.recipe))


def _answer(table: Table, arm: str, *columns: str) -> str:
    row = next(row for row in table.rows if str(row[0]).removesuffix(" (synthetic)") == arm)
    return f"{arm}: {'; '.join(f'{name} {row[table.headers.index(name)]}' for name in columns)}."


def _in_engine(recipe: str, pages: Mapping[str, SiteRun]) -> tuple[Table, ...]:
    """The same comparison in the engine of the pull request, from the run that is stored."""
    run = pages.get(f"{recipe}-in-{recipe.partition('-')[0]}")
    if run is None or any(arm.status != "ok" for arm in run.arms):
        return ()
    whole = recipe_table(run.with_requests())
    assert whole is not None
    change = "speed-up" if "speed-up" in whole.headers else "TPOT change [95% CI]"
    picked = [whole.headers.index(name) for name in ("arm", "TPS", change, "TPOT ms", "round p50 ms", "AL [95% CI]")]
    rows = tuple(tuple(row[i] for i in picked) for row in whole.rows)
    note = f"From the stored requests of {run.run_id}; its page has every column."
    return (Table(title=whole.title, headers=tuple(whole.headers[i] for i in picked), rows=rows, notes=(note,)),)
