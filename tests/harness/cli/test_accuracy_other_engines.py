"""`specbench accuracy` through the deployments of other engines: by token ids and scores where there are any. By text:
harness/engines/test_echo_answers.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from toy.eval_tasks import write_tasks
from toy.packages import install
from toy.packages import site as site

pytest.importorskip("lm_eval")


@pytest.fixture
def evaluate(cli, runs, site: Path, tmp_path: Path):
    install(site, "counting-engine", "1", {"specbench.engines": {"counting": "toy.counting_engine:CountingEngine"}})
    folder = write_tasks(tmp_path / "tasks")

    def call(*words: str):
        more = f"--max-model-len 400 --max-concurrency 2 --warmup-max-s 0.02 --include-path {folder} --limit 4"
        return cli("accuracy", *more.split(), "--output-dir", runs, *words)

    return call


def test_answers_by_token_ids(evaluate, only_run):
    """The prompt ends with a colon; what is behind it in the alphabet is the answer."""
    arms = ("-s", "counting/no-spec", "-s", "counting/ngram")
    result = evaluate("--engine", "counting", *arms, "--tasks", "counting", "--num_fewshot", "1", "--format", "json")
    assert result.exit_code == 0, result.output
    rows = only_run().frames().requests
    assert len(rows) == 8 and {tuple(ids) for ids in rows["output_token_ids"]} == {tuple(range(59, 65))}
    assert (rows["num_prompt_tokens"] > 40).all()
    accuracy = json.loads(result.stdout)["accuracy"]
    (pair,) = accuracy["pairs"]
    assert (pair["arm"], pair["baseline"], pair["n"]) == ("counting/ngram", "counting/no-spec", 4)
    assert pair["same_output"] == 1.0 and pair["difference"] == 0.0


def test_log_likelihoods_are_the_engine_s_own(evaluate, only_run):
    result = evaluate("--engine", "counting", "-s", "no-spec", "--tasks", "choosing", "--format", "json")
    assert result.exit_code == 0, result.output
    (score,) = json.loads(result.stdout)["accuracy"]["scores"]
    assert score["n"] == 4 and score["value"] == 0.0, "`no` has the fewest letters, each of them unlikely"


def test_an_engine_without_scores_says_so(evaluate):
    result = evaluate("--engine", "counting", "-s", "no-spec:scores=no", "--tasks", "choosing")
    assert (
        result.exit_code == 1
        and "a task of log-likelihoods needs scores; it counts, it does not weigh" in result.output
    )


def test_options_that_name_a_program_are_those_of_a_run(evaluate, runs):
    result = evaluate("--engine", "openai", "--base-url", "not-an-address", "--tasks", "counting")
    assert result.exit_code == 2 and "not-an-address" in result.stderr and not runs.exists()
    chat = ("-s", "as-served:engine.api=chat", "--base-url", "http://127.0.0.1:1/v1", "--apply_chat_template")
    result = evaluate("--engine", "openai", *chat, "--tasks", "counting")
    assert result.exit_code == 2 and "apply_chat_template: a server asked by chat" in result.stderr
