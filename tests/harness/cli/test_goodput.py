"""`--goodput`: of a run that is measured, and of stored ones; nothing of it where it is not asked for."""

from __future__ import annotations

import json

import pytest
from run_samples import sample_run
from sweep_samples import LOADS, stored_sweep

ASKED = ("--goodput", "ttft:20", "tpot:4.2")


def test_a_run_shows_what_kept_the_limits(cli, toy, only_run):
    done = cli(*toy, "-s", "no-spec", "--goodput", "ttft:100000", "e2el:100000", "--quiet")
    assert done.exit_code == 0, done.stderr
    run = only_run()
    assert "goodput requests/s (share)" in done.stdout and "(100%)" in done.stdout
    assert "kept ttft <= 100000 ms, e2el <= 100000 ms" in done.stdout
    stored = json.loads((run.path / "report.json").read_text())
    (arm,) = stored["arms"]
    assert arm["spreads"]["goodput.share"]["median"] == 1
    per_s = [arm["spreads"][name]["median"] for name in ("goodput.requests_per_s", "requests_per_s")]
    assert per_s[0] == pytest.approx(per_s[1])
    plain = cli("show", run.path).stdout + cli("show", run.path, "--format", "json").stdout
    assert "goodput requests" not in plain and "goodput.share" not in plain and "goodput_slos" not in plain
    none = cli("show", run.path, "--goodput", "ttft:0.000001").stdout
    assert "0 (0%)" in none


@pytest.mark.parametrize("command", ["run", "sweep"])
@pytest.mark.parametrize("word", ["itl:5", "ttft:fast"])
def test_what_is_no_limit_is_refused_before_anything_is_measured(cli, toy, runs, command, word):
    done = cli(command, *toy[1:], "--goodput", word)
    assert done.exit_code == 2 and "goodput: " in done.stderr and "ttft" in done.stderr
    assert not runs.exists()


def test_it_is_derived_from_stored_rows(cli, tmp_path):
    run = sample_run(tmp_path)
    shown = cli("show", run.path, *ASKED)
    assert "(75%)" in shown.stdout and "(0%)" in shown.stdout
    report = json.loads(cli("show", *ASKED, run.path, "--format", "json").stdout)
    assert report["goodput_slos_ms"] == {"ttft": 20.0, "tpot": 4.2}
    shares = {(block["arm"], block["repeat"]): block["goodput"]["share"] for block in report["blocks"]}
    assert shares == {
        (arm["label"], n): 0.75 * arm["label"].startswith("eagle") for arm in report["arms"][:2] for n in (0, 1)
    }
    assert "goodput" in cli("show", run.path, *ASKED, "--format", "md").stdout
    assert cli("show", run.path, "--goodput", "ttft:20", "latency:5").exit_code == 2


def test_a_sweep_has_it_by_load(cli, tmp_path):
    sweep = stored_sweep(tmp_path)
    _, _, table = cli("show", sweep.path, *ASKED).stdout.partition("Goodput (requests/s) by concurrency")
    assert "10.31 (75%)" in table and "kept ttft <= 20 ms, tpot <= 4.2 ms" in table
    assert "Goodput" not in cli("show", sweep.path).stdout
    record = json.loads(cli("show", sweep.path, *ASKED, "--format", "json").stdout)
    for arm in record["arms"]:
        for n, cell in enumerate(arm["points"]):
            run = sweep.runs()[LOADS[n]].path
            alone = json.loads(cli("show", run, *ASKED, "--format", "json").stdout)["arms"]
            (own,) = (each["spreads"] for each in alone if each["label"] == arm["label"])
            assert cell["goodput"]["share"] == own["goodput.share"]["median"]
            assert cell["goodput"]["requests_per_s"] == own["goodput.requests_per_s"]["median"]


def test_the_site_shows_it_where_it_is_asked_for(cli, tmp_path):
    sweep = stored_sweep(tmp_path / "runs")
    for words, is_there in ((ASKED, True), ((), False)):
        built = cli("report", tmp_path / "runs", "-o", tmp_path / "site", *words)
        assert built.exit_code == 0, built.stderr
        pages = [tmp_path / "site" / "crossover.html", *(tmp_path / "site" / "runs").glob("*.html")]
        assert len(pages) == 1 + len(LOADS)
        for page in pages:
            assert ("kept ttft &lt;= 20 ms, tpot &lt;= 4.2 ms" in page.read_text()) == is_there, page
    assert sweep.record.status == "complete"
