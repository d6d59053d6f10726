"""`specbench run --engine openai` against servers of the test's own: one table, nothing secret in what is stored."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from specbench.harness.store.arm_record import Fact

KEY = "a-key-that-nobody-may-store"


@pytest.fixture
def asked(prompts, runs) -> list[str]:
    words = f"--engine openai --dataset-name jsonl --dataset-path {prompts} --num-prompts 6 --max-model-len 200"
    return ["run", *words.split(), *f"--num-repeats 2 --warmup-max-s 0.05 --output-dir {runs}".split()]


def row_of(text: str, label: str) -> str:
    (line,) = (line for line in text.splitlines()[1:] if line.startswith(f"{label} "))
    return line


def test_two_servers_in_one_table(cli, asked, only_run, serve):
    slow = serve(kind="vllm", delay_s=0.01)
    fast = serve(kind="vllm", delay_s=0.01, sizes=(3, 1), speculates=True, details="detailed")
    arms = (f"no-spec:url={slow.url}", f"eagle:url={fast.url},k=3")
    result = cli(*asked, *(word for arm in arms for word in ("-s", arm)), "--wide")
    assert result.exit_code == 0, result.output
    run = only_run()
    frames = run.frames()
    assert len(frames.requests) == 24 and set(frames.requests["finish_reason"]) == {"length"}
    assert "x)" in row_of(result.stdout, arms[1]), "a speed-up over the other server"
    first, second = run.record.arms
    assert first.config.driven == second.config.driven == "HTTP" and second.config.engine == "openai"
    assert second.engine is not None and second.engine.version == "0.32.0"
    assert Fact.ACCEPTANCE not in second.unknown and Fact.TOKEN_IDS not in second.unknown
    assert Fact.ROUNDS in second.unknown
    results = run.record.results
    assert results is not None
    acceptance = results.arms[1].acceptance
    # Seven tokens behind the first: rounds of 3, 1, 3 with three drafts each.
    assert acceptance is not None and acceptance.acceptance_length == pytest.approx(1 + 4 / 3)
    assert acceptance.tokens_per_forward == pytest.approx(7 / 3) and results.arms[0].acceptance.tokens_per_forward == 1
    counters = frames.counters[frames.counters["arm"] == arms[1]].set_index("name")["value"]
    assert set(counters["engine.spec_decode_num_drafts"]) == {18.0}
    assert results.arms[0].median("itl_ms.mean") > 5


def test_the_model_is_the_first_that_is_served(cli, asked, only_run, serve):
    server = serve(models=("org/one", "two"))
    assert cli(*asked, "--base-url", server.url).exit_code == 0
    run = only_run()
    assert run.record.model.name == "org/one" and [arm.label for arm in run.record.arms] == ["as-served"]
    assert {one["model"] for one in server.asked} == {"org/one"} and isinstance(server.asked[0]["prompt"], str)


def test_a_tokenizer_sends_ids(cli, asked, serve, chat_model, only_run):
    server = serve(kind="vllm")
    result = cli(*asked, "--base-url", server.url, "--tokenizer", chat_model)
    assert result.exit_code == 0, result.output
    assert all(type(token) is int for token in server.asked[-1]["prompt"]) and len(server.asked[-1]["prompt"]) > 30
    assert server.asked[-1]["stop_token_ids"] == [0] and "lengths of prompts" not in result.stdout


def test_ids_are_not_read_as_text_without_a_tokenizer(cli, asked, serve, runs, tmp_path):
    """Their bytes were sent, which are no prompt."""
    file = tmp_path / "ids.jsonl"
    file.write_text('{"prompt_token_ids": [128000, 9906, 1917]}\n')
    words = [file if word.endswith("prompts.jsonl") else word for word in asked]
    result = cli(*words, "--num-prompts", 1, "--base-url", serve().url)
    said = "ids.jsonl:1: token ids cannot be read as text without the model's tokenizer: give --tokenizer"
    assert result.exit_code == 2 and said in " ".join(result.stderr.split()) and not runs.exists(), result.output


def test_a_key_is_in_no_file(cli, asked, serve, runs, monkeypatch):
    monkeypatch.setenv("SERVER_KEY", KEY)
    server = serve(key=KEY)
    server.fault = lambda number, asked: "401" if server.is_measured else ""
    result = cli(*asked, "--base-url", server.url, "--api-key-env", "SERVER_KEY", "--num-repeats", 1)
    server.key = "changed"
    again = cli(*asked, "--base-url", server.url, "--api-key-env", "SERVER_KEY", "--num-repeats", 1)
    assert result.exit_code == 1 and "answered 401: no: Bearer ***" in result.stdout
    assert again.exit_code == 2 and "wrong key: Bearer ***" in again.stderr
    assert KEY not in result.output + again.output and any(runs.rglob("errors.log"))
    files = [path for path in runs.rglob("*") if path.is_file()]
    assert len(files) > 2 and not [path for path in files if KEY.encode() in path.read_bytes()]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "base_url: the engine openai needs --base-url http://HOST:PORT/v1"),
        (["--base-url", "http://127.0.0.1:9/v1"], "no OpenAI-compatible server at http://127.0.0.1:9/v1"),
        (["-s", "as-served:url=URL,graph=full"], "graph: 'full' is not allowed for a server that is already running"),
        (["-s", "as-served:url=URL,engine.api=xml"], "engine.api: 'xml' is not known; allowed: completions, chat"),
        (["-s", "as-served:url=URL,engine.prompt=ids"], "engine.prompt: ids needs --tokenizer"),
        (["--base-url", "URL", "--model", "other"], "model: 'other' is not served at"),
        (["--base-url", "URL", "-s", "ngram"], "it does not speculate; label it no-spec"),
    ],
)
def test_what_cannot_be_is_one_line(cli, asked, serve, runs, words, said):
    url = serve().url
    result = cli(*asked, *(word.replace("URL", url) for word in words))
    assert result.exit_code == 2 and said in " ".join(result.stderr.split()) and not runs.exists(), result.output


def test_a_server_has_weights(cli, serve):
    words = ["--base-url", serve().url, "--load-format", "dummy", "--dataset-name", "random"]
    result = cli("run", "--engine", "openai", *words)
    assert result.exit_code == 2 and "load_format: dummy is not allowed" in result.stderr


def test_a_server_that_fails_is_a_row_and_the_other_goes_on(cli, asked, serve, only_run):
    good, bad = serve(), serve()
    bad.fault = lambda number, asked: "cut" if bad.is_measured else ""
    arms = (f"as-served:url={good.url}", f"as-served:url={bad.url}")
    result = cli(*asked, "-s", arms[0], "-s", arms[1], "--num-repeats", 1)
    assert result.exit_code == 1 and "Traceback" not in result.output, result.output
    assert only_run().done_blocks() >= {(arms[0], 0)}
    assert "the server cut the stream" in result.stdout


def test_an_interrupted_run_keeps_what_had_ended(cli, asked, serve, only_run):
    def interrupt(number: int, fields: dict) -> str:
        measured.extend([number] * server.is_measured)
        if len(measured) == 4:
            os.kill(os.getpid(), signal.SIGINT)
        return ""

    measured: list[int] = []
    server = serve(delay_s=0.01, fault=interrupt)
    result = cli(*asked, "--base-url", server.url)
    assert result.exit_code == 130, result.output
    run = only_run()
    (partial,) = run.partial_blocks()
    assert run.record.status == "interrupted" and 3 <= len(partial.requests) < 6
    server.fault = lambda number, asked: ""
    resumed = cli("run", "--resume", run.path)
    assert resumed.exit_code == 0 and len(only_run().done_blocks()) == 2, resumed.output


def test_a_run_is_not_resumed_on_another_version_of_its_server(cli, asked, serve, only_run):
    """The repeats of a row would be of two engines, and its record of the last one only."""

    def interrupt(number: int, fields: dict) -> str:
        if server.is_measured and not server.interrupted and only_run().done_blocks():
            server.interrupted = True
            os.kill(os.getpid(), signal.SIGINT)
        return ""

    server = serve(fault=interrupt)
    server.interrupted = False
    result = cli(*asked, "--base-url", server.url)
    assert result.exit_code == 130 and len(only_run().done_blocks()) == 1, result.output
    server.stop()
    upgraded = serve(port=server.port, version="0.33.0")
    refused = cli("run", "--resume", only_run().path)
    said = "was measured on version 0.32.0 of its engine, it is now 0.33.0"
    assert refused.exit_code == 2 and said in " ".join(refused.stderr.split()), refused.output
    upgraded.stop()
    serve(port=server.port)
    resumed = cli("run", "--resume", only_run().path)
    assert resumed.exit_code == 0 and len(only_run().done_blocks()) == 2, resumed.output


def test_hits_of_a_prefix_cache_void_the_first_token(cli, asked, serve, only_run):
    result = cli(*asked, "--base-url", serve(cached=16).url, "--wide")
    assert result.exit_code == 0, result.output
    row = row_of(result.stdout, "as-served")
    assert "no TTFT: 96 prompt tokens of a block came from a prefix cache" in row and row.split()[3] == "-"
    arm = only_run().record.results.arms[0]
    assert arm.median("ttft_ms.mean") is None and arm.median("tpot_ms.mean") is not None


def test_accuracy_by_text(cli, serve, runs: Path, only_run, tmp_path):
    pytest.importorskip("lm_eval")
    from toy.eval_tasks import write_tasks

    folder, server = write_tasks(tmp_path / "tasks"), serve()
    options = "--engine openai --max-model-len 200 --max-concurrency 2 --warmup-max-s 0.02"
    words = ["accuracy", *options.split(), "--output-dir", runs, "--include-path", folder, "--tasks", "counting"]
    result = cli(*words, "-s", f"as-served:url={server.url}")
    assert result.exit_code == 0, result.output
    assert any(asked.get("stop") for asked in server.asked) and set(only_run().frames().requests["output_text"]) != {""}
