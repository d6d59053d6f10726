"""A user's file: what it may hold, and that every mistake is named with its line."""

from __future__ import annotations

import gzip
import json

import pytest
from workloads.fakes import BOS, HEADER, CharTokenizer, write_jsonl

from specbench.workloads import jsonl
from specbench.workloads.base import WorkloadRequest
from specbench.workloads.records import read_records

TOKENIZER = CharTokenizer()


def load(path, **changes):
    settings = {"name": "jsonl", "path": str(path), "num_prompts": 1, "max_model_len": 64, **changes}
    return jsonl.load(WorkloadRequest(**settings), TOKENIZER)


def test_three_ways_to_give_a_prompt(tmp_path):
    records = [
        {"prompt": "ab", "max_tokens": 5, "id": "x", "category": "c", "reference": "r"},
        {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}], "output_len": 6},
        {"prompt_token_ids": [75, 76], "max_tokens": 50},
    ]
    workload = load(write_jsonl(tmp_path / "p.jsonl", records), num_prompts=3)
    first, second, third = workload.prompts
    assert (first.id, first.token_ids, first.max_tokens) == ("x", tuple(TOKENIZER.encode("ab")), 5)
    assert (first.text, first.category, first.reference) == ("ab", "c", "r")
    assert second.token_ids == (BOS, *TOKENIZER.encode("s"), BOS, *TOKENIZER.encode("u"), HEADER)
    assert (second.id, second.max_tokens, second.text) == ("line-2", 6, "u")
    assert second.messages == tuple(records[1]["messages"]) and not first.messages and not third.messages
    assert (third.token_ids, third.text, third.max_tokens) == ((75, 76), "AB", 50)
    assert workload.source.startswith("file:") and "sha256:" in workload.source


@pytest.fixture
def lines(tmp_path):
    def write(*rows: str):
        path = tmp_path / "p.jsonl"
        path.write_text("".join(row + "\n" for row in rows))
        return path

    return write


GOOD = '{"prompt": "ab", "max_tokens": 4}'


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ('{"prompt": "a"', r"p\.jsonl:3: not valid JSON \(.*column"),
        ('["a"]', r"p\.jsonl:3: expected a JSON object, found list"),
        ('{"text": "a"}', r"p\.jsonl:3: unknown key 'text'; allowed: prompt, messages, prompt_token_ids, max_tokens"),
        (
            '{"question_id": 81, "category": "writing", "turns": ["a", "b"], "reference": ["c"]}',
            r"p\.jsonl:3: holds 'turns', as the question files of MT-Bench, Spec-Bench and EAGLE do; read it with "
            r"--dataset-name spec-bench --dataset-path .*p\.jsonl$",
        ),
        ('{"id": "a"}', r"p\.jsonl:3: needs exactly one of prompt, messages, prompt_token_ids; found none"),
        ('{"prompt": "a", "messages": []}', r"p\.jsonl:3: needs exactly one of .*found prompt and messages"),
        ('{"prompt": 3}', r"p\.jsonl:3: 'prompt' is 3; allowed: text"),
        ('{"prompt": ""}', r"p\.jsonl:3: 'prompt' is empty"),
        ('{"messages": []}', r"p\.jsonl:3: 'messages' is \[\]; allowed: a list of .*, not empty"),
        ('{"messages": [{"role": "user"}]}', r"p\.jsonl:3: 'messages' is .*; allowed: a list of .*, not empty"),
        ('{"prompt_token_ids": [210]}', r"p\.jsonl:3: 'prompt_token_ids' is \[210\]; allowed: .* in \[0, 210\)"),
        ('{"prompt_token_ids": [true]}', r"p\.jsonl:3: 'prompt_token_ids' is \[True\]; allowed: .* in \[0, 210\)"),
        ('{"prompt": "a", "max_tokens": 0}', r"p\.jsonl:3: 'max_tokens' is 0; allowed: an integer of 1 or more"),
        ('{"prompt": "a", "max_tokens": true}', r"p\.jsonl:3: 'max_tokens' is True"),
        ('{"prompt": "a", "max_tokens": 4, "output_len": 4}', r"p\.jsonl:3: .*not both"),
        ('{"prompt": "' + "a" * 61 + '", "max_tokens": 4}', r"p\.jsonl:3: prompt of 61 tokens \+ 4 .*max_model_len 64"),
    ],
)
def test_mistakes_are_named_with_their_line(lines, bad, message):
    with pytest.raises(ValueError, match=message):
        load(lines(GOOD, "", bad), num_prompts=2)


def test_a_prompt_that_just_fits_is_taken(lines):
    assert len(load(lines('{"prompt": "' + "a" * 60 + '", "max_tokens": 4}')).prompts[0].token_ids) == 60


def test_lines_beyond_num_prompts_are_not_looked_at(lines):
    assert len(load(lines(GOOD, "not json")).prompts) == 1


def test_ids_must_differ_and_enough_lines_must_be_there(lines):
    row = '{"prompt": "a", "id": "x", "max_tokens": 4}'
    with pytest.raises(ValueError, match=r":2: id 'x' was used on line 1"):
        load(lines(row, row), num_prompts=2)
    with pytest.raises(ValueError, match=r"num_prompts: 5 is not allowed; p\.jsonl has 1"):
        load(lines(row), num_prompts=5)
    with pytest.raises(ValueError, match=r"p\.jsonl has 0 that pass its rule \(.*\); give another"):
        load(lines("", ""), num_prompts=1)


def test_a_key_that_is_null_is_not_there(tmp_path):
    row = {"prompt": "a", **dict.fromkeys(("messages", "id", "category", "max_tokens"))}
    (prompt,) = load(write_jsonl(tmp_path / "p.jsonl", [row]), max_model_len=200).prompts
    assert (prompt.id, prompt.category, prompt.max_tokens) == ("line-1", "", 128)


def test_output_len_overrides_every_line(lines):
    assert load(lines(GOOD), output_len=9).prompts[0].max_tokens == 9


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ValueError, match="gone.jsonl does not exist"):
        load(tmp_path / "gone.jsonl")
    with pytest.raises(ValueError, match="needs a file"):
        jsonl.load(WorkloadRequest(name="jsonl"), TOKENIZER)


def test_other_wrappings_hold_the_same_records(tmp_path):
    records = [{"a": 1}, {"a": 2}]
    write_jsonl(tmp_path / "r.jsonl", records)
    (tmp_path / "r.json").write_text(json.dumps(records))
    with gzip.open(tmp_path / "r.jsonl.gz", "wb") as file:
        file.write((tmp_path / "r.jsonl").read_bytes())
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(records), tmp_path / "r.parquet")
    for name in ("r.jsonl", "r.json", "r.jsonl.gz", "r.parquet"):
        assert list(read_records(tmp_path / name)) == [(1, {"a": 1}), (2, {"a": 2})], name


def test_a_cut_line_and_a_byte_order_mark_are_told_plainly(tmp_path):
    for data, message in {
        b'{"a": 1}\n"cut': r"r\.jsonl:2: not valid JSON \(Unterminated string starting at column 1\)",
        b'\xef\xbb\xbf{"a": 1}\n': r"r\.jsonl:1: starts with a byte order mark; save it as UTF-8 without BOM$",
    }.items():
        (tmp_path / "r.jsonl").write_bytes(data)
        with pytest.raises(ValueError, match=message):
            list(read_records(tmp_path / "r.jsonl"))


def test_truncated_and_foreign_files_are_refused(tmp_path):
    packed = gzip.compress(b'{"a": 1}\n' * 1000)
    (tmp_path / "r.jsonl.gz").write_bytes(packed[: len(packed) // 2])
    (tmp_path / "r.parquet").write_bytes(b"PAR1 no")
    (tmp_path / "r.json").write_text('[{"a": 1}, ')
    (tmp_path / "r.csv").write_text("a\n1\n")
    for name, message in {
        "r.jsonl.gz": "truncated",
        "r.parquet": "not a readable parquet file",
        "r.json": r"r\.json:1: not valid JSON",
        "r.csv": "unknown kind of data file; allowed: .jsonl",
    }.items():
        with pytest.raises(ValueError, match=message):
            list(read_records(tmp_path / name))
