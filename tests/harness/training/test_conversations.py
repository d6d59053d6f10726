"""Which texts are trained on, how a conversation goes on, and what counts as a loop."""

from __future__ import annotations

import dataclasses
import json
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from specbench.harness.training.batches import Batches
from specbench.harness.training.config import GenerateConfig
from specbench.harness.training.conversations import Conversation, DataSource, excluded_keys, find_data, select
from specbench.harness.training.dialogue import Dialogue, Sample, samples
from specbench.harness.training.loops import is_loop, loop_end
from specbench.workloads.held_out import is_held_out, text_key

from .made import EOS, CharTokenizer, made_up

CONFIG = GenerateConfig(target="t", data=("d",), max_prompt_tokens=60, max_response_tokens=40, whole_loop_share=0.0)


def source(path: Path, records: list[dict], num_samples: int = 1) -> DataSource:
    path.write_text("\n".join(json.dumps(r) for r in records))
    return DataSource(name=path.stem, path=path, sha256="", source="file:x", num_samples=num_samples)


def chat(name: str, *turns: str) -> dict:
    parts = [{"from": who, "value": t} for t in turns for who in ("human", "gpt")]
    return {"id": name, "conversations": parts}


def held_and_free() -> tuple[list[str], list[str]]:
    names = [f"n{i}" for i in range(200)]
    return [n for n in names if is_held_out(n)], [n for n in names if not is_held_out(n)]


def test_one_conversation_in_twenty_is_held_out_with_all_its_parts():
    held, free = held_and_free()
    assert 3 <= len(held) <= 20
    assert all(is_held_out(f"{n}_{part}") for n in held for part in (0, 7))
    assert not any(is_held_out(f"{n}_{part}") for n in free for part in (0, 7))


def test_evaluation_texts_and_duplicates_are_left_out(tmp_path):
    (held, *_), free = held_and_free()
    records = [
        chat(f"{held}_0", "kept for evaluation"),
        chat(free[0], "KEPT  for evaluation"),  # the same text under another name
        chat(free[1], "fine", "what is two and two?"),  # says a test question later on
        chat(free[2], "good", "more", "and more", "too many"),
        chat(free[3], " good "),
        {"id": "bot", "conversations": [{"from": "gpt", "value": "hello"}]},
    ]
    chats = source(tmp_path / "chats.jsonl", records, num_samples=3)
    test = source(tmp_path / "test.jsonl", [{"question": "What is two and  two?"}])
    excluded = excluded_keys(["test"], lambda name: test)
    assert excluded == {text_key("what is two and two?")}
    result = select([chats], excluded, 0, 3, 0)
    assert [(c.turns, c.num_samples) for c in result.conversations] == [(("good", "more", "and more"), 3)]
    assert (result.num_held_out, result.num_excluded, result.num_duplicates) == (1, 2, 1)


def test_every_evaluation_set_can_be_left_out(tmp_path):
    """Records as HumanEval, MT-Bench and GSM8K's evaluation requests have them; of MT-Bench both turns count."""
    tests = {
        "humaneval": source(tmp_path / "h.jsonl", [{"task_id": "HumanEval/0", "prompt": "def f():\n"}]),
        "mt-bench": source(tmp_path / "m.jsonl", [{"question_id": 81, "category": "writing", "turns": ["a b", "c"]}]),
        "gsm8k": source(tmp_path / "g.jsonl", [{"doc": {"question": "how many?", "answer": "1"}, "request": {}}]),
    }
    excluded = excluded_keys(list(tests), tests.__getitem__)
    assert excluded == {text_key(text) for text in ("def f():", "a b", "c", "how many?")}
    chats = [chat(f"n{n}", text) for n, text in enumerate(("fine", "def f():", "how many?"))]
    chats.append(chat("n9", "good", "C"))
    free = source(tmp_path / "c.jsonl", [c for c in chats if not is_held_out(c["id"])])
    result = select([free], excluded, 0, 3, 0)
    assert [c.turns for c in result.conversations] == [("fine",)] and result.num_excluded == 3


def test_the_seed_orders_and_num_prompts_cuts(tmp_path):
    s = source(tmp_path / "q.jsonl", [{"question": f"q{i}"} for i in range(50)])
    a, b, c = (select([s], (), 0, 1, seed).conversations for seed in (0, 0, 1))
    assert a == b and a != c and sorted(x.id for x in a) == sorted(x.id for x in c)
    assert select([s], (), 7, 1, 0).conversations == a[:7]


def test_records_of_an_unknown_form_are_refused_by_place(tmp_path):
    s = source(tmp_path / "q.jsonl", [{"question": "a"}, {"text": "b"}])
    with pytest.raises(
        ValueError, match="q.jsonl: record 2 has none of conversations, messages, turns, question, prompt"
    ):
        select([s], (), 0, 1, 0)


@pytest.mark.parametrize("count", ["0", "x", ""])
def test_a_bad_number_of_samples_is_refused(tmp_path, count):
    with pytest.raises(ValueError, match="data: .* samples a prompt are not allowed"):
        find_data(f"{tmp_path}*{count}", 1)


def test_samples_take_turns_and_are_greedy_once_at_most():
    conversations = [Conversation(id=str(i), turns=("x",), num_samples=1 + i % 3) for i in range(300)]
    drawn = list(samples(conversations, CONFIG))
    assert len(drawn) == 600 and [s.index for s in drawn] == sorted(s.index for s in drawn)
    greedy = [s for s in drawn if s.temperature == 0]
    assert all(s.index == 0 for s in greedy) and 0.38 < len(greedy) / 600 < 0.48  # 50 + 100 + 100 of 600
    assert all(0.7 <= s.temperature <= 1.0 for s in drawn if s.temperature)
    assert len({s.seed for s in drawn}) == 600 and drawn == list(samples(conversations, CONFIG))


def dialogue(*turns: str, config: GenerateConfig = CONFIG) -> Dialogue:
    conversation = Conversation(id="c", turns=turns)
    return Dialogue(Sample(conversation=conversation, index=0, temperature=0.0, seed=0), CharTokenizer(), config)


def test_a_second_turn_continues_the_sequence_token_by_token():
    d = dialogue("ab", "cd")
    first = d.next_prompt()
    assert first is not None
    d.answer([40, 41, EOS])
    second = d.next_prompt()
    assert second is not None and second[: len(first) + 3] == [*first, 40, 41, EOS]
    d.answer([50, 51])
    assert d.next_prompt() is None
    (s,) = d.finished
    assert s.token_ids == [*second, 50, 51]
    spans = [s.token_ids[a:b] for a, b in zip(s.span_starts, s.span_ends, strict=True)]
    assert spans == [[40, 41, EOS], [50, 51]]


def test_a_turn_that_is_rendered_otherwise_begins_a_new_sequence():
    d = dialogue("ab", "cd")
    d.tokenizer.decode = lambda ids: "other"  # type: ignore[method-assign]
    d.next_prompt()
    d.answer([40, 41, EOS])
    d.next_prompt()
    d.answer([50, 51])
    assert d.next_prompt() is None and len(d.finished) == 2
    assert [len(s.span_starts) for s in d.finished] == [1, 1] and {s.id for s in d.finished} == {"c#0.0", "c#0.1"}


def test_too_long_a_prompt_and_a_loop_end_the_conversation():
    assert dialogue("a" * 80).next_prompt() is None
    assert dialogue("a" * 10_000).next_prompt() is None
    d = dialogue("ab", "cd")
    d.next_prompt()
    response = [7, 8, 9] * 12
    d.answer(response)
    assert d.next_prompt() is None
    (s,) = d.finished
    end = loop_end(response)
    assert s.looped and end == 17 and s.num_cut_tokens == 36 - 17
    assert s.token_ids[s.span_starts[0] :] == response[:17]


def test_whole_loops_are_kept_as_often_as_asked():
    d = dialogue("ab", config=dataclasses.replace(CONFIG, whole_loop_share=1.0))
    d.next_prompt()
    d.answer([7, 8, 9] * 12)
    d.next_prompt()
    assert d.finished[0].num_cut_tokens == 0 and len(d.finished[0].token_ids) == 4 + 1 + 36


def test_loops_are_found_as_by_counting():
    rng = random.Random(0)
    found = 0
    for _ in range(300):
        ids = [rng.randrange(3) for _ in range(rng.randint(0, 12))] * rng.randint(1, 6)
        grams = Counter(tuple(ids[i : i + 8]) for i in range(len(ids) - 7))
        assert is_loop(ids) == (max(grams.values(), default=0) >= 4)
        end = loop_end(ids)
        found += end is not None
        if end is not None:
            assert is_loop(ids[:end]) and not is_loop(ids[: end - 1])
    assert not is_loop([1] * 10) and is_loop([1] * 11) and found > 30


def test_batches_hold_every_sequence_once_and_their_loss_rows_are_drafts_of_responses(tmp_path):
    s = made_up(tmp_path)
    unroll = 3
    batches = Batches(s, 400, 64, unroll, seed=1)
    plan = batches.plan(0)
    assert sorted(np.concatenate(batches.members)) == list(range(len(s)))
    assert plan == batches.plan(0) != batches.plan(1)
    assert sorted(plan) == sorted(batches.plan(1)) == list(range(len(batches)))
    again = Batches(s, 400, 64, unroll, seed=1)
    assert [list(b) for b in again.members] == [list(b) for b in batches.members]
    for number in plan:
        batch, numbers = batches.make(number), batches.members[number]
        num, width = batch.ids_BT.shape
        assert num * width <= 400
        ids, row_of = batch.ids_BT.flatten().tolist(), batch.target_row_Q.tolist()
        response = np.zeros((num, width + 8), dtype=bool)
        for i, n in enumerate(numbers):
            a, b = s.offset_N1[n], s.offset_N1[n + 1]
            assert ids[i * width : i * width + b - a] == s.token_T[a:b].tolist()
            response[i, : b - a] = s.is_response_T[a:b]
        for k in range(unroll):
            expected = [
                i * width + p for i in range(num) for p in range(width) if response[i, p + 1] and response[i, p + 2 + k]
            ]
            assert batch.loss_row_R[k].tolist() == expected
            assert [row_of[t] for t in batch.loss_target_R[k].tolist()] == [r + 1 + k for r in expected]
