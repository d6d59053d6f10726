"""`--dataset-name A,B`: one run over several data sets, with a table by data set in every report."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from specbench.harness.metrics.latency import tpot_by_request_ms
from specbench.harness.registry import WORKLOADS
from specbench.harness.store.prompts import read_prompts
from specbench.reports.cells import row_name
from specbench.reports.site.build import build_site
from specbench.workloads.base import Prompt, Workload, WorkloadRequest

from .conftest import assert_refused

ARMS = ("-s", "no-spec", "-s", "ngram:k=2,min_n=1")


def short(request: WorkloadRequest, tokenizer: object = None) -> Workload:
    """Prompts that repeat themselves, and 8 tokens each."""
    prompts = tuple(
        Prompt(id=f"{n}", token_ids=(5, 6 + n) * 4, max_tokens=8, text="") for n in range(request.num_prompts)
    )
    return Workload(name="short", prompts=prompts, rule="made up", source="here")


def long(request: WorkloadRequest, tokenizer: object = None) -> Workload:
    """The same with 24 tokens each; there are three, of two kinds."""
    if request.num_prompts > 3:
        raise ValueError(f"num_prompts is {request.num_prompts}, but long has 3")
    whole = short(request)
    prompts = tuple(
        Prompt(id=p.id, token_ids=p.token_ids[1:], max_tokens=24, text="", category="ab"[n % 2])
        for n, p in enumerate(whole.prompts)
    )
    return Workload(name="long", prompts=prompts, rule="all", source="there", synthetic=True)


@pytest.fixture(autouse=True)
def _made_up_data_sets(monkeypatch):
    for name in ("short", "long"):
        monkeypatch.setitem(WORKLOADS, name, f"{__name__}:{name}")


@pytest.fixture
def both(cli, toy, only_run):
    done = cli(*toy, *ARMS, "--dataset-name", "short,long", "--num-prompts", 5, "--num-repeats", 2)
    assert done.exit_code == 0, done.output
    return only_run(), done.stdout


def test_one_run_holds_both_and_says_so(both):
    run, _ = both
    prompts = read_prompts(run.path).to_pylist()
    named = [(p["prompt_id"], p["category"], p["max_tokens"]) for p in prompts]
    expected = [("short", 8), ("long", 24), ("short", 8), ("long", 24), ("short", 8)]
    assert named == [(f"{name}:{n // 2}", name, most) for n, (name, most) in enumerate(expected)]
    workload = run.record.workload
    assert (workload.name, workload.num_prompts, workload.synthetic) == ("short,long", 5, True)
    assert workload.rule.startswith("short (3 prompts): made up; long (2 prompts): all; ")
    assert workload.source == "short: here; long: there"


def test_the_figures_of_a_data_set_are_those_of_its_rows(both):
    run, _ = both
    frames = run.frames()
    plain, drafted = run.record.results.arms
    assert [(c.name, c.num_prompts) for c in drafted.categories] == [("short", 3), ("long", 2)]
    for found in drafted.categories:
        requests = frames.requests[frames.requests["prompt_id"].str.startswith(f"{found.name}:")]
        mine = requests[requests["arm"] == drafted.label]
        steps = frames.steps[frames.steps["arm"] == drafted.label].merge(mine[["repeat", "request_id"]])
        verified = steps[~steps["is_prefill"] & (steps["draft_depth"] > 0)]
        assert found.acceptance.acceptance_length == pytest.approx(1 + verified["num_accepted"].mean())
        assert found.acceptance.acceptance_length_interval.num_clusters == found.num_prompts
        by_repeat = [tpot_by_request_ms(rows).mean() for _, rows in mine.groupby("repeat")]
        assert found.tpot_ms == pytest.approx(np.median(by_repeat))
        logs = {arm: tpot_by_request_ms(rows).map(np.log).mean() for arm, rows in requests.groupby("arm")}
        ratio = np.exp(logs[plain.label] - logs[drafted.label])
        assert found.speedup.tpot_ratio == pytest.approx(ratio) and found.speedup.tps_ratio is None
        assert found.speedup.num_prompts == found.num_prompts
        assert found.speedup.tpot_ratio_low < ratio < found.speedup.tpot_ratio_high
    assert [c.speedup for c in plain.categories] == [None, None]
    lengths = [c.acceptance.num_verifications for c in drafted.categories]
    assert sum(lengths) == drafted.acceptance.num_verifications and min(lengths) > 0


def test_every_report_has_the_table(both, cli, tmp_path):
    run, terminal = both
    stored = json.loads((run.path / "report.json").read_text())
    (table,) = [table for table in stored["tables"] if table["title"] == "By data set"]
    assert [row[:3] for row in table["rows"]] == [
        [name, row_name(arm), num] for name, num in (("short", "3"), ("long", "2")) for arm in run.record.results.arms
    ]
    assert table["headers"] == ["data set", "strategy", "prompts", "AL [95% CI]", "TPOT ms", "TPOT (x) [95% CI]"]
    assert [[c["name"] for c in arm["categories"]] for arm in stored["arms"]] == [["short", "long"]] * 2
    build_site([run.path], tmp_path / "site")
    (page,) = (tmp_path / "site" / "runs").glob("*.html")
    for text in (terminal, (run.path / "report.md").read_text(), page.read_text()):
        assert "By data set" in text and "intervals over these prompts" in " ".join(text.split())


def test_a_single_data_set_has_no_such_table(cli, toy, only_run):
    assert cli(*toy, *ARMS, "--dataset-name", "long", "--num-prompts", 3).exit_code == 0
    run = only_run()
    assert run.record.results.arms[0].categories == (), "three prompts of two kinds say little"
    report = (run.path / "report.md").read_text()
    assert "By category" not in report and "By data set" not in report


def test_kinds_of_questions_have_a_table(cli, chat, only_run, tmp_path):
    lines = [{"prompt": f"{'ab' * 4}{n}", "category": ("maths", "prose")[n % 2], "max_tokens": 9} for n in range(4)]
    (tmp_path / "kinds.jsonl").write_text("\n".join(map(json.dumps, lines)))
    done = cli(*chat, *ARMS, "--dataset-path", tmp_path / "kinds.jsonl", "--num-prompts", 4)
    assert done.exit_code == 0 and "By category" in done.stdout
    assert "| category | strategy | prompts |" in (only_run().path / "report.md").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--dataset-name short,shrt", "dataset-name: 'shrt' is not known (did you mean 'short'?)"),
        ("--dataset-name short,gsm8k", "dataset_name: 'gsm8k' needs a tokenizer"),
        ("--dataset-name short,long,short", "dataset_name: 'short,long,short' is not allowed; short is in it twice"),
        (
            "--dataset-name short,long --dataset-path x",
            "dataset_path: 'x' is not allowed; a path belongs to one data set",
        ),
        ("--dataset-name short,long --num-prompts 8", "long, 4 of 8 prompts: num_prompts is 4, but long has 3"),
    ],
)
def test_lists_that_cannot_be(cli, toy, runs, words, message):
    assert_refused(cli(*toy, *ARMS, *words.split()), runs, message)


def test_a_recipe_has_the_same_list(cli, toy, tmp_path, only_run):
    recipe = tmp_path / "sets.toml"
    recipe.write_text('[run]\ndataset_name = "short, long"\n[[arm]]\nstrategy = "no-spec"\n')
    words = [word for word in toy if word not in ("--dataset-name", "random")]
    assert cli(*words, "--recipe", recipe, "--num-prompts", 4).exit_code == 0
    assert re.fullmatch("short,long", only_run().record.workload.name)
