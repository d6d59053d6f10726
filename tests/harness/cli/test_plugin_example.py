"""examples/plugin, installed beside the project: its strategy is listed, run, swept, certified and A/B'd like ours."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from toy.packages import install_project
from toy.packages import site as site

from specbench.harness.engines.native.arms import resolve_arm
from specbench.harness.registry import EngineKind
from specbench.harness.spec.ablation import parse_ablations
from specbench.harness.spec.cover import pairwise_cover

EXAMPLE = Path(__file__).parents[3] / "examples" / "plugin"


@pytest.fixture(autouse=True)
def installed(site):
    install_project(site, EXAMPLE)


def test_it_is_small():
    files = [path for path in EXAMPLE.iterdir() if path.is_file()]
    assert sorted(path.name for path in files) == ["pyproject.toml", "specbench_lookback.py"]
    assert sum(len(path.read_text().splitlines()) for path in files) < 60


def test_it_is_listed(cli):
    listed = json.loads(cli("list", "--format", "json").stdout)
    assert listed["strategies"][-1] == "lookback"
    assert listed["plug_ins"] == ["strategies: lookback of specbench-lookback 0.1"]
    assert "plug-in, strategies: lookback of specbench-lookback 0.1" in cli("list").stdout


def test_it_runs(cli, toy, only_run):
    result = cli(*toy, "-s", "no-spec", "-s", "lookback:k=2", "-s", "lookback", "--random-output-len", 30)
    assert result.exit_code == 0, result.output
    frames = only_run().frames()
    outputs = frames.requests.groupby("arm")["output_token_ids"].apply(lambda ids: [list(row) for row in ids])
    assert outputs["lookback:k=2"] == outputs["lookback"] == outputs["no-spec"]
    steps = frames.steps[frames.steps["num_proposed"] > 0]
    assert set(steps[steps["arm"] == "lookback:k=2"]["num_proposed"]) <= {1, 2} and len(steps)
    assert cli(*toy, "-s", "lookback:depth=2").stderr.strip().endswith("unknown option 'depth'='2'; allowed: k")


def test_it_is_swept(cli, toy_sweep, only_sweep):
    result = cli(*toy_sweep, "-s", "lookback", "--num-drafts", "1,2", "--max-concurrency", "1,2", "--format", "json")
    assert result.exit_code == 0, result.output
    assert [arm["label"] for arm in json.loads(result.stdout)["arms"]] == ["no-spec", "lookback:k=1", "lookback:k=2"]


def test_it_is_certified(cli, toy, runs):
    words = "--load-format dummy --model toy --dtype float32 --dataset-name random --num-prompts 3 --output-len 24"
    words += " --max-model-len 1100 --num-seeds 50"
    result = cli("certify", "-s", "lookback:k=2", *words.split(), "--output-dir", runs)
    assert result.exit_code == 0, result.output
    (path,) = runs.iterdir()
    rows = json.loads((path / "certificate.json").read_text())["certificates"]
    assert all(row["ok"] for row in rows) and "lookback:k=2" in {row["arm"] for row in rows}


def test_its_ab(cli, toy, only_run):
    """In processes of their own, which find the package as this one does."""
    options = iter(toy[1:])
    kept = [word for name in options for word in (name, next(options)) if name != "--num-repeats"]
    result = cli("ab", "-A", "lookback:k=1", "-B", "lookback:k=2", "--blocks", 1, "--no-verdict", *kept)
    assert result.exit_code in (0, 4), result.output
    run = only_run()
    sides = [arm.config.num_drafts for arm in run.record.arms]
    assert sides == [1, 2] and not run.failed_blocks()


def test_what_reads_declarations_alone_knows_it():
    assert parse_ablations(["strategy=ngram,lookback"]) == {"strategy": ("ngram", "lookback")}
    cells = pairwise_cover("cpu", lambda arm: resolve_arm(arm, "cpu", synthetic_weights=False))
    assert any(cell.text().startswith("lookback:k=3,attention=torch") for cell in cells)
    assert "lookback" not in EngineKind.default_arms(has_head=True), "it declares no default arm"
