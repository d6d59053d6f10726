"""Data sets by `datasets`: every kind of file, every kind of column, the choice of splits, the hub, every mistake."""

from __future__ import annotations

import json
import random

import pytest
from datasets import Dataset, DatasetDict
from workloads.fake_hub import COMMIT, QUESTIONS
from workloads.fakes import BOS, HEADER, CharTokenizer, write_jsonl

from specbench.workloads import hf
from specbench.workloads.base import WorkloadRequest

TOKENIZER = CharTokenizer()
ROWS = [{"prompt": "one", "n": 1}, {"prompt": "two", "n": 2}, {"prompt": "three", "n": 3}]


def load(path, **changes):
    return hf.load(WorkloadRequest(**{"name": "hf", "path": str(path), "num_prompts": 3, **changes}), TOKENIZER)


def write(path, rows):
    """A file of the kind that its name says, or a directory that `save_to_disk` makes."""
    data = Dataset.from_list(rows)
    writers = {".parquet": data.to_parquet, ".csv": data.to_csv, ".jsonl": data.to_json, "": data.save_to_disk}
    if path.suffix in writers:
        writers[path.suffix](str(path))
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows))
    else:
        path.write_text("\n".join(row["prompt"] for row in rows))
    return path


@pytest.mark.parametrize("name", ["a.parquet", "a.csv", "a.jsonl", "a.json", "a.txt", "saved"])
def test_every_kind_of_local_data_gives_the_same_prompts(tmp_path, name):
    path = write(tmp_path / name, ROWS)
    workload = load(path)
    order = [0, 1, 2]
    random.Random(42).shuffle(order)
    assert [(p.id, p.text) for p in workload.prompts] == [(str(i), ROWS[i]["prompt"]) for i in order]
    assert workload.prompts[0].token_ids == (BOS, *TOKENIZER.encode(ROWS[order[0]]["prompt"]), HEADER)
    column = "text" if name == "a.txt" else "prompt"
    assert workload.rule == (
        f"{path}: split 'train', column '{column}', all 3 rows; one user message each, chat template applied; up to "
        "128 output tokens; prompt + output <= 2048; shuffled with seed 42"
    )
    assert workload.source.startswith(f"file:{path}") and ("sha256:" in workload.source) == path.is_file()
    assert workload.sha256 == load(path).sha256 != load(path, seed=43).sha256


def test_the_name_of_a_file_is_no_pattern(tmp_path):
    """The other file was read, and the named one's hash was recorded."""
    path = write(tmp_path / "a[1].jsonl", ROWS)
    write(tmp_path / "a1.jsonl", [{"prompt": "other"}] * 3)
    assert sorted(prompt.text for prompt in load(path).prompts) == ["one", "three", "two"]


SAYS = [
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": "why?"},
    {"role": "user", "content": "b"},
]
CELLS = {
    "question": ("why?", "why?"),
    "instruction": ("why?", "why?"),
    "turns": (["why?", "and then?"], "why?"),
    "messages": (SAYS, "why?"),
    "conversations": ([{"from": "gpt", "value": "hello"}, {"from": "human", "value": "why?"}], "why?"),
    "whatever": ("why?", "why?"),
}


@pytest.mark.parametrize("column", CELLS)
def test_the_column_is_found_and_its_first_user_turn_asked(tmp_path, column):
    cell, asked = CELLS[column]
    rows = [{"answer": "because", column: cell}]
    named = {"hf_column": column} if column == "whatever" else {}
    workload = load(write_jsonl(tmp_path / "a.jsonl", rows), num_prompts=1, **named)
    assert workload.prompts[0].text == asked and f"column '{column}'" in workload.rule


def test_a_conversation_stored_by_fields():
    fields = {"role": ["assistant", "user"], "content": ["hello", "why?"]}
    assert hf.first_user_text(fields) == "why?"


def test_the_first_known_column_wins_and_another_can_be_named(tmp_path):
    path = write_jsonl(tmp_path / "a.jsonl", [{"text": "t", "question": "q", "other": "o"}])
    assert load(path, num_prompts=1).prompts[0].text == "q"
    assert load(path, num_prompts=1, hf_column="other").prompts[0].text == "o"


def test_rows_that_are_dropped_are_counted(tmp_path):
    cells = [[{"role": "assistant", "content": "a"}], [], None, [{"role": "user", "content": " "}]]
    good = [[{"role": "user", "content": "u" * length}] for length in (5, 6, 60)]
    path = write_jsonl(tmp_path / "a.jsonl", [{"messages": cell} for cell in (*cells, *good)])
    workload = load(path, num_prompts=2, max_model_len=50, output_len=20, seed=1)
    order = [6, 60, 5]  # as seed 1 shuffles the three rows that are left
    assert [len(prompt.text) for prompt in workload.prompts] == [length for length in order if length < 60]
    assert "all 7 rows without 4 that have no text of a user; " in workload.rule
    assert "prompt + output <= 50 (1 longer dropped on the way); " in workload.rule
    with pytest.raises(ValueError, match=r"num_prompts: 3 is not allowed; hf has 2 that pass its rule"):
        load(path, max_model_len=50, output_len=20)


def test_only_the_head_of_a_split_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(hf, "MAX_ROWS", 2)
    workload = load(write_jsonl(tmp_path / "a.jsonl", ROWS), num_prompts=2)
    assert {prompt.text for prompt in workload.prompts} == {"one", "two"}
    assert "column 'prompt', the first 2 rows;" in workload.rule


@pytest.mark.parametrize("saved", [True, False])
def test_splits(tmp_path, saved):
    path = tmp_path / "data"
    splits = {name: Dataset.from_list([{"prompt": name}]) for name in ("train", "test", "extra")}
    if saved:
        DatasetDict(splits).save_to_disk(str(path))
    else:
        path.mkdir()
        (path / "README.md").write_text(configs({"default": list(splits)}))
        for name, data in splits.items():
            data.to_parquet(str(path / f"default-{name}.parquet"))
    assert load(path, num_prompts=1).prompts[0].text == "test"
    assert load(path, num_prompts=1, hf_split="extra").prompts[0].text == "extra"
    with pytest.raises(ValueError, match=r"hf_split: 'dev' is not in the data set; allowed: train, test, extra$"):
        load(path, hf_split="dev")


def configs(splits: dict[str, list[str]]) -> str:
    """The head of a README that says which file holds which split of which subset."""
    lines = ["---", "configs:"]
    for subset, names in splits.items():
        lines += [f"- config_name: {subset}", "  data_files:"]
        lines += [f"  - split: {name}\n    path: {subset}-{name}.parquet" for name in names]
    return "\n".join([*lines, "---", ""])


def test_subsets(tmp_path):
    (tmp_path / "README.md").write_text(configs({"main": ["odd", "even"], "hard": ["odd"]}))
    for name in ("main-odd", "main-even", "hard-odd"):
        Dataset.from_list([{"prompt": name}]).to_parquet(str(tmp_path / f"{name}.parquet"))
    workload = load(tmp_path, num_prompts=1, hf_subset="hard")
    assert workload.prompts[0].text == "hard-odd" and f"{tmp_path} hard: split 'odd'" in workload.rule
    for asked, message in (
        ({}, r"hf_subset: none is given of .*; allowed: main, hard$"),
        ({"hf_subset": "easy"}, r"hf_subset: 'easy' is not in .*; allowed: main, hard$"),
        ({"hf_subset": "main"}, r"hf_split: none is given; allowed: odd, even$"),
    ):
        with pytest.raises(ValueError, match=message):
            load(tmp_path, **asked)


FILES = {
    "empty.jsonl": ("", "has no rows$"),
    "empty.csv": ("prompt\n", "has no rows$"),
    "broken.jsonl": ('{"prompt": "a"}\n{"prompt": \n', "cannot be read: "),
    "broken.parquet": ("PAR1 no", "cannot be read: "),
    "code.py": ("print()", "cannot be read: Unable to find "),
    "numbers.jsonl": ('{"prompt": 3}\n', "hf_column 'prompt': row 0 holds int; allowed: a text"),
    "unknown.jsonl": ('{"a": "b", "c": "d"}\n', "hf_column: none is given; allowed: a, c$"),
}


@pytest.mark.parametrize("name", FILES)
def test_what_cannot_be_read_is_said_in_a_line(tmp_path, name):
    text, message = FILES[name]
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=message) as caught:
        load(tmp_path / name)
    assert len(str(caught.value).splitlines()) == 1 and len(str(caught.value)) < 500


def test_mistakes_of_the_request(tmp_path):
    (tmp_path / "nothing").mkdir()
    saved = write(tmp_path / "saved", ROWS)
    for asked, message in (
        ({"path": None}, r"needs a data set: --dataset-path ORG/NAME"),
        ({"path": "questions"}, r"'questions' does not exist, and it is not the ORG/NAME"),
        ({"path": "./some/questions"}, r"does not exist"),
        ({"path": "some/questions.jsonl"}, r"does not exist"),
        ({"path": "some/questions"}, r"some/questions: HF_HUB_OFFLINE is set; or give a local copy"),
        ({"path": str(tmp_path / "nothing")}, r"cannot be read: The directory .* doesn't contain any data files"),
        ({"path": str(saved), "hf_subset": "main"}, r"hf_subset: 'main' is not allowed; .* no subsets$"),
        ({"path": str(saved), "hf_column": "promt"}, r"hf_column: 'promt' is not in the data set; allowed: prompt, n$"),
    ):
        with pytest.raises(ValueError, match=message):
            hf.load(WorkloadRequest(**{"name": "hf", **asked}), TOKENIZER)
    with pytest.raises(ValueError, match=r"hf_split: 'test' is not allowed; only the data set hf takes it, not gsm8k"):
        WorkloadRequest(name="gsm8k", hf_split="test")


ON_THE_HUB = """
import json, sys
from workloads.fakes import CharTokenizer
from specbench.workloads import hf
from specbench.workloads.base import WorkloadRequest
try:
    asked = WorkloadRequest(name="hf", path=sys.argv[1], num_prompts=20, hf_split=sys.argv[2] or None)
    made = hf.load(asked, CharTokenizer())
    print(json.dumps([made.rule, made.source, made.sha256, [prompt.text for prompt in made.prompts]]))
except ValueError as error:
    print(json.dumps(str(error)))
"""


def test_the_hub_is_streamed_at_one_commit(hub, elsewhere, tmp_path):
    """Twenty prompts are not paid for with the whole file, and a local copy gives the same ones."""
    rule, source, sha256, texts = elsewhere(ON_THE_HUB, "some/questions", "")
    assert rule.startswith("some/questions: split 'test', column 'question', the first 10,000 rows; ")
    assert source == f"hub:some/questions@{COMMIT}"
    assert len(set(texts)) == 20 and all(int(text[:6]) < 10_000 for text in texts)
    assert hub.sent_bytes < 0.7 * len(QUESTIONS["test.jsonl"])
    (tmp_path / "test.jsonl").write_bytes(QUESTIONS["test.jsonl"])
    assert load(tmp_path / "test.jsonl", num_prompts=20).sha256 == sha256
    said = elsewhere(ON_THE_HUB, "some/questions", "dev")
    assert said == "hf_split: 'dev' is not in the data set; allowed: train, test"


@pytest.mark.parametrize("name, reason", [("some/nothing", "the hub has no repository"), ("some/gated", "is gated")])
def test_data_sets_that_the_hub_does_not_give(elsewhere, name, reason):
    said = elsewhere(ON_THE_HUB, name, "")
    assert said.startswith(f"dataset_path: {name}: ") and reason in said and len(said.splitlines()) == 1
