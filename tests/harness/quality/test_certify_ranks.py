"""Certificates of several ranks: judged by the whole model, which the process that asks loads and does not split."""

from __future__ import annotations

import pytest
from toy.alive import is_alive
from toy.ranks import watched_ranks
from typer.testing import CliRunner

from specbench.harness.cli.main import app
from specbench.harness.exit_codes import ExitCode
from specbench.harness.quality.certificate.certificate import read

_WORDS = (
    "certify -s eagle:k=2,head=random --load-format dummy --model toy --dtype float32 --device cpu "
    "--dataset-name random --num-prompts 2 --output-len 8 --max-model-len 1100 "
    "--tensor-parallel-size 2 --num-seeds 0 --temperature 0"
).split()


@pytest.fixture
def certificate(tmp_path, monkeypatch):
    """Of ranks that such a module runs: the command's result, and the rows."""

    def make(module: str, *words: str):
        started = watched_ranks(monkeypatch, module)
        result = CliRunner().invoke(app, [*_WORDS, *words, "--output-dir", str(tmp_path)], prog_name="specbench")
        assert started and not any(map(is_alive, started[0].pids)), result.stderr
        (folder,) = tmp_path.iterdir()
        return result, read(folder).certificates

    return make


def test_two_ranks_say_what_the_whole_model_says(certificate):
    result, rows = certificate(
        "specbench.harness.engines.native.ranks.rank", "--temperature", "0.8", "--num-seeds", "0"
    )
    assert result.exit_code == 0, result.stderr
    assert {(row["temperature"], row["num_exact"]) for row in rows} == {(0, 2), (0.8, 2)}
    assert all(row["ok"] and row["worst_regret"] < 1e-4 for row in rows)


def test_a_fault_that_all_ranks_and_arms_share_is_seen(certificate):
    result, rows = certificate("toy.skewed_rank")
    assert result.exit_code == ExitCode.WRONG
    assert all(row["num_exact"] == 2 and not row["ok"] for row in rows), "the arms agree with each other"
    assert all(any(problem.startswith("regret") for problem in row["problems"]) for row in rows)
