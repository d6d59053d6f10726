"""ShareGPT's rule, its file (whole and cut off), and what the hash of a workload notices."""

from __future__ import annotations

import json
import random

import pytest
from workloads.fakes import BOS, HEADER, CharTokenizer, conversation

from specbench.workloads import sharegpt
from specbench.workloads.assets.resolve import resolve
from specbench.workloads.base import WorkloadRequest
from specbench.workloads.sharegpt_file import first_exchanges, iter_conversations

TOKENIZER = CharTokenizer()


def write_file(path, records, cut: int | None = None):
    text = json.dumps(records, indent=2)
    path.write_text(text if cut is None else text[:cut])
    return path


def load(path, num_prompts, **changes):
    request = WorkloadRequest(name="sharegpt", path=str(path), num_prompts=num_prompts, **changes)
    return sharegpt.load(request, TOKENIZER)


@pytest.fixture
def many(tmp_path):
    return write_file(tmp_path / "s.json", [conversation(i, f"question {i}", f"answer no {i}") for i in range(30)])


@pytest.mark.parametrize(
    ("question", "answer", "taken"),
    [
        (4, 4, True),
        (3, 4, False),
        (4, 3, False),
        (1024, 1024, True),
        (1025, 4, False),
        (1024, 1025, False),
        (4, 2044, True),
        (4, 2045, False),
    ],
)
def test_the_limits_of_vllm_at_their_edges(tmp_path, question, answer, taken):
    path = write_file(tmp_path / "s.json", [conversation(0, "q" * question, "a" * answer)])
    if taken:
        (prompt,) = load(path, 1, max_model_len=4096).prompts
        assert prompt.max_tokens == answer
        assert prompt.token_ids == (BOS, *TOKENIZER.encode("q" * question), HEADER)
    else:
        with pytest.raises(ValueError, match="num_prompts: 1 is not allowed; sharegpt has 0 that pass its rule"):
            load(path, 1, max_model_len=4096)


def test_the_template_counts_towards_max_model_len(tmp_path):
    path = write_file(tmp_path / "s.json", [conversation(0, "q" * 10, "a" * 10)])
    assert len(load(path, 1, max_model_len=22).prompts) == 1
    with pytest.raises(ValueError, match=r"templated prompt \+ output <= 21"):
        load(path, 1, max_model_len=21)


def test_only_a_person_who_is_answered_counts(tmp_path):
    records = [
        conversation(0, "question", "answer", "gpt", "human"),
        conversation(1, "question", "answer", "human", "human"),
        {"id": "short", "conversations": [{"from": "human", "value": "alone"}]},
        {"id": "none", "conversations": []},
        conversation(4, "question", "answer"),
    ]
    assert [prompt.id for prompt in load(write_file(tmp_path / "s.json", records), 1).prompts] == ["4:c4"]


def test_prompts_of_the_users_own_are_told_where_they_belong(tmp_path, cache):
    mine = tmp_path / "mine.jsonl"
    mine.write_text('{"prompt": "a question"}\n')
    with pytest.raises(ValueError, match=r"mine\.jsonl: no ShareGPT conversation in it; .* --dataset-name jsonl"):
        load(mine, 1)
    assert not list(cache.rglob("*.jsonl"))


def test_output_len_replaces_the_answer_and_its_lower_limit(tmp_path):
    path = write_file(tmp_path / "s.json", [conversation(0, "question", "a")])
    workload = load(path, 1, output_len=2)
    assert workload.prompts[0].max_tokens == 2
    assert "output length 2 for all" in workload.rule and "output >= 4" not in workload.rule


def test_order_is_a_seeded_shuffle_of_the_file(many):
    expected = list(range(30))
    random.Random(7).shuffle(expected)
    assert [prompt.id for prompt in load(many, 5, seed=7).prompts] == [f"{i}:c{i}" for i in expected[:5]]
    assert load(many, 5, seed=7).sha256 == load(many, 5, seed=7).sha256 != load(many, 5, seed=8).sha256
    rule = load(many, 5, seed=7).rule
    assert "seed 7" in rule and "of 30 records whose first two turns are human, gpt" in rule


def test_a_cut_file_loses_its_last_record_only(tmp_path):
    records = [conversation(i, f"question {i} é", f"answer {i}") for i in range(5)]
    whole = write_file(tmp_path / "whole.json", records)
    assert list(iter_conversations(whole)) == records
    text = json.dumps(records, indent=2)
    for cut in (text.rindex('"answer 4') + 3, text.rindex("\n  }"), text.rindex("{")):
        assert list(iter_conversations(write_file(tmp_path / "cut.json", records, cut))) == records[:4]


def test_the_compact_file_in_the_cache_is_sealed(many, cache):
    expected = load(many, 5).sha256
    (compact,) = (cache / "derived").glob("sharegpt-*.jsonl")
    assert load(many, 5).sha256 == expected
    compact.write_bytes(compact.read_bytes().replace(b"question", b"Question", 1))
    with pytest.raises(ValueError, match=rf"{compact.name} was altered: .*; delete {compact}, and it is made again"):
        load(many, 5)
    compact.unlink()
    assert load(many, 5).sha256 == expected


def test_a_file_without_a_whole_record_or_with_a_broken_one_is_refused(tmp_path):
    records = [conversation(i, "question", "answer") for i in range(2)]
    with pytest.raises(ValueError, match="no whole ShareGPT record"):
        list(iter_conversations(write_file(tmp_path / "a.json", records, 40)))
    broken = tmp_path / "b.json"
    broken.write_text(json.dumps(records, indent=2).replace('"id"', "id", 1))
    with pytest.raises(ValueError, match=r"b\.json:\d+: record that ends here is not valid JSON"):
        list(iter_conversations(broken))


def test_a_file_written_on_one_line_is_read_too(tmp_path):
    records = [conversation(i, "question", "answer") for i in range(2)]
    path = tmp_path / "s.json"
    path.write_text(json.dumps(records))
    assert list(iter_conversations(path)) == records


def test_the_compact_copy_is_used_and_belongs_to_these_bytes(many, cache):
    asset = resolve(many)
    first = first_exchanges(asset.path, asset.sha256)
    asset.path.write_text("gone")
    assert first_exchanges(asset.path, asset.sha256) == first
    assert len(list((cache / "derived").iterdir())) == 1
    with pytest.raises(ValueError):
        first_exchanges(asset.path, resolve(many).sha256)
    assert len(list((cache / "derived").iterdir())) == 1, "a failed extraction leaves nothing"
