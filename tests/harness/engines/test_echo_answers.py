"""Answers of an engine without token ids: scored by their text; a certificate is refused with the reason."""

from __future__ import annotations

import pytest
from toy.echo_engine import TEXT_ONLY
from toy.eval_tasks import write_tasks


@pytest.fixture
def evaluation(server, runs, tmp_path) -> list[str]:
    pytest.importorskip("lm_eval")
    folder = write_tasks(tmp_path / "tasks")
    options = f"--engine echo --model {server.url} --max-model-len 200 --max-concurrency 2 --warmup-max-s 0.02"
    return ["accuracy", *options.split(), "--output-dir", str(runs), "--include-path", str(folder)]


def test_accuracy_by_text(cli, evaluation, only_run, server):
    arms = ("-s", "no-spec", "-s", "ngram:k=2")
    result = cli(*evaluation, *arms, "--tasks", "counting")
    assert result.exit_code == 0, result.output
    rows = only_run().frames().requests
    # The prompt's first six words, cut at the stop string that they begin with.
    assert len(rows) == 12 and set(rows["output_text"]) == {""} and rows["output_token_ids"].isna().all()
    num = server.num_requests
    again = cli("accuracy", "--resume", only_run().path)
    assert again.exit_code == 0 and server.num_requests == num, again.output


def test_likelihoods_are_refused(cli, evaluation):
    result = cli(*evaluation, "-s", "no-spec", "--tasks", "choosing")
    assert result.exit_code == 1 and f"a task of log-likelihoods needs scores; {TEXT_ONLY}" in result.output


def test_a_certificate_is_refused(cli, server, prompts, runs):
    words = f"--engine echo --model {server.url} --dataset-name jsonl --dataset-path {prompts} --num-prompts 6"
    result = cli("certify", *words.split(), "-s", "ngram:k=2", "--output-dir", runs)
    assert result.exit_code == 2 and f"a certificate needs token_ids; {TEXT_ONLY}" in result.stderr
    assert not runs.exists() and server.num_requests == 0
