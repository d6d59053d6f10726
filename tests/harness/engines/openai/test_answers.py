"""Answers as servers send them: vLLM 0.32, SGLang 0.5.23, llama.cpp, and ones that are broken."""

from __future__ import annotations

import json
import re

import pytest

from specbench.harness.engines.openai.answers import read_answer
from specbench.harness.engines.openai.reports import SpecDecoding, SpecTokensDetails, Timings
from specbench.harness.engines.openai.stream import Exchange

DONE = "[DONE]"


def exchange_of(*events: dict | str, status: int = 200, fault: str = "") -> Exchange:
    """Event n came at 10 n ns."""
    texts = [event if isinstance(event, str) else json.dumps(event) for event in events]
    pieces = [(10 * n, f"data: {text}\n\n".encode()) for n, text in enumerate(texts)]
    return Exchange(t_submit_ns=-5, status=status, pieces=pieces, fault=fault)


def choice(text: str, ids: list[int] | None = None, finish: str | None = None) -> dict:
    told = {} if ids is None else {"token_ids": ids}
    return {"choices": [{"index": 0, "text": text, "logprobs": None, "finish_reason": finish, **told}]}


def usage(prompt: int, output: int, **more: object) -> dict:
    total = {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}
    return {"choices": [], "usage": total, **more}


def test_vllm():
    spec = {
        "mean_acceptance_length": 2.0,
        "draft_acceptance_rate": 0.5,
        "acceptance_histogram": [0, 1, 0],
        "num_spec_steps": 1,
        "num_accepted_draft_tokens": 1,
        "num_draft_tokens": 2,
        "num_spec_tokens": 2,
        "per_step_accepted": [1],
        "per_step_drafted": [2],
    }
    first = choice(" a", [5])
    first["choices"][0]["prompt_token_ids"] = [1, 2]
    last = usage(2, 4, metrics={"time_to_first_token_ms": None, "speculative_decoding": spec})
    answer = read_answer(exchange_of(first, choice(" b c", [6, 7]), choice("", [2], "stop"), last, DONE))
    assert (answer.error, answer.text, answer.token_ids) == ("", " a b c", [5, 6, 7, 2])
    assert (answer.num_prompt_tokens, answer.num_output_tokens, answer.finish_reason) == (2, 4, "stop")
    assert answer.tokens_per_piece == [1, 2, 1] and [piece.t_ns for piece in answer.pieces] == [0, 10, 20]
    assert isinstance(answer.speculation, SpecDecoding) and answer.speculation.per_step_accepted == [1]


def test_sglang_ends_with_an_empty_chunk():
    details = {"spec_accept_rate": 0.5, "spec_verify_ct": 2, "spec_num_correct_drafts": 1, "spec_cap_length": 0.0}
    ext = {"choices": [], "sglext": {"spec_tokens_details": {**details, "spec_correct_drafts_histogram": [1, 1]}}}
    answer = read_answer(
        exchange_of(choice(" a", [5]), choice(" b c", [6, 7]), choice("", [], "length"), ext, usage(2, 3), DONE)
    )
    assert answer.tokens_per_piece == [1, 2] and answer.finish_reason == "length" and answer.error == ""
    assert isinstance(answer.speculation, SpecTokensDetails) and answer.speculation.spec_verify_ct == 2


def test_llama_cpp_tells_sums():
    answer = read_answer(
        exchange_of(
            timed("a", 1), timed("b", 3), timed("", 3, "stop", draft_n=4, draft_n_accepted=1), usage(9, 3), DONE
        )
    )
    assert answer.tokens_per_piece == [1, 2] and answer.token_ids is None
    assert answer.speculation == Timings(predicted_n=3, draft_n=4, draft_n_accepted=1)


def test_chat_with_the_role_first_and_no_counts_of_pieces():
    def delta(finish: str | None = None, **of: str) -> dict:
        return {"choices": [{"index": 0, "delta": of, "finish_reason": finish}]}

    details = {"prompt_tokens_details": {"cached_tokens": 4}}
    answer = read_answer(
        exchange_of(
            delta(role="assistant", content=""),
            delta(reasoning_content="hm"),
            delta(content=" x"),
            delta("stop"),
            {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 3, **details}},
            DONE,
        )
    )
    assert answer.text == "hm x" and answer.num_output_tokens == 3 and answer.num_cached_tokens == 4
    assert [piece.t_ns for piece in answer.pieces] == [10, 20, 30] and answer.tokens_per_piece is None


@pytest.mark.parametrize("unknown", [-1, None])
def test_cached_tokens_that_a_server_does_not_know_fail_nothing(unknown):
    """No figure of the request depends on them."""

    def of_cache(num_cached: int | None) -> dict:
        return {"choices": [], "usage": {"prompt_tokens_details": {"cached_tokens": num_cached}}}

    begin = (choice("a", None, "length"), usage(9, 3))
    untold, told = (
        read_answer(exchange_of(*begin, *more, DONE))
        for more in ([of_cache(unknown)], [of_cache(4), of_cache(unknown)])
    )
    assert (untold.error, untold.num_output_tokens, untold.num_cached_tokens) == ("", 3, None)
    assert told.num_cached_tokens == 4


def test_without_usage_counts_come_from_ids_or_not_at_all():
    with_ids = read_answer(exchange_of(choice("a", [1]), choice("b", [2, 3], "length"), DONE))
    assert with_ids.num_output_tokens == 3 and with_ids.num_prompt_tokens is None
    without = read_answer(exchange_of(choice("a"), choice("b", None, "length"), DONE))
    assert without.num_output_tokens is None and without.error == ""


@pytest.mark.parametrize("no_more", [{}, {"completion_tokens": None}, {"prompt_tokens": None}])
def test_counts_that_a_usage_lacks_are_not_zero(no_more):
    """Some servers send `choices: null` with it."""
    last = {"choices": None, "usage": no_more}
    told = read_answer(exchange_of(choice("a", None, "length"), usage(9, 3), last, DONE))
    assert (told.num_prompt_tokens, told.num_output_tokens, told.error) == (9, 3, "")
    untold = read_answer(exchange_of(choice("a", None, "length"), last, DONE))
    assert (untold.num_prompt_tokens, untold.num_output_tokens, untold.error) == (None, None, "")


def chat(content: str, finish: str | None = None, **more: object) -> dict:
    return {"choices": [{"index": 0, "delta": {"content": content}, "finish_reason": finish, **more}]}


def test_ids_that_are_not_all_there_are_none():
    """The chat API of older vLLM counts the tokens that its parsers hide, and sends no ids of them."""
    answer = read_answer(exchange_of(chat("a", token_ids=[1]), chat("b", "length", token_ids=[2]), usage(1, 3), DONE))
    assert answer.token_ids is None and answer.tokens_per_piece is None
    assert answer.num_output_tokens == 3 and not answer.error


def timed(text: str, num: int, finish: str | None = None, **more: int) -> dict:
    return {**choice(text, None, finish), "timings": {"predicted_n": num, "predicted_ms": 1.5, **more}}


@pytest.mark.parametrize(
    "events",
    [
        [choice("", [1]), choice("\u00fc", [2]), choice("", [0], "stop"), usage(1, 3)],  # half a character; an end
        [choice("a", [1]), choice("bc", [2]), choice("d", [], "stop"), usage(1, 2)],  # held back for a stop string
        [choice("a", [1]), choice("", None, "stop"), usage(1, 2)],  # the end's id is not told
        [timed("a", 1), timed("b", 3), choice("", None, "stop"), usage(9, 5)],  # llama.cpp: drafts behind the end
        [chat("a"), chat("b"), chat("", "stop"), usage(9, 1)],  # reasoning and answer of one token
        [chat("ab"), chat("", "stop"), usage(9, 40)],  # hidden reasoning
        [choice("", None, "stop"), usage(9, 0)],
        [choice("", [], "stop"), usage(9, 0)],
    ],
)
def test_counts_of_correct_servers_differ_in_these_ways(events):
    assert read_answer(exchange_of(*events, DONE)).error == ""


def test_of_a_usage_with_each_piece_the_last_holds():
    """vLLM with continuous_usage_stats."""
    events = [choice(" a", [n], "length" if n == 3 else None) | {"usage": usage(2, n)["usage"]} for n in (1, 2, 3)]
    answer = read_answer(exchange_of(*events, usage(2, 3), DONE))
    assert (answer.error, answer.num_output_tokens, answer.token_ids) == ("", 3, [1, 2, 3])


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([choice("a", [1]), choice("b", [2], "length"), usage(1, 8)], "output tokens: the server counted 8 and sent 2"),
        ([choice("a", [1]), choice("b", [2], "length"), usage(1, 1)], "output tokens: the server counted 1 and sent 2"),
        (
            [chat("a", token_ids=[1]), chat("b", "stop", token_ids=[2]), usage(1, 1)],
            "output tokens: the server counted 1 and sent 2",
        ),
        ([timed("a", 2), timed("b", 3, "length"), usage(1, 2)], "output tokens: the server counted 2 and sent 3"),
        ([timed("a", 5), timed("b", 3, "length"), usage(1, 3)], "the server's running count of tokens went down"),
        ([choice("a", None, "length"), usage(1, 0)], "counted 0 and sent 1 texts; a proxy splits"),
        (
            [*[choice("a")] * 11, choice("a", None, "length"), usage(1, 1)],
            "counted 1 and sent 12 texts; a proxy splits",
        ),
        ([timed("a", 2, "stop", draft_n=1, draft_n_accepted=2), usage(1, 2)], "itself: 2 accepted of 1 drafts"),
    ],
)
def test_an_answer_that_contradicts_itself_has_no_counts(events, said):
    answer = read_answer(exchange_of(*events, DONE))
    assert said in answer.error and answer.text.startswith("a") and answer.pieces
    assert answer.num_output_tokens is answer.num_prompt_tokens is answer.speculation is answer.token_ids is None
    assert answer.is_refused and all(piece.num_tokens is None for piece in answer.pieces)


@pytest.mark.parametrize(
    ("report", "said"),
    [
        (SpecDecoding(4), "4 rounds for 3 output tokens"),
        (SpecDecoding(2, 4, 5), "5 accepted of 4 drafts"),
        (SpecDecoding(2, 1 << 20, 1), "1048576 drafts in 2 rounds; allowed: 65536 in each"),
        (SpecDecoding(1, 1 << 20, 0, [], [1 << 20], [0]), "0 accepted of 1048576 drafts in one round; allowed: 65536"),
        (
            SpecDecoding(2, 6, 2, [], [3, 3], [1]),
            "num_spec_steps is 2, per_step_drafted has 2 and per_step_accepted 1 entries",
        ),
        (
            SpecDecoding(1, 6, 2, [], [3, 3], [1, 1]),
            "num_spec_steps is 1, per_step_drafted has 2 and per_step_accepted 2 entries",
        ),
        (SpecDecoding(2, 6, 2, [], [3, 3], [1, 0]), "num_accepted_draft_tokens is 2, and its rounds have 1"),
        (SpecDecoding(2, 6, 5, [], [3, 3], [1, 4]), "4 accepted of 3 drafts in one round"),
        (SpecTokensDetails(1, 4, 3), "4 accepted of 3 drafts"),
        (Timings(draft_n=3, draft_n_accepted=4), "4 accepted of 3 drafts"),
    ],
)
def test_a_report_says_where_it_contradicts_itself(report, said):
    assert report.contradiction(3).startswith(said)


@pytest.mark.parametrize(
    "report", [SpecDecoding(), SpecDecoding(2, 6, 4, [], [4, 2], [3, 1]), SpecTokensDetails(2, 1), Timings(draft_n=1)]
)
def test_a_report_that_can_be_true(report):
    """SGLang did not always report how many drafts it had."""
    assert report.contradiction(3) == report.contradiction(None) == ""


def test_tokens_that_were_never_sent_have_no_time():
    """Its first token would come before it was asked for, and keep every limit on TTFT."""
    answer = read_answer(exchange_of(choice("", [], "stop"), usage(9, 3), DONE))
    assert not answer.pieces and answer.error == "output tokens: the server counted 3 and sent none"
    none = read_answer(exchange_of(choice("", [], "stop"), usage(9, 0), DONE))
    assert not none.pieces and none.error == ""


@pytest.mark.parametrize(
    ("exchange", "said"),
    [
        (exchange_of(choice("a"), '{"choices": [{"te'), "malformed chunk: "),
        (exchange_of({"choices": [{"text": 5}]}), "malformed chunk: "),
        (exchange_of(choice("a", [1 << 40])), "malformed chunk: token_ids has 1099511627776; allowed: 0 to 2147483647"),
        (Exchange(0, 500, [(0, b'{"error": {"message": "\xc3"}}')]), 'the server answered 500: {"error": '),
        (Exchange(0, 200, [(0, b'{"error": {"message": "no\\nway"}}')]), "answered without a stream: no way"),
        (exchange_of(choice("a")), "the server cut the stream"),
        (exchange_of(choice("a"), fault="the stream stalled: nothing for 3 s"), "the stream stalled: nothing for 3 s"),
        (exchange_of(choice("a"), DONE), "the answer has no finish reason"),
        (exchange_of(choice("a"), {"error": {"message": "engine died"}}), "answered with an error: engine died"),
        (exchange_of({"object": "error", "message": "no memory", "code": 500}), "answered with an error: no memory"),
        (Exchange(0, 500, [(0, b'{"error": {"message": "out of\\nwords"}}')]), "the server answered 500: out of words"),
        (Exchange(0, 422, [(0, b'{"detail": [{"loc": ["top_k"]}]}')]), 'answered 422: [{"loc":["top_k"]}]'),
        (Exchange(0, 502, [(0, b"<html>bad\n gateway")]), "answered 502: <html>bad gateway"),
        (Exchange(0, 503, []), "answered 503: no reason given"),
        (Exchange(0, 0, [], "no connection: Connection refused"), "no connection: Connection refused"),
    ],
)
def test_what_went_wrong_is_one_line(exchange, said):
    answer = read_answer(exchange)
    assert said in answer.error and "\n" not in answer.error


def test_text_that_is_not_utf_8_is_a_malformed_chunk():
    answer = read_answer(Exchange(0, 200, [(0, b'data: {"choices": [{"text": "\xc3"}]}\n\n')]))
    of_msgspec = "'utf-8' codec .*|Invalid UTF-8 encoded string"  # up to 0.22, since 0.23
    assert re.fullmatch(f"malformed chunk: ({of_msgspec})", answer.error)


def test_what_came_before_a_fault_is_kept():
    answer = read_answer(exchange_of(choice("a", [1]), choice("b", [2]), "{", usage(1, 2)))
    assert answer.text == "ab" and answer.num_output_tokens == 2 and answer.error.startswith("malformed")
