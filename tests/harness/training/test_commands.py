"""train-head and check-head on the command line: bad input ends in one line and exit code 2, before anything loads."""

from __future__ import annotations

import os

import pytest
from typer.testing import CliRunner

from specbench.harness.cli.main import app
from specbench.harness.experiments import check_head as check_head_command

TRAIN = ["train-head", "--target", "nobody", "--data", "x", "--out", "o"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*TRAIN, "--lr", "0"], "lr: 0.0 is not allowed; allowed: above 0"),
        ([*TRAIN, "--unroll", "1000000"], "unroll: 1000000 is not allowed; allowed: 1 to 64"),
        ([*TRAIN, "--decay", "1e300"], "decay: 1e+300 is not allowed; allowed: above 0, up to 1"),
        ([*TRAIN, "--seed", "-1"], "seed: -1 is not allowed; allowed: 0 to 9223372036854775807"),
        (
            [*TRAIN, "--intermediate-size", "99999999999"],
            "intermediate_size: 99999999999 is not allowed; allowed: 0 to 131072",
        ),
        (["check-head", "/nowhere", "--evaluate", "-1"], "evaluate: -1 is not allowed; allowed: 0 or more"),
        (["check-head", "/nowhere", "--output-len", "0"], "output_len: 0 is not allowed; allowed: 1 to 16777216"),
        ([*TRAIN, "--kind", "draft-model"], "kind: 'draft-model' has no head; allowed: eagle, "),
        ([*TRAIN, "--budget-s", "0"], "budget_s: 0.0"),
        ([*TRAIN], "asset 'nobody' is not known"),
        (["check-head", "/nowhere"], "check-head: head='/nowhere' is not a directory"),
        (["check-head", "/nowhere", "--evaluate", "2", "--dataset-name", "gsm8k,gsm8k"], "has 'gsm8k' twice; allowed"),
        (["check-head", "/nowhere", "--evaluate", "2", "--workload", "gsm8k,"], "'gsm8k,' has an empty item; allowed"),
        (["check-head", "/nowhere", "--evaluate", "2", "--workload", "gsm8k,gsm9k"], "workload: 'gsm9k' is not known"),
        (["check-head", "/nowhere", "--write"], "write: there is nothing to store without --evaluate"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert message in result.stderr and len(result.stderr.strip().splitlines()[-1:]) == 1
    assert "Traceback" not in result.output and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("is_trained", "may_write", "message"),
    [
        (False, True, "write: HEAD has no training.json; only a head made by train-head has a card to write"),
        (True, False, "write: cannot write to HEAD: Permission denied"),
    ],
)
def test_an_evaluation_that_could_not_be_stored_is_refused_before_anything_loads(
    tmp_path, monkeypatch, is_trained, may_write, message
):
    monkeypatch.setattr(check_head_command, "find_head", lambda *_: tmp_path)
    monkeypatch.setattr(check_head_command, "load_for_training", None)  # must not be reached
    if is_trained:
        (tmp_path / "training.json").write_text("{}")
    monkeypatch.setattr("os.access", lambda path, mode: may_write or not mode & os.W_OK)
    result = CliRunner().invoke(app, ["check-head", str(tmp_path), "--evaluate", "2", "--write"])
    assert result.exit_code == 2 and f"error: {message.replace('HEAD', str(tmp_path))}\n" in result.stderr


@pytest.mark.parametrize("command", ["train-head", "check-head"])
def test_help_shows_examples(command):
    result = CliRunner().invoke(app, [command, "--help"])
    assert result.exit_code == 0 and f"specbench {command}" in result.stdout
