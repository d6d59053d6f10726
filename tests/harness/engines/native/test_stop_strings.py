"""Conformance 8: an output ends with the token that completes a stop string, whichever rounds its tokens came in."""

from __future__ import annotations

import pytest
from toy.edits import STRATEGIES, named, scripted
from toy.engines import generate, make_engine
from toy.plans import CPU, late
from toy.prompts import text_prompt

from specbench.harness.engines.load import Load, cut_at_stop, cut_tokens, num_settled
from specbench.harness.engines.native.core.engine import Engine
from specbench.harness.engines.native.deployment import NativeDeployment
from specbench.harness.engines.native.drive import native_request
from specbench.harness.engines.native.stop_strings import StopStrings, StopWatch
from specbench.harness.run.block_sink import NullSink
from specbench.harness.spec.logit_edits import LogitEdits
from specbench.workloads.base import Prompt

DRAWN = dict(temperature=0.7, top_k=0, top_p=1.0, stop_token_ids=(), seed=4)


class Letters:
    """Token n is the letter n modulo 5, so that short strings occur soon and everywhere."""

    def decode(self, ids: list[int]) -> str:
        return "".join("abcde"[token % 5] for token in ids)


class Kept(NullSink):
    def __init__(self) -> None:
        self.rows: list = []
        self.steps: list = []

    def request(self, row) -> None:
        self.rows.append(row)

    def add_steps(self, rows) -> None:
        self.steps += rows


def load_of(*stop: str, max_tokens: int = 40, **changes) -> Load:
    prompts = [Prompt(id=f"p{n}", token_ids=text_prompt(n, 4 + n), max_tokens=max_tokens, text="") for n in range(6)]
    given = {**DRAWN, **changes}
    return Load(prompts=prompts, arrival_s=[0.0] * 6, max_concurrency=3, stop=stop, **given)


def measured(engine: Engine, load: Load) -> dict:
    kept = Kept()
    NativeDeployment(engine, Letters()).measure(load, kept)  # type: ignore[arg-type]
    assert not engine.has_work and len(kept.rows) == len(load)
    return {row.request_id: row for row in kept.rows}


def whole(plan, load: Load) -> dict[int, list[int]]:
    """What each would say without strings, one at a time and without drafts."""
    requests = [native_request(load.request(n)) for n in range(len(load))]
    return {n: done.output_ids for n, done in generate(make_engine(plan, max_num_seqs=1), requests).items()}


def by_hand(tokens: list[int], stop: tuple[str, ...], least: int = 0) -> list[int]:
    """Token by token: up to the first whose letter completes a string behind the first `least` tokens."""
    text = Letters().decode(tokens)
    for end in range(least + 1, len(tokens) + 1):
        if any(text[:end].endswith(s) for s in stop):
            return tokens[:end]
    return tokens


@pytest.mark.parametrize("strategy", [*(name for name, _ in STRATEGIES), "perfect", "tree"])
@pytest.mark.parametrize("least", [0, 9])
def test_c08_every_strategy_ends_at_the_same_token(main_plan, strategy, least):
    load = load_of("abd", "ee", "caca", edits=LogitEdits(min_tokens=least))
    texts = whole(main_plan, load)
    requests = [native_request(load.request(n)) for n in range(len(load))]
    made = named(strategy) if strategy in dict(STRATEGIES) else scripted(strategy, requests, main_plan)
    rows = measured(make_engine(main_plan, made, max_num_batched_tokens=64), load)
    expected = {n: by_hand(tokens, load.stop, least) for n, tokens in texts.items()}
    assert {n: list(row.output_token_ids) for n, row in rows.items()} == expected
    lengths = {n: row.num_output_tokens for n, row in rows.items()}
    assert lengths == {n: len(tokens) for n, tokens in expected.items()}
    assert {row.finish_reason for row in rows.values() if row.num_output_tokens < 40} == {"stop"}
    assert min(lengths.values()) < 20, "strings must end some of them"


def test_c08_however_late_the_host_reads(plan):
    load = load_of("abd", "ee")
    expected = {n: by_hand(tokens, load.stop) for n, tokens in whole(plan, load).items()}
    requests = [native_request(load.request(n)) for n in range(len(load))]
    rows = measured(make_engine(plan, scripted("cycling", requests, plan)), load)
    assert {n: list(row.output_token_ids) for n, row in rows.items()} == expected
    assert all(row.t_first_ns <= row.t_last_ns for row in rows.values())


@pytest.mark.parametrize("strategy", ["no-spec", "perfect"])
@pytest.mark.parametrize("lag", [0, 1, 4])
def test_the_log_ends_with_the_step_that_completed_the_string(strategy, lag):
    """However many rounds were launched behind it, and however many of that step's tokens were too many."""
    load, plan = load_of("abd", "ee", "cb"), late("cpu", "none", lag) if lag else CPU
    requests = [native_request(load.request(n)) for n in range(len(load))]
    made = None if strategy == "no-spec" else scripted("perfect", requests, plan)
    kept = Kept()
    NativeDeployment(make_engine(plan, made, max_num_batched_tokens=64), Letters()).measure(load, kept)  # type: ignore[arg-type]
    assert {row.finish_reason for row in kept.rows} == {"stop"}
    for row in kept.rows:
        steps = [step for step in kept.steps if step.request_id == row.request_id]
        assert sum(step.num_emitted for step in steps) == row.num_output_tokens and steps[-1].num_emitted
        assert (row.t_last_ns, row.t_last_device_ns) == (steps[-1].t_host_ns, steps[-1].t_device_ns)
        decodes = [step for step in steps if not step.is_prefill]
        assert [step.truncated for step in decodes] == [step.num_emitted <= step.num_accepted for step in decodes]
        if strategy == "perfect":  # rounds of four tokens, the last cut
            assert len(decodes) == -(-(row.num_output_tokens - 1) // 4)
            assert sum(step.truncated for step in decodes) == ((row.num_output_tokens - 1) % 4 != 0)
        else:
            assert len(decodes) == row.num_output_tokens - 1 and not any(step.truncated for step in decodes)
    if strategy == "perfect":
        assert any(step.truncated for step in kept.steps)


def test_c08_a_string_over_rounds_and_one_inside_a_round():
    """A round of perfect drafts brings 4 tokens: ends fall on each of them, and strings begin in the round before."""
    load = load_of("abd", "ee", "cb", "da")
    requests = [native_request(load.request(n)) for n in range(len(load))]
    rows = measured(make_engine(CPU, scripted("perfect", requests, CPU)), load)
    places = {(row.num_output_tokens - 2) % 4 for row in rows.values()}
    assert len(places) > 2 and 0 in places, "0: the string's last token is the round's first"


def test_no_string_costs_no_look(monkeypatch):
    monkeypatch.delattr(StopStrings, "_end")
    monkeypatch.setattr(StopWatch, "__init__", None)
    assert len(measured(make_engine(CPU), load_of())) == 6


def test_a_string_that_began_before_the_first_tokens_allowed_counts_where_it_ends():
    tokens, letters = [0, 1, 3, 0, 1, 3], Letters().decode  # abdabd
    assert [len(cut_tokens(tokens, ["abd"], letters, least)) for least in range(7)] == [3, 3, 3, 6, 6, 6, 6]
    for least, seen in ((2, 3), (3, 6)):
        watch = StopWatch(["abd"], letters, least)
        assert next(n for n in range(1, 7) if watch.is_stopped(tokens[:n])) == seen
    assert cut_at_stop("abdabd", ["abd"], 3) == "abd" and cut_at_stop("abdabd", ["abd"], 2) == ""


def by_runs(ids: list[int]) -> str:
    """What byte-level tokenizers make of bytes: one replacement character for a character that is not whole."""
    return bytes(ids).decode(errors="replace")


def by_bytes(ids: list[int]) -> str:
    """With byte fallback, one for each of its bytes."""
    data = bytes(ids)
    starts = [n for n, byte in enumerate(data) if byte & 0xC0 != 0x80] + [len(data)]
    parts = [data[a:b] for a, b in zip(starts, starts[1:], strict=False)]
    return "".join(part.decode(errors="ignore") or "\ufffd" * len(part) for part in parts)


@pytest.mark.parametrize("decode", [by_runs, by_bytes])
@pytest.mark.parametrize("stop", ["\U0001f600", "b", "c"])
@pytest.mark.parametrize("least", range(8))
def test_a_character_belongs_to_the_token_that_completes_it(decode, stop, least):
    text = "a\U0001f600bc"
    tokens = [*text.encode(), *b"xy"]
    end = len(text[: text.index(stop) + 1].encode())
    expected = end if end > least else None
    assert len(cut_tokens(tokens, [stop], decode, least)) == (expected or len(tokens))
    watch = StopWatch([stop], decode, least)
    assert next((n for n in range(1, 10) if watch.is_stopped(tokens[:n])), None) == expected
    num_before = num_settled(tokens, least, decode(tokens), decode)
    assert cut_at_stop(decode(tokens), [stop], num_before) == (text[: text.index(stop)] if expected else text + "xy")


class Sparse:
    """Three of five tokens are special: they have no text."""

    def decode(self, ids: list[int]) -> str:
        return "".join("ab"[token % 5] for token in ids if token % 5 < 2)


def test_a_string_with_special_tokens_inside_is_seen_however_its_tokens_come():
    tokens, decode = [1, *[2] * 9, 1, 0], Sparse().decode
    assert decode(tokens) == "bba" and len(cut_tokens(tokens, ["bb"], decode)) == 11
    for size in range(1, 13):
        watch, ends = StopWatch(["bb"], decode), [*range(size, 12, size), 12]
        assert next(end for end in ends if watch.is_stopped(tokens[:end])) == next(end for end in ends if end >= 11)


def test_special_tokens_inside_a_string_make_no_strategy_differ():
    load = load_of("bb")
    requests = [native_request(load.request(n)) for n in range(len(load))]
    said = []
    for strategy in (None, scripted("perfect", requests, CPU)):
        kept = Kept()
        NativeDeployment(make_engine(CPU, strategy), Sparse()).measure(load, kept)  # type: ignore[arg-type]
        said.append({row.request_id: list(row.output_token_ids) for row in kept.rows})
    whole_texts = whole(CPU, load)
    assert said[0] == said[1] == {n: cut_tokens(tokens, ["bb"], Sparse().decode) for n, tokens in whole_texts.items()}
    assert any(len(said[0][n]) < len(tokens) for n, tokens in whole_texts.items())


def test_text_needs_a_tokenizer():
    with pytest.raises(ValueError, match="stop: 'x' is not allowed; this model has no tokenizer"):
        NativeDeployment(make_engine(CPU)).check(load_of("x"))
