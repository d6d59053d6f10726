"""The page of a run: blocks of an experiment, distributions, what changed since the previous run, files and hashes."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from run_samples import request, step
from site_samples import ARMS, EAGLE, HOSTILE, copied, experiment_run, finished_run

from specbench.harness.metrics.latency import tpot_by_request_ms
from specbench.harness.spec.arm import ArmConfig
from specbench.harness.spec.conditions import RunConfig
from specbench.harness.store.run_directory import RunDirectory
from specbench.reports.charts.chart import Styles
from specbench.reports.site.build import build_site
from specbench.reports.site.changes import difference_table
from specbench.reports.site.distributions import distribution_charts, length_frame, tpot_frame
from specbench.reports.site.experiment_blocks import blocks_table
from specbench.reports.site.raw_files import files_table
from specbench.reports.site.run_page import run_page
from specbench.reports.site.runs import read_site_runs
from specbench.reports.site.verdict_charts import interval_frame
from specbench.reports.site.verdict_claim import caution
from specbench.workloads.assets.cache import read_sha256

BEGAN = "2026-02-01T00:00:00Z"
REASONS = {("A", 2): ["load average 3.1 above 2"], ("B", 5): ["throttled: <thermal>"]}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return finished_run(tmp_path_factory.mktemp("one"), started=BEGAN, sha="a" * 40)


def read(path):
    return read_site_runs([path])[0][0]


def test_blocks_say_their_order_their_figures_and_why_one_is_rejected(tmp_path):
    run = read(experiment_run(tmp_path, change=0.03, reasons=REASONS, failed=[("B", 7)]))
    table = blocks_table(run)
    rows = [dict(zip(table.headers, map(str, row), strict=True)) for row in table.rows]
    assert [row["order"] for row in rows] == ["".join(pair) for pair in run.ab.plan.order()] and len(rows) == 10
    why = {row["block"]: row["rejected because"] for row in rows if row["counts"] == "rejected"}
    assert why["3"] == "A: load average 3.1 above 2" and why["6"] == "B: throttled: <thermal>"
    assert why["8"].startswith("B: failed: RuntimeError") and len(why) == 3
    step = next(c for c in run.ab.metrics if c.metric.name == "step time")
    kept = [(float(r["step time ms A"]), float(r["step time ms B"])) for r in rows if r["counts"] == "yes"]
    assert np.array(kept) == pytest.approx(np.array(step.pairs), rel=1e-3) and len(kept) == 7
    assert rows[7]["step time ms A"] != "-" and rows[7]["step time ms B"] == rows[7]["step time change"] == "-"
    assert rows[0]["load A / B"] == "1.25 / 1.25" and rows[0]["step time change"].startswith("+")


def test_an_invalid_experiment_has_no_verdict_in_its_chart(tmp_path):
    run = read(experiment_run(tmp_path, change=0.03, reasons=REASONS, failed=[("B", 7)]))
    assert run.ab.verdict == "invalid" and set(interval_frame(run.ab)["verdict"]) == {"invalid"}
    assert "are not verdicts" in caution(run.ab)[0]
    assert caution(read(experiment_run(tmp_path, change=0.03)).ab) == ()


def test_an_experiments_page_has_its_verdict_blocks_and_distributions(tmp_path):
    run = read(experiment_run(tmp_path, change=0.03))
    page = run_page(run, None, None, Styles(), True)
    titles = [section.title for section in page.sections]
    later = ["Latency percentiles", "Against the roofline", "Distributions"]
    assert titles[:7] == ["Reproduce", "Verdict", "Blocks", "Figures", *later]
    drawn = [plot.name for section in page.sections for plot in section.charts]
    assert drawn == ["verdict-1", "pairs-1", "percentiles", "tpot", "lengths"]


def test_tpot_is_drawn_request_by_request(path):
    run, frames = read(path), RunDirectory.open(path).frames()
    frame = tpot_frame(run, frames)
    own = frame[frame["series"] == EAGLE]
    values = np.sort(tpot_by_request_ms(frames.requests[frames.requests["arm"] == EAGLE]))
    assert list(own["x"]) == pytest.approx(values) and len(values) == 8
    assert list(own["y"]) == pytest.approx(np.arange(1, 9) / 8) and set(frame["series"]) == set(ARMS)


def chosen(folder, lengths):
    """A run of one arm: `lengths[prompt]` are the accepted drafts of its rounds; prompts run one after the other."""
    run = RunDirectory.open(finished_run(folder, started=BEGAN))
    requests, steps, number = [], [], 0
    for i, accepted in enumerate(lengths):
        requests.append(request(i, first_ms=1, last_ms=100 + i, num_output_tokens=50))
        for j in accepted:
            steps.append(step(number, i, number, number + 1, k=4, j=j))
            number += 1
    again = RunDirectory.create(folder / "chosen", "chosen", replace(run.record, arms=run.record.arms[:1]))
    again.append("no-spec", 0, requests=requests, steps=steps, phases=[])
    return read(again.path), again.frames()


def test_percentiles_are_those_of_the_requests(path):
    """Also of a run that was stored before E2EL was a figure: derived anew."""
    run, requests = read(path), RunDirectory.open(path).frames().requests
    arms = tuple(replace(a, spreads={n: s for n, s in a.spreads.items() if "e2el" not in n}) for a in run.arms)
    older = replace(run, figures=replace(run.figures, arms=arms))
    for one in (run, older):
        (section,) = (s for s in run_page(one, None, None, Styles(), True).sections if s.title == "Latency percentiles")
        tables = {table.title: {row[0]: row[1:] for row in table.rows} for table in section.tables}
        assert list(tables) == ["TTFT ms", "ITL ms", "TPOT ms", "E2EL ms"]
        own = requests[requests["arm"] == EAGLE]
        e2el_ms = (own["t_last_ns"] - own["t_submit_ns"]) / 1e6
        by_repeat = [np.percentile(e2el_ms[own["repeat"] == n], [50, 90, 95, 99]) for n in (0, 1)]
        shown = [float(text) for text in tables["E2EL ms"][EAGLE]]
        assert shown == pytest.approx(np.median(by_repeat, axis=0), rel=1e-3)
        drawn = section.charts[0].frame
        drawn = drawn[(drawn["series"] == EAGLE) & (drawn["facet"] == "E2EL ms")]
        assert list(drawn["y"]) == pytest.approx(np.median(by_repeat, axis=0))


def test_unequal_outputs_are_explained_with_a_command(path):
    run = read(path)
    arms = tuple(replace(a, speedup=a.speedup and replace(a.speedup, same_output_rate=0.5)) for a in run.arms)
    unequal = replace(run, figures=replace(run.figures, arms=arms))
    equal = tuple(replace(a, speedup=a.speedup and replace(a.speedup, same_output_rate=1.0)) for a in run.arms)
    shown = [
        [s.commands[0].text for s in run_page(one, None, None, Styles(), False).sections if s.title == "Losslessness"]
        for one in (unequal, replace(run, figures=replace(run.figures, arms=equal)))
    ]
    assert shown == [[f"specbench certify --run {run.path}"], []]


def test_many_requests_are_drawn_as_quantiles(tmp_path):
    run, frames = chosen(tmp_path, [[1]] * 100)
    frame = tpot_frame(run, frames)
    assert len(frame) == 40 and frame["y"].iloc[-1] == 1 and frame["x"].iloc[-1] == pytest.approx(198 / 49)
    half = frame[frame["y"] == 0.5].iloc[0]
    assert half["x"] == pytest.approx(148 / 49)  # of the 50th of 100


def test_accepted_length_by_round_is_the_mean_over_prompts(tmp_path):
    run, frames = chosen(tmp_path, [[4, 0], [2, 0], [0, 0], [4, 0], [0], [2]])
    rows = {row.x: row for row in length_frame(run, frames).itertuples()}
    assert (rows[1].y, rows[1].note) == (pytest.approx(3.0), "round 1, 6 prompts")
    sd = np.std([5, 3, 1, 5, 1, 3], ddof=1)
    assert rows[1].high - rows[1].y == pytest.approx(2.570582 * sd / math.sqrt(6))
    assert rows[1].low >= 1 and rows[2].y == 1 and math.isnan(rows[2].low)  # four prompts give no interval


def test_long_answers_are_binned(tmp_path):
    run, frames = chosen(tmp_path, [[j % 2 for j in range(100)]] * 2)
    frame = length_frame(run, frames)
    assert list(frame["x"]) == list(range(1, 100, 5)) and frame["note"].iloc[-1] == "rounds 96 to 100, 2 prompts"
    assert frame["y"].between(1.4, 1.6).all()


def test_a_run_without_drafts_or_without_requests(tmp_path):
    run, frames = chosen(tmp_path, [])
    assert tpot_frame(run, frames).empty and length_frame(run, frames).empty
    assert distribution_charts(run, Styles()) == ()
    sections = {section.title: section for section in run_page(run, None, None, Styles(), True).sections}
    assert sections["Distributions"].sentences == ("No request was completed.",)
    sections = {section.title: section for section in run_page(run, None, None, Styles(), False).sections}
    assert "specbench report" in sections["Distributions"].sentences[0]


def test_what_differs_from_the_run_before(path, tmp_path):
    newer = copied(path, tmp_path, 1, started="2026-02-02T00:00:00Z", sha="b" * 40)
    raw = json.loads((newer / "run.json").read_text())
    raw["environment"]["software"]["python"] = "3.12"
    raw["environment"]["load_average"] = [9.0]
    raw["workload"]["sha256"] = "c" * 64
    (newer / "run.json").write_text(json.dumps(raw))
    directory = RunDirectory.open(newer)
    arms = (ArmConfig(label="no-spec", strategy="no-spec"),)
    config = RunConfig(arms=arms, dataset_name="random", num_repeats=5)
    directory.put(replace(directory.record, config=config))
    table = difference_table(read(newer), read(path))
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["git.sha"] == ("a" * 40, "b" * 40) and rows["software.python"] == ("3.11", "3.12")
    assert rows["workload.sha256"][1] == "c" * 16 + "..." and rows["config.num_repeats"][1] == "5"
    assert "arms" not in rows and not any("load_average" in name for name in rows)
    assert difference_table(read(path), read(path)) is None


def test_run_pages_lead_to_the_run_before_and_say_what_changed(path, tmp_path):
    older = copied(path, tmp_path / "runs", 1, started="2026-02-02T00:00:00Z", sha="b" * 40)
    newer = copied(path, tmp_path / "runs", 2, started="2026-02-03T00:00:00Z", sha="c" * 40)
    build_site([tmp_path / "runs"], tmp_path / "site")
    html = (tmp_path / "site" / "runs" / f"{newer.name}.html").read_text()
    assert "Changes since the previous run" in html and f'href="../runs/{older.name}.html"' in html
    assert "b" * 40 in html and "c" * 40 in html
    first = (tmp_path / "site" / "runs" / f"{older.name}.html").read_text()
    assert "No earlier run on this site" in first


@pytest.mark.parametrize(("before", "now", "is_said"), [(None, None, True), ("1a", "2b", True), ("1a", "1a", False)])
def test_local_changes_may_differ_unless_their_hashes_are_known_and_equal(path, tmp_path, before, now, is_said):
    made = []
    for n, changes in enumerate((before, now), start=1):
        made.append(copied(path, tmp_path / "runs", n, started=f"2026-02-0{n}T00:00:00Z", sha="b" * 40))
        file = made[-1] / "run.json"
        raw = json.loads(file.read_text())
        file.write_text(json.dumps({**raw, "git": {**raw["git"], "dirty": True, "changes": changes}}))
    build_site([tmp_path / "runs"], tmp_path / "site")
    html = (tmp_path / "site" / "runs" / f"{made[1].name}.html").read_text()
    assert ("the code may differ" in html) is is_said
    assert read(made[1]).commit == f"bbbbbbbbbbbb+{now or ''}"


def test_files_are_listed_with_their_hashes_and_checked(path, tmp_path):
    copy = copied(path, tmp_path, 1, started=BEGAN, sha="b" * 40)
    (copy / "notes.txt").write_text("mine")
    (copy / ".lock").write_text("")
    rows = {row[0]: row[1:] for row in files_table(read(copy)).rows}
    steps = copy / "steps.parquet"
    assert rows["steps.parquet"] == (f"{steps.stat().st_size:,}", read_sha256(steps), "as recorded")
    assert rows["notes.txt"] == ("4", read_sha256(copy / "notes.txt"), "not recorded there") and ".lock" not in rows
    (copy / "phases.parquet").unlink()
    run = read(path)
    moved = type(run)(**{**{f: getattr(run, f) for f in run.__dataclass_fields__}, "path": copy})
    steps.write_bytes(b"else")
    rows = {row[0]: row[-1] for row in files_table(moved).rows}
    assert rows["steps.parquet"] == "CHANGED since it was recorded" and rows["phases.parquet"] == "MISSING"


def test_hostile_labels_stay_text_in_every_new_table(path, tmp_path):
    older = copied(path, tmp_path / "runs", 1, started="2026-02-02T00:00:00Z", sha="b" * 40)
    copied(path, tmp_path / "runs", 2, started="2026-02-03T00:00:00Z", sha="c" * 40)
    raw = json.loads((older / "run.json").read_text())
    raw["environment"]["software"]["python"] = "(3<b>)[<img src=x onerror=alert(1)>]"
    (older / "run.json").write_text(json.dumps(raw))
    experiment_run(tmp_path / "runs", reasons={("A", 1): [HOSTILE]})
    build_site([tmp_path / "runs"], tmp_path / "site")
    for page in (tmp_path / "site").rglob("*.html"):
        html = page.read_text()
        assert "<img" not in html and "<b>" not in html, page.name


def test_the_roofline_stands_beside_the_figures_with_what_limits_or_why_it_is_not_known(path):
    (sweep,) = (Path(__file__).parents[3] / "benchmarks/runs/h200").glob("*-crossover-*")
    (stored,) = sweep.glob("runs/*-b32-*")
    page = run_page(read(stored), None, None, Styles(), True)
    sections = {section.title: section for section in page.sections}
    (table,) = sections["Against the roofline"].tables
    by_arm = {row[0]: dict(zip(table.headers, row, strict=True)) for row in table.rows}
    (arms, *_) = sections["Figures"].tables
    shown = dict(zip(arms.headers, arms.rows[0], strict=True))
    assert by_arm["no-spec"]["efficiency"] == "76%" and shown["of roofline"] == "76%, reading weights"
    assert any("measured: reads 4485 GB/s" in note for note in arms.notes)
    without = run_page(read(path), None, None, Styles(), True)
    (section,) = (section for section in without.sections if section.title == "Against the roofline")
    assert section.sentences[0].startswith("No roofline: the forward passes of its arms") and not section.tables
