"""`specbench run --accuracy`: scores beside the speed of the same arms, and never in it."""

from __future__ import annotations

import json
import re

import pandas as pd
import pytest
from toy.eval_tasks import write_tasks
from toy.interrupts import interrupted

pytest.importorskip("lm_eval")

from specbench.harness.quality.lm_evaluation.store import TABLE, read_accuracy  # noqa: E402
from specbench.harness.store.run_directory import RunDirectory  # noqa: E402

ARMS = ["-s", "no-spec", "-s", "ngram:k=2"]
TIMES = re.compile(r"(?<![\w.])\d+\.?\d*(?:e[+-]\d+)? \(\d+\.\d+x(?: \[[\d., ]+\])?\)")


@pytest.fixture
def asked(chat, tmp_path) -> list[str]:
    """A run on real files with six items after its blocks."""
    folder = write_tasks(tmp_path / "tasks")
    return [*chat, "--max-model-len", "120", *ARMS, "--accuracy", "counting", "--accuracy-include-path", str(folder)]


def rows_of(run: RunDirectory) -> pd.DataFrame:
    return read_accuracy(run.path).sort_values(["arm", "item", "filter"], ignore_index=True)


def accuracy_part(report: dict) -> dict:
    """What is not time: scores, pairs, acceptance of the items."""
    found = report["accuracy"]
    items = {arm: figures["acceptance_length"] for arm, figures in found["items"]["counting"].items()}
    return {"scores": found["scores"], "pairs": found["pairs"], "items": items, "notes": found["record"]["notes"]}


def test_columns_of_the_main_table(cli, asked, only_run):
    result = cli(*asked)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()[1:]
    assert "counting  " in lines[0] and "counting: paired" in lines[0]
    row = next(line for line in lines if line.startswith("ngram:k=2"))
    assert re.search(r"0\.0000 ± 0\.0000 +same text", row), row
    assert re.search(r"0\.0000 ± 0\.0000 +baseline", next(line for line in lines if line.startswith("no-spec")))
    assert "counting: exact_match ± standard error over 6 items, 0-shot" in result.stdout
    report = (only_run().path / "report.md").read_text()
    assert "counting: paired" in report.splitlines()[2] and "Against no-spec, item by item" in report
    assert len(json.loads((only_run().path / "report.json").read_text())["accuracy"]["scores"]) == 2
    assert only_run().record.files[TABLE] and len(rows_of(only_run())) == 2 * 6


def test_quiet_is_quiet_about_the_items_too(cli, asked, caplog):
    result = cli(*asked, "--quiet")
    assert result.exit_code == 0 and "counting: paired" in result.stdout
    assert (result.stderr, [r.message for r in caplog.records if r.name.startswith("lm_eval")]) == ("", [])


def test_items_never_enter_the_speed(cli, asked, only_run):
    result = cli(*asked, "--format", "json")
    assert result.exit_code == 0, result.output
    report, run = json.loads(result.stdout), only_run()
    requests, steps = run.frames().requests, run.frames().steps
    assert len(requests) == 2 * 2 and not requests["prompt_id"].str.contains("counting").any()
    assert {arm["num_requests"] for arm in report["arms"]} == {2}
    assert len(report["blocks"]) == 2 and {block["num_requests"] for block in report["blocks"]} == {2}
    items = RunDirectory.open(run.path / "accuracy").frames()
    assert items.requests["prompt_id"].str.startswith("counting/").all() and len(items.requests) == 2 * 6
    assert steps["num_emitted"].sum() == requests["num_output_tokens"].sum()
    figures = report["accuracy"]["items"]["counting"]
    own = items.requests[items.requests["arm"] == "ngram:k=2"]
    times_ms = (own["t_last_ns"] - own["t_first_ns"]) / (own["num_output_tokens"] - 1) / 1e6
    assert figures["ngram:k=2"]["tpot_ms"] == pytest.approx(times_ms[own["num_output_tokens"] > 1].mean())
    assert figures["ngram:k=2"]["tpot_ratio"] > 0 and figures["no-spec"]["tpot_ratio"] is None


@pytest.mark.parametrize(
    ("line", "num_scored"),
    [
        pytest.param("no-spec, arm 1 of 2: repeat 1 of 1, 2 requests", 0, id="in a block"),
        pytest.param("ngram:k=2: preparing counting", 6, id="in the items"),
    ],
)
def test_interrupted_and_resumed_ends_as_one_that_was_not(cli, asked, runs, tmp_path, line, num_scored):
    whole = cli(*asked, "--output-dir", tmp_path / "whole", "--format", "json")
    assert whole.exit_code == 0, whole.output
    code, _, stderr = interrupted(asked, line)
    assert code == 130 and "Traceback" not in stderr, stderr
    (path,) = runs.iterdir()
    assert len(rows_of(RunDirectory.open(path))) == num_scored
    assert RunDirectory.open(path).record.status == "interrupted"
    resumed = cli("run", "--resume", path, "--format", "json")
    assert resumed.exit_code == 0, resumed.output
    assert ("no-spec: scored already" in resumed.stderr) == (num_scored > 0)
    first, second = json.loads(whole.stdout), json.loads(resumed.stdout)
    assert accuracy_part(first) == accuracy_part(second)
    (one,) = (tmp_path / "whole").iterdir()
    runs_ = [RunDirectory.open(one), RunDirectory.open(path)]
    pd.testing.assert_frame_equal(rows_of(runs_[0]), rows_of(runs_[1]))
    tables = [_without_times(cli("show", run.path).stdout) for run in runs_]
    assert tables[0] == tables[1]
    outputs = [run.frames().requests.set_index(["arm", "repeat", "prompt_id"])["output_sha256"] for run in runs_]
    pd.testing.assert_series_equal(outputs[0].sort_index(), outputs[1].sort_index())
    again = cli("run", "--resume", path)
    assert again.exit_code == 0 and "nothing to do" in again.stderr


TIMED = re.compile("TPOT|warm-up not stable|all of it: specbench show")


def _without_times(text: str) -> list[list[str]]:
    """Score, verdict and item rows of the printed tables; no figures of time, ids or commands."""
    _, *lines = text.splitlines()
    main = [line.split("  ") for line in lines[2:4]]
    verdicts = [[cell.strip() for cell in row if "±" in cell or "same" in cell or cell == "baseline"] for row in main]
    start = next(i for i, line in enumerate(lines) if line.startswith("Accuracy ("))
    # Columns are as wide as their times: cells are compared, and rules are not.
    rows = [re.split(" {2,}", TIMES.sub("TIME", line).strip()) for line in lines[start + 1 :] if not TIMED.search(line)]
    return [*verdicts, *(row for row in rows if not all(set(cell) <= {"-"} for cell in row))]


def test_an_arm_that_cannot_be_scored_is_a_row_and_is_tried_again(cli, asked, only_run, monkeypatch):
    from specbench.harness.quality.lm_evaluation import evaluate

    warm_up = evaluate.warm_up_on_items

    def fails(deployment, requests, config):
        if deployment.engine.strategy.name == "ngram":
            raise RuntimeError("no room")
        return warm_up(deployment, requests, config)

    with monkeypatch.context() as patch:
        patch.setattr(evaluate, "warm_up_on_items", fails)
        result = cli(*asked)
    assert result.exit_code == 1 and "ngram:k=2: not scored: RuntimeError: no room" in result.stdout
    row = next(line for line in result.stdout.splitlines()[1:] if line.startswith("ngram:k=2"))
    assert "not scored" in row and not only_run().failed_blocks(), "its speed stands"
    result = cli("run", "--resume", only_run().path)
    assert result.exit_code == 0 and "no room" not in result.stdout and len(rows_of(only_run())) == 12


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--accuracy", "countin"], "'countin' is not known to lm-eval; did you mean counting?"),
        (["--accuracy", "counting:0"], "limit: 0 is not allowed for counting"),
        (["--accuracy", "counting:x"], "'counting:x' is not allowed; give NAME or NAME:LIMIT"),
        (["--accuracy", "counting,counting:2"], "a task is given twice"),
        (["--accuracy", ","], "tasks: is empty"),
        (["--acceptance", "synthetic:2.0"], "forced acceptance gives wrong text"),
        (["--max-model-len", "6"], "max_model_len: 6 is too short for counting"),
        (["--accuracy-include-path", "/nowhere"], "include_path: /nowhere is not a directory"),
    ],
)
def test_refused_before_anything_is_measured(cli, asked, runs, words, text):
    result = cli(*asked, *words)
    assert result.exit_code == 2 and text in result.stderr and not runs.exists()


def test_random_weights_have_no_accuracy(cli, toy, runs):
    result = cli(*toy, "-s", "no-spec", "--accuracy", "gsm8k:20")
    assert result.exit_code == 2 and "random weights" in result.stderr and not runs.exists()


def test_options_of_the_evaluation_need_it(cli, toy, runs):
    result = cli(*toy, "-s", "no-spec", "--accuracy-num-fewshot", "2")
    assert result.exit_code == 2 and "need --accuracy" in result.stderr and not runs.exists()


def test_each_command_resumes_its_own(cli, asked, only_run):
    assert cli(*asked, "--accuracy", "counting:1").exit_code == 0
    result = cli("accuracy", "--resume", only_run().path)
    assert result.exit_code == 2 and "use specbench run --resume" in result.stderr
