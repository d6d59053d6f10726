"""Runs and sites that name files outside of their directory, or link to them: said by name, and not followed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from site_samples import add_scores, copied, finished_run

from specbench.harness.store.run_directory import RunDirectory
from specbench.reports.site.build import build_site
from specbench.reports.site.find import find_runs

BEGAN = "2026-02-01T00:00:00Z"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return finished_run(tmp_path_factory.mktemp("one"), started=BEGAN, sha="a" * 40)


def edited(run: Path, folder: Path, **entries) -> Path:
    copy = copied(run, folder, 1, started=BEGAN, sha="b" * 40)
    raw = json.loads((copy / "run.json").read_text())
    (copy / "run.json").write_text(json.dumps({**raw, **entries}))
    return copy


def test_a_run_id_becomes_a_file_name_and_text(run, tmp_path):
    copy = edited(run, tmp_path / "runs", run_id='evil"><script>')
    build_site([copy], tmp_path / "site")
    (page,) = (tmp_path / "site" / "runs").iterdir()
    assert page.name == "evil-script.html" and '<script>"' not in page.read_text()
    assert 'evil"><script>' not in page.read_text()


def test_pages_do_not_show_the_way_to_the_current_folder(run, tmp_path, monkeypatch):
    copied(run, tmp_path / "runs", 1, started=BEGAN, sha="b" * 40)
    monkeypatch.chdir(tmp_path)
    build_site([Path("runs")], Path("site"))
    assert not any(str(tmp_path) in page.read_text() for page in Path("site").rglob("*.html"))


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"run_id": '../../../evil"><script>'}, "run_id: '../../../evil\"><script>' is not allowed"),
        ({"run_id": "/tmp/evil"}, "run_id: '/tmp/evil' is not allowed"),
        ({"files": {"../../etc/passwd": "0"}}, "files: '../../etc/passwd' is not allowed"),
        ({"files": {"/etc/shadow": "0"}}, "files: '/etc/shadow' is not allowed"),
    ],
)
def test_a_run_that_leads_out_of_its_directory_is_named_and_left_out(run, tmp_path, entries, message):
    copy = edited(run, tmp_path / "runs", **entries)
    built = build_site([run, copy], tmp_path / "site")
    (problem,) = built.problems
    assert built.num_runs == 1 and problem.path == str(copy) and message in problem.reason
    assert all((tmp_path / "site").resolve() in path.resolve().parents for path in built.files)
    assert "root:" not in "".join(path.read_text() for path in (tmp_path / "site").rglob("*.html"))


@pytest.mark.parametrize("items", ["../elsewhere", "/elsewhere"])
def test_items_of_an_evaluation_that_lie_elsewhere_are_not_read(run, tmp_path, items):
    copied(run, tmp_path, 2, started=BEGAN, sha="c" * 40).rename(tmp_path / "elsewhere")
    given = str(tmp_path / "elsewhere") if items.startswith("/") else items
    scored = RunDirectory.open(copied(run, tmp_path / "runs", 1, started=BEGAN, sha="b" * 40))
    add_scores(scored.path)
    record = RunDirectory.open(scored.path).record
    evaluation = replace(record.purpose.evaluation, items=given)
    scored.put(replace(record, purpose=replace(record.purpose, evaluation=evaluation)))
    built = build_site([scored.path], tmp_path / "site")
    said = (tmp_path / "site" / "accuracy.html").read_text()
    assert built.num_runs == 1 and "evaluation.items" in said and "is not allowed" in said


def test_links_in_a_run_and_to_a_run_are_named_and_not_followed(run, tmp_path):
    folder = tmp_path / "runs"
    good = copied(run, folder, 1, started=BEGAN, sha="b" * 40)
    bad = copied(run, folder, 2, started=BEGAN, sha="c" * 40)
    (bad / "plots").mkdir(exist_ok=True)
    (bad / "plots" / "etc").symlink_to("/etc")
    (folder / "linked").symlink_to(run)
    built = build_site([folder], tmp_path / "site")
    reasons = {Path(p.path).name: p.reason for p in built.problems}
    assert built.num_runs == 1 and (tmp_path / "site" / "runs" / f"{good.name}.html").is_file()
    assert reasons == {
        "linked": f"{folder}/linked: is a symbolic link, which is never followed",
        bad.name: f"{bad}/plots/etc: is a symbolic link, which is never followed; replace it with its target",
    }


def test_runs_behind_a_linked_folder_are_not_found(run, tmp_path):
    copied(run, tmp_path / "away", 1, started=BEGAN, sha="b" * 40)
    (tmp_path / "history").mkdir()
    (tmp_path / "history" / "runs").symlink_to(tmp_path / "away")
    found, problems = find_runs([tmp_path / "history"])
    assert found == [] and [p.reason.rpartition("/")[2] for p in problems] == [
        "runs: is a symbolic link, which is never followed"
    ]


def test_a_site_with_links_or_names_outside_is_not_built_over(run, tmp_path):
    away = tmp_path / "precious.html"
    away.write_text("mine")
    site = build_site([run], tmp_path / "site").index.parent
    marker = json.loads((site / "site.json").read_text())
    (site / "site.json").write_text(json.dumps({**marker, "files": ["../precious.html"]}))
    with pytest.raises(ValueError, match="site.json: files: '../precious.html' is not allowed"):
        build_site([run], site)
    (site / "site.json").write_text(json.dumps(marker))
    (site / "index.html").unlink()
    (site / "index.html").symlink_to(away)
    with pytest.raises(ValueError, match="index.html: is a symbolic link"):
        build_site([run], site)
    assert away.read_text() == "mine"
