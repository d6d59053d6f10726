"""The site as files: what is written, what is escaped, what is refused, and how long it takes."""

from __future__ import annotations

import errno
import hashlib
import json
import re
import shlex
import shutil
from dataclasses import replace
from html import unescape
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from run_samples import sample_run
from site_samples import (
    EAGLE,
    HOSTILE,
    MAX_PAGE_BYTES,
    add_certificate,
    add_scores,
    add_trace,
    broken_runs,
    copied,
    experiment_run,
    finished_run,
    whole_sample,
)
from toy.split_runs import CONFIG
from typer.main import get_command
from typer.testing import CliRunner

from specbench.harness.cli.main import app
from specbench.harness.store.files import write_parquet
from specbench.harness.store.lock_file import LOCK_FILE
from specbench.harness.store.run_directory import RunDirectory
from specbench.reports.run.view import view_run
from specbench.reports.site import render
from specbench.reports.site.build import MARKER, build_site
from specbench.reports.site.find import find_runs
from specbench.reports.site.render import inline_json
from specbench.reports.site.runs import read_site_runs

VENDOR = Path(render.__file__).parent / "vendor"
BEGAN = "2026-02-01T00:00:00Z"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """(the folder of runs, the site built of it)"""
    folder = tmp_path_factory.mktemp("site")
    runs = whole_sample(folder)
    broken = broken_runs(runs, next(runs.glob("*-copy-*")))
    return runs, build_site([runs], folder / "site", title="It's <b>ours</b>"), broken


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return finished_run(tmp_path_factory.mktemp("one"), started=BEGAN, sha="a" * 40)


def text(made, path="index.html"):
    """What a page holds, without the places where long names may fold."""
    return (made[1].index.parent / path).read_text(encoding="utf-8").replace("<wbr>", "")


def test_the_vendored_scripts_are_those_that_were_published():
    rows = re.findall(r"\| (\S+\.min\.js) \| \S+ \| \S+ \| ([0-9a-f]{64}) \|", (VENDOR / "README.md").read_text())
    assert {name for name, _ in rows} == {path.name for path in VENDOR.glob("*.js")} and len(rows) == 3
    for name, digest in rows:
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == digest
        licence = (VENDOR / name.replace(".min.js", ".LICENSE")).read_text()
        assert "Redistribution and use in source and binary forms" in licence


def test_every_page_and_asset_is_there_and_scripts_are_not_repeated(made):
    site = made[1].index.parent
    pages = {"index", "compare", "crossover", "acceptance", "anatomy", "accuracy", "history"}
    assert {path.stem for path in site.glob("*.html")} == pages
    assert len(list((site / "runs").glob("*.html"))) == made[1].num_runs == 28
    assert len(list(site.rglob("vega.min.js"))) == 1
    assert max(path.stat().st_size for path in site.rglob("*.html")) < MAX_PAGE_BYTES


def test_every_link_leads_somewhere_and_nothing_to_the_network(made):
    site = made[1].index.parent
    for page in site.rglob("*.html"):
        html = page.read_text(encoding="utf-8")
        assert not re.search(r"""(?:src|href)=["']?(?:https?:)?//""", html)
        assert not re.search(r"<[^>]+\son[a-z]+\s*=", html), "inline event handler"
        for link in re.findall(r'(?:src|href)="([^"#]+)"', html):
            assert link.startswith("data:") or (page.parent / link).is_file(), (page.name, link)


def test_labels_and_titles_are_escaped_wherever_they_stand(made):
    for path in made[1].index.parent.rglob("*.html"):
        html = path.read_text(encoding="utf-8")
        assert "<img" not in html and "<b>ours" not in html, path.name
    assert "\\u003c/script\\u003e\\u003cimg" in text(made, "crossover.html")
    assert "It&#39;s &lt;b&gt;ours&lt;/b&gt;" in text(made)


def test_inlined_json_is_the_same_json():
    value = {"a": "</script><!-- & \u2028 é", "b": [1, None]}
    assert json.loads(inline_json(value)) == value and not set("<>&\u2028") & set(inline_json(value))
    with pytest.raises(ValueError):
        inline_json(float("nan"))


def test_broken_runs_are_named_with_their_reason_and_nothing_else_is_lost(made):
    runs, built, broken = made
    reasons = {problem.path: problem.reason for problem in built.problems}
    assert {Path(path).name for path in reasons} == {path.name for path in broken.values()}
    by_name = {what: next(r for p, r in reasons.items() if Path(p).name == path.name) for what, path in broken.items()}
    assert "no run.json" in by_name["no manifest"] and "damaged" in by_name["half a manifest"]
    assert "specbench.run/9" in by_name["other schema"] and "`arms`" in by_name["no arms"]
    assert (
        "steps.parquet: damaged" in by_name["half a table"] and "results.arms[0]" in by_name["results of another shape"]
    )
    for path in broken.values():
        assert path.name in text(made)
    assert built.num_runs == len(list(runs.iterdir())) - len(broken)


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, '{"arms": 5}', '{"schema": "specbench.run/2", "label": "\\udfff"}'],
    ids=["deep", "arms", "half a pair"],
)
def test_a_hostile_run_does_not_take_the_site_with_it(run, tmp_path, text):
    copy = copied(run, tmp_path / "runs", 1, started=BEGAN, sha="b" * 40)
    (copy / "run.json").write_text(text)
    built = build_site([run, copy], tmp_path / "site")
    (problem,) = built.problems
    assert built.num_runs == 1 and problem.path == str(copy) and "run.json" in problem.reason


def test_damaged_scores_do_not_take_the_run_with_them(run, tmp_path):
    copy = copied(run, tmp_path, 1, started=BEGAN, sha="b" * 40)
    add_scores(copy)
    (copy / "accuracy.parquet").write_bytes(b"PAR1")
    built = build_site([copy], tmp_path / "site")
    assert built.num_runs == 1 and built.problems == ()
    assert "the scores cannot be read" in (tmp_path / "site" / "accuracy.html").read_text()


def test_two_runs_of_one_id_are_both_shown_and_said(run, tmp_path):
    for name in ("a", "b"):
        shutil.copytree(run, tmp_path / name / run.name)
    runs, problems = read_site_runs([tmp_path / "a" / run.name, tmp_path / "b" / run.name])
    assert len({one.page for one in runs}) == 2 and "both are shown" in problems[0].reason


def test_scores_of_arms_are_suggested_only_if_their_labels_can_be_typed(run, tmp_path):
    for strategy, is_suggested in (("eagle", True), ("vllm/eagle", False)):
        copy = RunDirectory.open(copied(run, tmp_path / strategy.replace("/", "-"), 1, started=BEGAN, sha="b" * 40))
        arms = [replace(a, strategy=strategy) if a.strategy == "eagle" else a for a in copy.record.arms]
        copy.put(replace(copy.record, arms=tuple(arms)))
        build_site([copy.path], tmp_path / "site")
        said = (tmp_path / "site" / "accuracy.html").read_text()
        assert "specbench certify --run" in said and ("specbench accuracy" in said) == is_suggested


def test_stored_figures_are_those_of_the_raw_tables(run):
    (found,), _ = read_site_runs([run])
    derived = view_run(run)
    assert found.arms == derived.arms
    assert {key: figures.values["tps"] for key, figures in found.blocks.items()} == {
        key: figures.values["tps"] for key, figures in derived.blocks.items()
    }


def test_tables_that_were_changed_are_derived_anew(run, tmp_path):
    copy = copied(run, tmp_path, 1, started=BEGAN, sha="b" * 40, scale=2.0)
    (believed,), _ = read_site_runs([copy])
    requests = copy / "requests.parquet"
    write_parquet(requests, pq.read_table(requests).take(list(range(24))[::-1]))
    raw = json.loads((copy / "run.json").read_text())
    raw["results"]["arms"][0]["spreads"]["tps"]["median"], raw["results_sha256"] = 1.0, None
    (copy / "run.json").write_text(json.dumps(raw))
    (derived,), _ = read_site_runs([copy])
    assert derived.arms[0].median("tps") == pytest.approx(believed.arms[0].median("tps"))


def test_an_unfinished_run_is_shown_as_such(tmp_path):
    run = sample_run(tmp_path / "runs")
    built = build_site([tmp_path / "runs"], tmp_path / "site")
    page = (tmp_path / "site" / "runs" / f"{run.path.name}.html").read_text()
    assert built.num_runs == 1 and "The run is not complete (status running)" in page
    assert "naive-eagle: failed: RuntimeError" in page
    run.put(replace(run.record, config=CONFIG))
    (run.path / LOCK_FILE).touch()  # as a killed process leaves it
    build_site([tmp_path / "runs"], tmp_path / "site")
    page = unescape((tmp_path / "site" / "runs" / f"{run.path.name}.html").read_text())
    again = f"specbench run --resume {run.path}"
    assert f"(status interrupted: 0 of {CONFIG.num_repeats} repeats; continue with `{again}`)" in page


def test_a_page_of_traces_leads_back_to_its_run_and_to_the_overview(run, tmp_path):
    copy = copied(run, tmp_path / "runs", 1, started=BEGAN, sha="b" * 40)
    add_trace(copy)
    build_site([copy], tmp_path / "site")
    file = tmp_path / "site" / "profiles" / f"{copy.name}.html"
    hrefs = re.findall(r'<a href="([^"#]+)"', file.read_text())
    assert [(file.parent / href).resolve() for href in hrefs] == [
        (tmp_path / "site" / page).resolve() for page in ("index.html", f"runs/{copy.name}.html")
    ]
    assert all((file.parent / href).is_file() for href in hrefs)


@pytest.mark.parametrize("ok", [True, False])
def test_a_certificate_begins_with_its_answer(run, tmp_path, ok):
    copy = copied(run, tmp_path / "runs", 1, started=BEGAN, sha="b" * 40)
    add_certificate(copy, ok=ok)
    build_site([copy], tmp_path / "site")
    answer = "Lossless: 2 of 2 arms passed." if ok else "NOT LOSSLESS: 1 of 2 arms passed; failed: "
    worst = "Worst regret: 0.001 logits" if ok else "Worst regret: 3.2 logits"
    apart = "0 of 16 outputs differ" if ok else "3 of 16 outputs differ from no-spec&#39;s; at their first differing"
    for page in ("accuracy.html", f"runs/{copy.name}.html"):
        text = re.split("<h2[^>]*>Losslessness", (tmp_path / "site" / page).read_text())[1]
        places = [text.find(words) for words in (answer, worst, apart, "<table", "exact: outputs identical")]
        assert -1 not in places and places == sorted(places), page


def test_a_failed_certificate_is_said_everywhere(run, tmp_path):
    copy = copied(run, tmp_path / "runs", 1, started=BEGAN, sha="b" * 40)
    add_certificate(copy, ok=False)
    build_site([copy], tmp_path / "site")
    for page in ("index.html", "accuracy.html", f"runs/{copy.name}.html", "compare.html"):
        assert "NOT LOSSLESS" in (tmp_path / "site" / page).read_text(), page
    marks = {arm.label: arm.marks for arm in read_site_runs([copy])[0][0].arms}
    assert marks[EAGLE] == () and marks[HOSTILE][0].startswith("NOT LOSSLESS")


def test_verdict_cards_say_the_verdict_in_words(tmp_path):
    experiment_run(tmp_path / "runs", change=-0.03)
    build_site([tmp_path / "runs"], tmp_path / "site")
    html = (tmp_path / "site" / "compare.html").read_text()
    assert "▲ improved" in html and "B eagle:k=4 against A eagle:k=2" in html and "p (Holm)" in html


def test_an_experiment_without_a_verdict_says_so(tmp_path):
    path = experiment_run(tmp_path / "runs")
    (path / "ab.json").unlink()
    build_site([path], tmp_path / "site")
    assert "Not judged yet: specbench ab --resume" in (tmp_path / "site" / "runs" / f"{path.name}.html").read_text()
    (path / "ab.json").write_text('{"schema": "specbench.ab/9"}')
    assert "specbench.ab/9" in read_site_runs([path])[1][0].reason


def test_a_site_is_replaced_and_pages_of_runs_that_are_gone_go(run, tmp_path):
    first, second = (copied(run, tmp_path / "runs", n, started=BEGAN, sha="b" * 40) for n in (1, 2))
    build_site([tmp_path / "runs"], tmp_path / "site")
    (tmp_path / "site" / "CNAME").write_text("mine")
    shutil.rmtree(second)
    build_site([tmp_path / "runs"], tmp_path / "site")
    left = {path.stem for path in (tmp_path / "site" / "runs").iterdir()}
    assert left == {first.name} and (tmp_path / "site" / "CNAME").exists()


def test_a_site_that_met_a_full_disk_is_built_again(run, tmp_path, monkeypatch):
    def fill(file, content, **kept):
        write(file, content[:9] if MARKER in file.name else content, **kept)
        if MARKER in file.name:
            raise OSError(errno.ENOSPC, "No space left on device")

    write = Path.write_text
    build_site([run], tmp_path)
    with monkeypatch.context() as full, pytest.raises(OSError, match="No space left"):
        full.setattr(Path, "write_text", fill)
        build_site([run], tmp_path)
    assert build_site([run], tmp_path).num_runs == 1


def test_what_is_no_site_is_not_written_into(run, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="something other than a site"):
        build_site([run], tmp_path)
    assert list(tmp_path.iterdir()) == [tmp_path / "notes.txt"]


def test_folders_of_runs_are_looked_into(run, tmp_path):
    copied(run, tmp_path / "history" / "runs", 1, started=BEGAN, sha="b" * 40)
    found, problems = find_runs([run, run / "run.json", tmp_path / "history", tmp_path / "missing"])
    assert len(found) == 2 and [p.reason for p in problems] == [f"{tmp_path / 'missing'}: there is no such directory"]


def test_a_folder_whose_name_is_not_utf8_does_not_stop_the_others(run, tmp_path):
    copied(run, tmp_path / "runs", 1, started=BEGAN, sha="b" * 40)
    shutil.copytree(run, tmp_path / "runs" / "\udcff")
    built = build_site([tmp_path / "runs"], tmp_path / "site")
    assert built.num_runs == 1
    (problem,) = built.problems
    assert problem.path == f"{tmp_path}/runs/\\udcff" and "is not UTF-8" in problem.reason


def test_pictures_from_the_same_values(run, tmp_path):
    copied(run, tmp_path / "runs", 1, started="2026-02-02T00:00:00Z", sha="b" * 40)
    experiment_run(tmp_path / "runs", change=0.03)
    finished_run(tmp_path / "runs", started=BEGAN, concurrency=8)
    built = build_site([run, tmp_path / "runs"], tmp_path / "site", ("png", "pdf"))
    pngs = [path for path in built.files if path.suffix == ".png"]
    assert all(path.read_bytes()[:4] == b"\x89PNG" for path in pngs)
    assert all(path.with_suffix(".pdf").read_bytes()[:4] == b"%PDF" for path in pngs)
    kinds = {re.sub(r"-\d+", "", path.stem) for path in pngs}
    assert {"compare-verdict", "compare-pairs", "crossover-crossover", "acceptance-positions"} <= kinds
    assert {"acceptance-histogram", "anatomy-phases", "history-history-step-ms"} <= kinds


def _check_parses(text):
    """Raises what the command line raises for these words, without running them."""
    command, words, context = get_command(app), shlex.split(text)[1:], None
    while hasattr(command, "resolve_command"):
        context = command.make_context(command.name, words, parent=context)
        name, command, words = command.resolve_command(context, [*context._protected_args, *context.args])
    command.make_context(name, words, parent=context)


def test_commands_on_pages_can_be_run_as_they_stand(made, run, tmp_path):
    bare = build_site([run], tmp_path / "site").index.parent
    found = []
    for page in (*bare.rglob("*.html"), *made[1].index.parent.rglob("*.html")):
        found += re.findall(r"<code>(specbench .*?)</code>", page.read_text(encoding="utf-8"), re.DOTALL)
    for text in (unescape(one) for one in found):
        _check_parses(text)
    told = {shlex.split(unescape(text))[1] for text in found}
    assert {"run", "compare", "certify", "accuracy"} <= told
    with pytest.raises(Exception, match="unexpected extra argument"):
        _check_parses("specbench certify RUN")


def test_the_command(run, tmp_path):
    result = CliRunner().invoke(app, ["report", str(run), str(tmp_path / "none"), "-o", str(tmp_path / "site")])
    assert result.exit_code == 0 and result.stdout == f"{tmp_path / 'site' / 'index.html'}\n"
    assert "there is no such directory" in result.stderr and "1 runs" in result.stderr
    refused = CliRunner().invoke(app, ["report", str(run), "-o", str(tmp_path / "x"), "--format", "svg"])
    assert refused.exit_code == 2 and "allowed: html, png, pdf" in refused.stderr and not (tmp_path / "x").exists()
    nothing = CliRunner().invoke(app, ["report", str(tmp_path / "none"), "-o", str(tmp_path / "y")])
    assert nothing.exit_code == 2 and "none of those given can be read" in nothing.stderr
