"""Tables that a run was made for: a recipe's rows against their baselines, a base's switches one by one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from run_samples import SAMPLING, begun, chain_block

from specbench.harness.metrics.speedup import Ratio
from specbench.harness.spec.recipe_files import Report
from specbench.harness.spec.table_records import Ablation, AblationRow, RecipeRecord, RecipeRow
from specbench.harness.store.purpose import Purpose
from specbench.harness.store.run_directory import RunDirectory
from specbench.reports.run.ablation_table import ablation_table
from specbench.reports.run.arm_columns import change, speedup_text
from specbench.reports.run.document import markdown_report, run_document
from specbench.reports.run.json_report import json_report
from specbench.reports.run.recipe_table import recipe_table
from specbench.reports.run.view import RunView, view_run

ACCEPTED = [4, 0, 2, 1, 3, 0]
ROUND_MS = {"slow": 10.0, "fast": 8.0, "other slow": 20.0, "other fast": 10.0}


def run_of(folder, rounds_ms: dict[str, float], sampling=SAMPLING, **purpose) -> RunDirectory:
    run = RunDirectory.create(folder, "x", begun(*rounds_ms, sampling=sampling, purpose=Purpose(**purpose)))
    for repeat in range(2):
        for label, round_ms in rounds_ms.items():
            run.append(label, repeat, **chain_block(ACCEPTED, round_ms=round_ms))
    return run


def recipe(rows: list[RecipeRow], **report) -> RecipeRecord:
    whole = Report(**{"title": "a title", "notes": ("one difference",), "claim": {"source": "PR 1"}, **report})
    return RecipeRecord(name="mine", sha256="0" * 64, report=whole, rows=tuple(rows), notes=("shared",))


def row(label: str, **more) -> RecipeRow:
    return RecipeRow(**{"name": label, "label": label, **more})


@pytest.fixture
def view(tmp_path) -> RunView:
    rows = [
        row("slow", baseline=True),
        row("fast", claim={"tps": 530}),
        row("other slow", baseline=True),
        row("other fast"),
    ]
    columns = ["tps", "factor", "tpot_ms", "tpot_delta", "claim:tps", "claim:speed-up", "rows", "draft_rows"]
    return view_run(run_of(tmp_path, ROUND_MS, recipe=recipe(rows, columns=columns), acceptance="measured so"))


def cells(view: RunView) -> dict[str, dict[str, str]]:
    table = recipe_table(view)
    return {row[0]: dict(zip(table.headers, row, strict=True)) for row in table.rows}


def test_each_row_is_compared_with_the_nearest_baseline_above(view):
    found = cells(view)
    # TPOT is proportional to the duration of a round: 8 / 10 and 10 / 20.
    assert found["fast"]["TPOT change [95% CI]"] == "-20.0% [-20.0%, -20.0%]"
    assert found["other fast"]["TPOT change [95% CI]"] == "-50.0% [-50.0%, -50.0%]"
    for name in ("slow", "other slow"):
        assert found[name]["TPOT change [95% CI]"] == "baseline" and found[name]["speed-up"] == "1.00x"
    arms = {arm.label: arm for arm in view.arms}
    assert found["fast"]["speed-up"] == f"{arms['fast'].median('tps') / arms['slow'].median('tps'):.2f}x"
    assert float(found["other fast"]["speed-up"][:-1]) > 1.5


def test_claims_stand_in_columns_that_have_any(view):
    found = cells(view)
    assert found["fast"]["claimed TPS"] == "530" and found["slow"]["claimed TPS"] == "-"
    assert "claimed speed-up" not in recipe_table(view).headers


def test_notes_say_what_differs_from_the_claim(view):
    notes = recipe_table(view).notes
    assert notes[0] == "claimed: PR 1" and {"measured so", "shared", "one difference"} <= set(notes)


def test_failed_and_synthetic_arms_say_so_beside_their_name(tmp_path):
    run = RunDirectory.create(tmp_path, "x", begun("a", "b", purpose=Purpose(recipe=recipe([row("a"), row("b")]))))
    run.append("a", 0, **chain_block(ACCEPTED))
    run.describe_arm("a", notes=["synthetic acceptance (2.0)"])
    run.fail_blocks([("b", 0)], "boom")
    rows = recipe_table(view_run(run)).rows
    assert [row[0] for row in rows] == ["a (synthetic)", "b (failed)"] and set(rows[1][1:-1]) == {"-"}


def test_rows_may_share_an_arm(tmp_path):
    rows = [row("slow", baseline=True), row("slow", name="the same again")]
    table = recipe_table(view_run(run_of(tmp_path, {"slow": 10.0}, recipe=recipe(rows))))
    assert [row[0] for row in table.rows] == ["slow", "the same again"] and table.rows[0][1:] == table.rows[1][1:]


def test_every_report_holds_the_table(view):
    first, second = run_document(view).sections[0].tables[:2]
    assert [first.title, second.title] == ["", "a title"], "the comparison itself stays as it is"
    assert "## a title\n\n| arm |" in markdown_report(view)
    (table,) = json_report(view)["tables"]
    assert table["title"] == "a title" and len(table["rows"]) == 4


def factors(*rows: tuple[str, str, str | None, str]) -> Ablation:
    described = [AblationRow(switch=s, value=v, label=label, refused=refused) for s, v, label, refused in rows]
    return Ablation(base="mine", summary="as before", rows=tuple(described))


ROWS = factors(("base", "mine", "slow", ""), ("sync", "none", None, "needs padded"), ("sync", "single", "fast", ""))


def test_one_thing_at_a_time(tmp_path):
    table = ablation_table([view_run(run_of(tmp_path, {"slow": 10.0, "fast": 8.0}, ablation=ROWS))])
    base, refused, single = (dict(zip(table.headers, row, strict=True)) for row in table.rows)
    assert base["TPOT change [95% CI]"] == "baseline" and base["speed-up"] == "1.00x"
    assert refused["marks"] == "refused: needs padded" and refused["TPS"] == "-"
    assert single["TPOT change [95% CI]"].startswith("-20.0%") and single["round change"] == "-20.0%"


def test_batch_sizes_stand_below_each_other_and_a_refusal_once(tmp_path):
    views = []
    for size, factor_ms in ((1, 1.0), (8, 2.0)):
        rounds = {"slow": 10.0 * factor_ms, "fast": 8.0}
        sampling = replace(SAMPLING, max_concurrency=size)
        views.append(view_run(run_of(tmp_path, rounds, sampling, ablation=ROWS)))
    rows = [row[:5] for row in ablation_table(views).rows]
    assert [(row[0], row[1], row[2]) for row in rows] == [
        ("base", "mine", "1"),
        ("base", "mine", "8"),
        ("sync", "none", "-"),
        ("sync", "single", "1"),
        ("sync", "single", "8"),
    ]
    assert rows[3][4].startswith("-20.0%") and rows[4][4].startswith("-60.0%"), "each against its own base"


def test_runs_of_another_kind_have_no_such_tables(tmp_path):
    view = view_run(run_of(tmp_path, {"slow": 10.0}))
    assert recipe_table(view) is None and ablation_table([view]) is None and ablation_table([]) is None
    assert json_report(view)["tables"] == []


def test_ratios_as_text():
    assert (
        speedup_text(Ratio(ratio=1.138, min=1.13, max=1.15), False) == "1.14x (1.13 to 1.15)"
        and speedup_text(None, False) == "-"
    )
    assert speedup_text(Ratio(ratio=1.2, min=1.2, max=1.2), False) == "1.20x" and speedup_text(None, True) == "1.00x"
    assert change(Ratio(ratio=0.975, min=0.97, max=0.99)) == "-2.5% (-3.0% to -1.0%)" and change(None) == "-"
