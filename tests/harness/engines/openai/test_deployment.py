"""A server as a deployment: what is sent to it, what rows are made of its answers."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import replace

import pytest
from toy.processes import eventually

from specbench.harness.engines.load import PromptRequest
from specbench.harness.engines.openai import sender
from specbench.harness.engines.openai.deployment import HttpDeployment
from specbench.harness.engines.openai.endpoint import ApiKey, Endpoint
from specbench.harness.engines.openai.lengths import ByteGroups
from specbench.harness.engines.openai.server import identify
from specbench.harness.engines.warmup import WarmUp
from specbench.harness.spec.sampling import SamplingParams
from specbench.harness.store.arm_record import Fact

from .conftest import Kept, deployment_of, load_of


def test_everything_that_decides_an_answer_is_sent(serve):
    server = serve(kind="vllm")
    deployment_of(server).measure(load_of(stop_token_ids=(7,), temperature=0.5, top_p=0.9, top_k=3), Kept())
    asked = server.asked[0]
    wanted = {"temperature": 0.5, "top_p": 0.9, "top_k": 3, "max_tokens": 6, "stop_token_ids": [7], "ignore_eos": False}
    wanted |= {"min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
    assert wanted.items() <= asked.items() and asked["prompt"] == [1, 2, 0] and isinstance(asked["seed"], int)
    assert asked["stream"] and asked["stream_options"]["include_usage"] and "stop" not in asked
    salts = [one["cache_salt"] for one in server.asked]
    assert len(set(salts)) == len(salts) == 4, "no request may hit another's prefix"


def test_requests_of_the_warm_up_have_ended_before_the_first_block(serve, monkeypatch):
    """A server may go on with those that the client has left."""
    server, answers = serve(kind="plain", delay_s=0.01), []
    complete = HttpDeployment._complete
    monkeypatch.setattr(HttpDeployment, "_complete", lambda self, *of: answers.append(of[0]) or complete(self, *of))
    warmup = WarmUp(window_s=0.001, tolerance=1e9, max_s=60.0)
    deployment_of(server, concurrency=4).warm_up(load_of(40), warmup)
    assert warmup.is_stable and 4 < len(server.asked) == len(answers)
    assert not any(answer.error for answer in answers)


def test_switches_that_are_off_are_sent_as_off(serve):
    server = serve(kind="llama.cpp")
    deployment_of(server).measure(load_of(1), Kept())
    asked = server.asked[0]
    assert asked["top_k"] == -1 and asked["cache_prompt"] is False and asked["min_p"] == 0.0
    assert "stop_token_ids" not in asked and "return_token_ids" not in asked and 0 <= asked["seed"] < 2**31


def test_rows_of_vllm(serve):
    # Pieces apart, and a block that is long, for a client and a pacer that wait for a busy core.
    server = serve(kind="vllm", sizes=(3, 1), speculates=True, details="detailed", overshoot=1, delay_s=0.03)
    sink, deployment = Kept(), deployment_of(server)
    deployment.measure(load_of(4, max_tokens=9), sink)
    assert sorted(row.request_id for row in sink.requests) == [0, 1, 2, 3]
    for row in sink.requests:
        assert (row.finish_reason, row.num_output_tokens, row.num_prompt_tokens, row.error) == ("length", 9, 3, "")
        assert row.output_token_ids == list(range(9)) and row.prompt_id == f"p{row.request_id}"
        assert row.t_submit_ns < row.t_first_ns < row.t_last_ns
    steps = [row for row in sink.steps if row.request_id == 2]
    assert [row.num_emitted for row in steps] == [1, 3, 1, 3, 1] and [row.num_accepted for row in steps[1:]] == [
        2,
        0,
        2,
        1,
    ]
    assert [row.truncated for row in steps[1:]] == [False, False, False, True]
    times = [row.t_host_ns for row in steps]
    assert times == sorted(times) and times[0] == next(r.t_first_ns for r in sink.requests if r.request_id == 2)
    counted = {name: value for name, value in sink.counters.items() if "num_" in name}
    assert counted["engine.spec_decode_num_drafts"] == counted["engine.answers_num_drafts"] == 16
    assert counted["engine.spec_decode_num_accepted_tokens"] == counted["engine.answers_num_accepted_tokens"] == 20
    assert 0 < sink.counters["client.delay_p50_ns"] <= sink.counters["client.delay_p99_ns"]
    # A fifth of the median gap: nought where the machine was so busy that a stream arrived in one piece.
    assert 0 <= sink.counters["client.delay_limit_ns"] <= 10_000_000


@pytest.mark.parametrize(
    ("kind", "has_ids"), [("vllm", True), ("sglang", True), ("llama.cpp", False), ("plain", False)]
)
def test_what_turned_out_to_be_known(serve, kind, has_ids):
    server = serve(kind=kind, sizes=(2,), speculates=True, details="summary")
    deployment = deployment_of(server)
    warmup = WarmUp(window_s=0.001, max_s=0.2)
    deployment.warm_up(load_of(), warmup)
    known = deployment.capabilities
    assert known.knows(Fact.TOKEN_IDS) == known.knows(Fact.ACCEPTANCE) == known.knows(Fact.SCORES) == has_ids
    assert (
        not known.knows(Fact.ROUNDS) and known.unknown[Fact.ROUNDS] == "a server does not report its steps to clients"
    )
    assert deployment.described.version == {"vllm": "0.32.0", "sglang": "0.5.23", "llama.cpp": "b7000"}.get(kind)


def test_a_server_that_does_not_speculate_has_rounds_of_a_token(serve):
    sink = Kept()
    deployment_of(serve(kind="llama.cpp")).measure(load_of(1), sink)
    assert [row.num_emitted for row in sink.steps] == [1] * 6 and {row.num_proposed for row in sink.steps} == {0}


@pytest.mark.parametrize("kind", ["vllm", "llama.cpp"])
@pytest.mark.parametrize("page", ["<html>all of {our} pages</html>", "# TYPE http_requests_total counter\n"])
def test_a_page_without_counters_tells_nothing(serve, kind, page):
    """A proxy may answer any address with its own page; that of vLLM without statistics was read as `no drafts`."""
    server, sink = serve(kind=kind, sizes=(3,), speculates=True, page=page), Kept()
    deployment = deployment_of(server)
    assert deployment.server.speculates is (None if kind == "vllm" else True)
    deployment.measure(load_of(2), sink)
    assert len(sink.requests) == 2 and {row.num_proposed for row in sink.steps} == {None}
    assert not any("spec_decode" in name for name in sink.counters)


def test_chat(serve):
    server, sink = serve(kind="vllm"), Kept()
    deployment_of(server, api="chat", as_ids=False).measure(load_of(2), sink)
    assert server.asked[0]["messages"] == [{"role": "user", "content": "word 0"}] and "prompt" not in server.asked[0]
    assert [row.num_output_tokens for row in sink.requests] == [6, 6] and "/v1/chat/completions" in server.paths


def test_a_conversation_is_sent_with_all_its_messages_or_not_at_all(serve):
    """Its text is the last message only: sent as text, two conversations with the same end would be the same."""
    talk = tuple({"role": role, "content": f"{role} {n}"} for n, role in enumerate(("system", "user")))
    load = load_of(1)
    load = replace(load, prompts=[replace(load.prompts[0], text="user 1", messages=talk)])
    server = serve(kind="plain")
    chatting = deployment_of(server, api="chat")
    chatting.check(load)
    chatting.measure(load, Kept())
    assert [asked["messages"] for asked in server.asked] == [list(talk)] * 2
    with pytest.raises(ValueError, match="prompt p0 is a conversation, .*: give engine.api=chat, or token ids"):
        deployment_of(server).check(load)
    deployment_of(serve(kind="vllm")).check(load)
    estimate = ByteGroups()
    assert estimate.apply_chat_template(list(talk)) != estimate.apply_chat_template(list(talk[1:]))


def test_at_most_so_many_are_in_flight(serve):
    server = serve(delay_s=0.005)
    deployment_of(server, concurrency=3).measure(load_of(9, concurrency=3), Kept())
    assert server.most_in_flight == 3
    assert eventually(lambda: server.num_ended == 9), "its thread may count after the client has read the end"


def test_arrivals_are_kept(serve, monkeypatch):
    """From the start on: the first request itself may be late on a busy machine, and the others are not then."""
    sink, began_ns, send_all = Kept(), [], sender.send_all

    async def sent(*words) -> None:
        began_ns.append(time.monotonic_ns())
        await send_all(*words)

    monkeypatch.setattr(sender, "send_all", sent)
    deployment_of(serve(), concurrency=50).measure(load_of(4, concurrency=50, gap_s=0.05), sink)
    (start_ns,), submits = began_ns, sorted(row.t_submit_ns for row in sink.requests)
    assert all(at - start_ns >= n * 50e6 - 1e6 for n, at in enumerate(submits)), "never before its time"


def test_a_cancelled_block_ends_what_is_in_flight(serve):
    server, sink = serve(delay_s=0.02), Kept(most=2)
    deployment_of(server).measure(load_of(50, max_tokens=3), sink)
    assert 2 <= len(sink.requests) < 10 and {row.finish_reason for row in sink.requests} == {"length"}


def test_prefix_hits_are_counted(serve):
    sink = Kept()
    deployment_of(serve(cached=16)).measure(load_of(3), sink)
    assert sink.counters["engine.cached_prompt_tokens"] == 48


@pytest.mark.parametrize(("kind", "path"), [("vllm", "/reset_prefix_cache"), ("sglang", "/flush_cache")])
def test_reset_empties_the_prefix_cache(serve, kind, path):
    server = serve(kind=kind)
    deployment_of(server).reset()
    assert server.paths[-1] == path
    plain = serve(kind="plain")
    before = len(plain.paths)
    deployment_of(plain).reset()
    assert not any(path in plain.paths[before:] for path in ("/reset_prefix_cache", "/flush_cache"))


def test_texts_are_cut_at_stop_strings(serve):
    server, sink = serve(kind="vllm"), Kept()
    sampling = SamplingParams(max_tokens=6)
    asked = [
        PromptRequest(id=n, key=f"k{n}", prompt_ids=(), text="x", sampling=sampling, stop=(" w2",)) for n in (4, 9)
    ]
    texts = deployment_of(server).generate(asked, sink)
    assert (
        texts == {4: " w0 w1", 9: " w0 w1"}
        and server.asked[0]["stop"] == [" w2"]
        and "cache_salt" not in server.asked[0]
    )
    assert sorted(row.request_id for row in sink.requests) == [4, 9]


def test_an_answer_that_the_server_aborted_is_none(serve, monkeypatch):
    """Accuracy scored the part that had come as the answer."""
    server, sink = serve(kind="vllm"), Kept()
    piece = server._piece
    monkeypatch.setattr(server, "_piece", lambda *of: _with(piece(*of), finish_reason="abort" if of[-1] else None))
    with pytest.raises(RuntimeError, match="^1 of 1 requests failed: abort$"):
        deployment_of(server).generate([load_of().request(0)], sink)
    assert not sink.requests
    deployment_of(server).measure(load_of(1), sink)
    assert [row.finish_reason for row in sink.requests] == ["abort"]


def _with(chunk: dict, **changes: object) -> dict:
    return {**chunk, "choices": [{**chunk["choices"][0], **changes}]}


def test_scores(serve):
    deployment = deployment_of(serve(kind="vllm"))
    scored = deployment.score([1, 2, 3, 4, 5], 2)
    assert scored.log_prob == -2.5 and not scored.is_greedy
    assert deployment.score([1, 2, 3, 4, 5], 1).log_prob == -2.0
    with pytest.raises(ValueError, match="a score needs scores; llama.cpp gives no log-probabilities of prompts"):
        deployment_of(serve(kind="llama.cpp")).score([1, 2], 1)


def test_traces_are_refused(serve):
    with pytest.raises(ValueError, match="no rounds to trace; a server does not report its steps to clients"):
        deployment_of(serve()).trace(load_of(), 3, None)  # type: ignore[arg-type]


def test_a_field_that_the_server_does_not_take_is_named(serve):
    deployment = deployment_of(serve(kind="plain"))
    deployment.check(load_of())
    with pytest.raises(ValueError, match=r"it refuses the field top_k \(400: Unrecognized .*: top_k\)$"):
        deployment.check(load_of(top_k=5))
    with pytest.raises(ValueError, match="stop_token_id: 9 is not allowed; OpenAI-compatible server takes no"):
        deployment.check(load_of(stop_token_ids=(9,)))


def test_prompts_without_words_need_ids(serve):
    load = load_of(1)
    ids_only = type(load.prompts[0])(id="r", token_ids=(1,), max_tokens=2, text="")
    wordless = type(load)(**{n: getattr(load, n) for n in load.__slots__} | {"prompts": [ids_only]})
    deployment_of(serve(kind="vllm")).check(wordless)
    with pytest.raises(ValueError, match="prompt r has token ids and no text"):
        deployment_of(serve(kind="plain")).check(wordless)


@pytest.mark.parametrize(
    ("kind", "speculates", "label", "said"),
    [
        ("vllm", True, "no-spec", "it speculates; label it as-served"),
        ("vllm", False, "eagle", "it does not speculate; label it no-spec"),
        ("sglang", True, "ngram", "it speculates by eagle3"),
        ("sglang", True, "eagle", None),
        ("sglang", False, "no-spec", None),
        ("llama.cpp", True, "no-spec", "it speculates"),
        ("llama.cpp", True, "mine", None),
        ("plain", True, "no-spec", None),
        ("vllm", True, "as-served", None),
    ],
)
def test_labels_are_checked_against_what_the_server_tells(serve, kind, speculates, label, said):
    server = identify(Endpoint.parse(serve(kind=kind, speculates=speculates).url, ApiKey("")))
    if said is None:
        server.check_label(label)
        return
    with pytest.raises(ValueError, match=re.escape(said)):
        server.check_label(label)


def test_the_served_name(serve):
    server = identify(Endpoint.parse(serve(models=("a", "b")).url, ApiKey("")))
    assert server.model("default", "default") == "a" and server.model("b", "default") == "b"
    with pytest.raises(ValueError, match="model: 'c' is not served at .*; served: a, b"):
        server.model("c", "default")


@pytest.mark.parametrize(
    "url", ["http://[::1/v1", "http://x:99999/v1", "http://x:port/v1", "http://x/v1#part", "http://a..b/v1"]
)
def test_addresses_that_cannot_be_asked(url):
    with pytest.raises(ValueError, match=r"^base_url: .* is not allowed; allowed: http://HOST:PORT/v1$"):
        Endpoint.parse(url, ApiKey(""))
    assert Endpoint.parse("http://[::1]:8000", ApiKey("")).base_url == "http://[::1]:8000/v1"


@pytest.mark.parametrize("url", ["ftp://x/v1", "x:80", "http://", "http://me:secret@x:y/v1", "http://x/v1?key=secret"])
def test_addresses_that_are_none(url):
    with pytest.raises(ValueError, match="^base_url: ") as caught:
        Endpoint.parse(url, ApiKey(""))
    assert "secret" not in str(caught.value)


def test_it_works_beside_another_loop(serve):
    """As in a notebook."""
    server, sink = serve(), Kept()

    async def cell() -> None:
        deployment_of(server).measure(load_of(2), sink)

    asyncio.run(cell())
    assert len(sink.requests) == 2


def test_a_connection_that_llama_cpp_closes_is_not_used_again(serve):
    """It closes them behind a stream, without a header that says so."""
    sink, deployment = Kept(), deployment_of(serve(kind="llama.cpp", delay_s=0.002))
    deployment.measure(load_of(6, max_tokens=9), sink)
    assert [row.error for row in sink.requests] == [""] * 6
