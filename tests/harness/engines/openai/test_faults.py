"""Servers that fail: a request is an error of one line, the others go on; a server that is gone ends the block."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from specbench.harness.engines.openai import stream
from specbench.harness.engines.openai.endpoint import ApiKey, Endpoint, Page
from specbench.harness.engines.openai.sender import Sender, ServerGone
from specbench.harness.engines.openai.server import identify

from .conftest import Kept, deployment_of, load_of

ODD = {1, 3}


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("500", "the server answered 500: out of words"),
        ("cut", "the server cut the stream"),
        ("stall", "the stream stalled: nothing for 1 s"),
        ("malformed", "malformed chunk: "),
        ("error", "the server answered with an error: engine died"),
    ],
)
def test_one_request_fails_and_the_others_do_not(serve, monkeypatch, fault, said):
    if fault == "stall":  # elsewhere a busy machine, too, would be a stall
        monkeypatch.setattr(stream, "IDLE_S", 1.0)
    server, sink = serve(fault=lambda number, asked: fault if asked["prompt"][-1] in ODD else ""), Kept()
    deployment_of(server).measure(load_of(6), sink)
    rows = {row.request_id: row for row in sink.requests}
    assert sorted(rows) == list(range(6))
    for number, row in rows.items():
        assert row.finish_reason == ("error" if number in ODD else "length")
        assert (said in row.error and "\n" not in row.error) if number in ODD else row.error == ""
    if fault != "500":
        assert rows[1].t_first_ns > rows[1].t_submit_ns, "what had come is kept"


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("completion_tokens=-4", "malformed chunk: completion_tokens is -4; allowed: 0 to 2147483647"),
        (f"completion_tokens={1 << 40}", "malformed chunk: completion_tokens is 1099511627776; allowed: 0 to "),
        (
            f"completion_tokens={1 << 70}",
            "malformed chunk: completion_tokens is 1180591620717411303424; allowed: 0 to ",
        ),
        ("prompt_tokens=-1", "malformed chunk: prompt_tokens is -1; allowed: 0 to 2147483647"),
        ("cached_tokens=-7", "malformed chunk: cached_tokens is -7; allowed: 0 to 2147483647"),
        ("per_step_accepted=[-1]", "malformed chunk: per_step_accepted has -1; allowed: 0 to 2147483647"),
        ("completion_tokens=60", "output tokens: the server counted 60 and sent 6"),
        ("completion_tokens=5", "output tokens: the server counted 5 and sent 6"),
        ("per_step_accepted=[9, 9]", "contradicts itself: 9 accepted of 3 drafts in one round"),
        (
            "per_step_accepted=[2]",
            "contradicts itself: num_spec_steps is 2, per_step_drafted has 2 and per_step_accepted 1 entries",
        ),
        ("num_draft_tokens=7", "contradicts itself: num_draft_tokens is 7, and its rounds have 6"),
    ],
)
def test_counts_that_cannot_be_true_fail_their_request_alone(cli, prompts, runs, only_run, serve, fault, said):
    """A negative count in one answer once made the whole run unreadable, and huge ones ended it as bad input."""
    server = serve(sizes=(3, 2), speculates=True, details="detailed")
    server.fault = lambda number, asked: fault if server.is_measured and asked["prompt"].startswith("3 ") else ""
    words = f"--engine openai --base-url {server.url} --dataset-name jsonl --dataset-path {prompts} --num-prompts 6"
    kept = f"--output-len 6 --num-repeats 2 --warmup-max-s 0.05 --output-dir {runs}"
    result = cli("run", *words.split(), *kept.split())
    assert result.exit_code == 0, result.output
    requests = only_run().frames().requests
    failed = requests[requests["finish_reason"] == "error"]
    assert len(requests) == 12 and len(failed) == 2 and failed["error"].str.contains(said, regex=False).all()
    steps = only_run().frames().steps
    assert 1 + steps["num_accepted"][steps["num_proposed"] > 0].mean() == 2.5, "of those that told the truth"


@pytest.mark.parametrize("kind", ["llama.cpp", "plain"])
def test_no_server_sends_more_tokens_than_it_was_asked_for(serve, kind):
    server, sink = serve(kind=kind), Kept()
    server.fault = lambda number, asked: "completion_tokens=60" if asked["prompt"].endswith("1") else ""
    deployment = deployment_of(server, as_ids=False)
    deployment.count = lambda text: len(text.split())  # a tokenizer makes no figure of it, either
    deployment.measure(load_of(3), sink)
    errors = [row.error for row in sorted(sink.requests)]
    assert errors == ["", "output tokens: the server counted 60; allowed: 0 to 6 (max_tokens)", ""]
    assert [row.num_output_tokens for row in sorted(sink.requests)] == [6, 0, 6], "no figure is made of it"
    assert not any(step.request_id == 1 for step in sink.steps)


def test_without_usage_somebody_must_count(serve):
    server = serve(kind="plain", fault=lambda number, asked: "no-usage")
    with pytest.raises(RuntimeError, match="the server reported no usage, .*; give --tokenizer"):
        deployment_of(server).measure(load_of(2), Kept())
    counting, sink = deployment_of(server), Kept()
    counting.count = lambda text: len(text.split())
    counting.measure(load_of(2), sink)
    assert [row.num_output_tokens for row in sink.requests] == [6, 6]


def test_a_block_of_failures_is_an_error(serve):
    server, sink = serve(fault=lambda number, asked: "500"), Kept()
    with pytest.raises(RuntimeError, match="^every request failed: the server answered 500: out of words$"):
        deployment_of(server).measure(load_of(3), sink)
    assert len(sink.requests) == 3


def test_a_server_that_dies_ends_the_block_and_what_had_ended_is_kept(serve):
    server, sink = serve(delay_s=0.01), Kept()
    deployment = deployment_of(server)

    def stop_later() -> None:
        while len(sink.requests) < 4:
            time.sleep(0.005)
        server.stop()

    stopping = threading.Thread(target=stop_later)
    stopping.start()
    with pytest.raises(ServerGone, match="is gone: no connection: "):
        deployment.measure(load_of(200, max_tokens=3), sink)
    stopping.join()
    whole = [row for row in sink.requests if not row.error]
    assert 4 <= len(whole) < 200 and len(sink.requests) < 20


def test_ctrl_c_keeps_what_had_ended(serve):
    server, sink = serve(delay_s=0.02), Kept()
    deployment = deployment_of(server)

    def press() -> None:
        while len(sink.requests) < 3:
            time.sleep(0.005)
        os.kill(os.getpid(), signal.SIGINT)

    def raise_it(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, raise_it)
    try:
        pressing = threading.Thread(target=press)
        pressing.start()
        with pytest.raises(KeyboardInterrupt):
            deployment.measure(load_of(200, max_tokens=3), sink)
        pressing.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert 3 <= len(sink.requests) < 20 and not any(row.error for row in sink.requests)


def test_a_server_that_is_too_busy_for_a_check_refuses_no_field(serve):
    """Bad input would end the run for all arms; this one is tried again at its turn."""
    with pytest.raises(RuntimeError, match=r"does not answer \(429: slow down\)"):
        deployment_of(serve(fault=lambda number, asked: "429")).check(load_of(1))


def test_a_redirection_to_nowhere_ends_the_request(serve):
    """The exception that its name raises is none of a network; the block waited for the answer forever."""
    nowhere = SimpleNamespace(url=f"http://{'a' * 70}.example/v1")
    endpoint, answers, end_s = Endpoint.parse(serve(deals_to=[nowhere]).url, ApiKey("")), [], time.monotonic() + 20
    sender = Sender(endpoint, f"{endpoint.base_url}/completions", 1, keeps=True)
    sender.send([b"{}"], [0.0], lambda index, answer: answers.append(answer), lambda: time.monotonic() > end_s)
    assert len(answers) == 1 and answers[0].error.startswith("the request failed: Unicode")


def test_who_does_not_accept_a_connection_did_not_stall_a_stream(monkeypatch):
    monkeypatch.setattr(stream, "CONNECT_S", 0.2)
    with socket.socket() as full, ExitStack() as queued:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(4):
            waiting = queued.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        endpoint, answers = Endpoint(f"http://127.0.0.1:{full.getsockname()[1]}/v1"), []
        sender = Sender(endpoint, f"{endpoint.base_url}/completions", 1, keeps=True)
        sender.send([b"{}"], [0.0], lambda index, answer: answers.append(answer), lambda: False)
    assert [answer.error for answer in answers] == ["no connection within 0.2 s"]


def test_nobody_there():
    with pytest.raises(ValueError, match=r"^base_url: no OpenAI-compatible server at http://127.0.0.1:9/v1 \(no conn"):
        identify(Endpoint.parse("http://127.0.0.1:9", ApiKey("")))


def test_a_key_is_sent_and_never_told(serve):
    server = serve(key="right-key")
    sink = Kept()
    deployment_of(server, key="right-key").measure(load_of(2), sink)
    assert len(sink.requests) == 2
    with pytest.raises(ValueError, match="answers 401: wrong key: Bearer \\*\\*\\*; its key is read from") as caught:
        identify(Endpoint.parse(server.url, ApiKey("my-own-key")))
    assert "my-own-key" not in str(caught.value) + repr(ApiKey("my-own-key"))
    deployment = deployment_of(server, key="right-key")
    server.key = "another"
    with pytest.raises(RuntimeError, match="wrong key: Bearer \\*\\*\\*") as told:
        deployment.measure(load_of(2), sink)
    assert "right-key" not in str(told.value)


@pytest.mark.parametrize("line", [b"\n", b"\r\n"])
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_pieces_of_any_size(serve, line, size):
    split = lambda data: [data[at : at + size] for at in range(0, len(data), size)]  # noqa: E731
    sink = Kept()
    deployment_of(serve(line=line, split=split)).measure(load_of(3), sink)
    assert [row.output_token_ids for row in sink.requests] == [list(range(6))] * 3


def test_a_page_that_nests_too_deep_is_none():
    """Servers' answers are not trusted, and the decoder's own limit is no ValueError."""
    for text in ("[" * 100_000, '{"data": ' * 100_000, "[" * 500 + "]" * 500, "no JSON"):
        page = Page(200, text)
        assert page.json == {} and page.items == ()
