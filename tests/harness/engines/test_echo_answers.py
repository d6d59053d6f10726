"""Answers of an engine without token ids: scored and certified by their text, with that limit said."""

from __future__ import annotations

import json
import re

import pytest
from toy.echo_engine import TEXT_ONLY, EchoDeployment
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


@pytest.fixture
def certify(cli, server, prompts, runs):
    def call():
        words = f"--engine echo --model {server.url} --dataset-name jsonl --dataset-path {prompts} --num-prompts 6"
        more = "--output-len 8 --max-model-len 64 -s ngram:k=2 --format json"
        result = cli("certify", *words.split(), *more.split(), "--output-dir", runs)
        return result, {row["arm"]: row for row in json.loads(result.stdout)["certificates"]}

    return call


def test_a_certificate_by_text(certify):
    result, rows = certify()
    row = rows["ngram:k=2"]
    assert result.exit_code == 0 and (row["num_exact"], row["num_prompts"], row["num_tokens"]) == (6, 6, 48)
    parts = re.findall(
        r"^specbench: (\S+?)(?:: judging)?, part (\d) of 4(?:, about \d+ s left)?(?:, 6 requests)?$",
        result.stderr,
        re.M,
    )
    assert parts == list(zip(["no-spec", "ngram:k=2"] * 2, "1234", strict=True)), result.stderr
    assert row["judged_by"] == "equality of texts alone" and row["worst_regret"] is row["acceptance_length"] is None
    assert row["not_done"][0] == f"divergence and regret: {TEXT_ONLY}" and "nor the use of drafts" in row["not_done"][1]


def test_texts_that_differ_have_no_certificate(certify, monkeypatch):
    """One word of one answer; and answers that are all empty, which are equal."""
    own = EchoDeployment.generate
    monkeypatch.setattr(EchoDeployment, "generate", changed_by(own, lambda arm, n, text: text + "!" * (arm and n == 3)))
    result, rows = certify()
    assert result.exit_code == 6 and rows["no-spec"]["ok"]
    assert rows["ngram:k=2"]["problems"] == [
        "equality: 1 of 6 answers differ from the baseline's; whether these are near-ties is unknown"
    ]


def test_empty_answers_are_equal_and_show_nothing(certify, monkeypatch):
    monkeypatch.setattr(EchoDeployment, "generate", changed_by(EchoDeployment.generate, lambda *_: ""))
    result, rows = certify()
    assert result.exit_code == 6 and "which proves nothing" in rows["ngram:k=2"]["problems"][0]


def changed_by(own, change):
    """`change(is a drafting arm, request, text)` is what the deployment says instead."""

    def generate(self, requests, sink):
        texts = own(self, requests, sink)
        return {n: change(self.arm.config.strategy != "no-spec", n, text) for n, text in texts.items()}

    return generate
