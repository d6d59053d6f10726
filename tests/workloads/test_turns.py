"""Questions of several turns: Spec-Bench and SPEED-Bench files, MT-Bench's second turns; JSON answers; temperatures."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from workloads.fakes import BOS, HEADER, CharTokenizer, conversation, write_jsonl

from specbench.workloads import long_context, question_files, questions, turns
from specbench.workloads.assets.resolve import ResolvedAsset
from specbench.workloads.base import WorkloadRequest
from specbench.workloads.held_out import is_held_out
from specbench.workloads.temperatures import at_temperatures, temperature_of

TOKENIZER = CharTokenizer()
ROWS = [
    {"question_id": 81 + n, "category": "writing" if n % 2 else "coding", "turns": [f"first {n}", f"second {n}"]}
    for n in range(4)
]
PLACEHOLDER = "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE USING A SCRIPT"


def request(name, path, num_prompts=4, **changes):
    return WorkloadRequest(name=name, path=path and str(path), num_prompts=num_prompts, **changes)


@pytest.mark.parametrize("name", ["spec-bench", "speed-bench"])
def test_question_files_of_the_user(tmp_path, name):
    packed = tmp_path / "q.parquet"
    pq.write_table(pa.Table.from_pylist(ROWS), packed)
    plain = question_files.load_question_file(request(name, write_jsonl(tmp_path / "q.jsonl", ROWS)), TOKENIZER)
    assert question_files.load_question_file(request(name, packed), TOKENIZER).prompts == plain.prompts
    found = {(p.id, p.text, p.category, p.max_tokens) for p in plain.prompts}
    assert found == {(str(r["question_id"]), r["turns"][0], r["category"], 1024) for r in ROWS}
    assert not any(p.messages for p in plain.prompts), "a single message of the user is the text"
    assert plain.rule.startswith(f"{name} (q.jsonl): the first turn") and "sha256:" in plain.source


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda rows: [*rows[:3], {**rows[3], "turns": [PLACEHOLDER]}], "question 84 is 'FULL BENCHMARK DATA"),
        (lambda rows: [{**row, "turns": ["gated"]} for row in rows], "4 questions are 'gated', not a question"),
    ],
)
def test_placeholders_are_no_questions(tmp_path, change, said):
    path = write_jsonl(tmp_path / "q.jsonl", change(ROWS))
    with pytest.raises(ValueError, match=f"q.jsonl: {said}"):
        question_files.load_question_file(request("speed-bench", path), TOKENIZER)


def test_questions_with_the_same_id_are_refused(tmp_path):
    """The second turn of one would follow the answer to the other."""
    path = write_jsonl(tmp_path / "q.jsonl", [*ROWS, {**ROWS[0], "turns": ["another"]}])
    with pytest.raises(ValueError, match=r"q.jsonl:5: question_id '81' was used on line 1; ids must differ"):
        question_files.load_question_file(request("spec-bench", path), TOKENIZER)


def test_a_question_file_must_be_named_and_exist(tmp_path):
    with pytest.raises(ValueError, match=r"workload spec-bench needs a file: .*hemingkx/Spec-Bench"):
        question_files.load_question_file(request("spec-bench", None), TOKENIZER)
    with pytest.raises(ValueError, match="does not exist or is not a file"):
        question_files.load_question_file(request("spec-bench", tmp_path / "none.jsonl"), TOKENIZER)


def _run(folder, *answers):
    """A stored run with these (arm, repeat, prompt, answer)."""
    names = ("arm", "repeat", "prompt_id", "output_token_ids")
    rows = [dict(zip(names, (*one[:3], TOKENIZER.encode(one[3])), strict=True)) for one in answers]
    pq.write_table(pa.Table.from_pylist(rows), folder / "requests.parquet")
    return folder


@pytest.fixture
def mt_bench(tmp_path, monkeypatch):
    path = write_jsonl(tmp_path / "question.jsonl", [*ROWS, {"question_id": 99, "turns": ["alone"]}])
    asset = ResolvedAsset(name="mt-bench", path=path, source="test", sha256="")
    monkeypatch.setattr(turns, "resolve", lambda name: asset)


@pytest.mark.usefixtures("mt_bench")
def test_the_second_turn_sees_the_answer_to_the_first(tmp_path):
    """Of no-spec and its first repeat; questions without an answer or a second turn are not asked."""
    others = [("eagle:k=4", 0, "81", "no"), ("no-spec", 1, "81", "no"), ("no-spec", 0, "99", "alone?")]
    run = _run(tmp_path, *others, ("no-spec", 0, "81", "yes"), ("no-spec", 0, "83", "maybe"))
    workload = turns.load_second_turns(request("mt-bench-second-turn", run, 2), TOKENIZER)
    found = {p.id: p for p in workload.prompts}
    assert set(found) == {"81:2", "83:2"} and found["81:2"].text == "second 0"
    parts = [token for text in ("first 0", "yes", "second 0") for token in (BOS, *TOKENIZER.encode(text))]
    assert found["81:2"].token_ids == (*parts, HEADER)
    said = [(message["role"], message["content"]) for message in found["81:2"].messages]
    assert said == [("user", "first 0"), ("assistant", "yes"), ("user", "second 0")]
    assert "behind the first turn and its answer" in workload.rule and "requests.parquet" in workload.source


@pytest.mark.usefixtures("mt_bench")
def test_a_run_without_answers_is_refused(tmp_path):
    name = "mt-bench-second-turn"
    with pytest.raises(ValueError, match="needs a stored run of mt-bench"):
        turns.load_second_turns(request(name, None), TOKENIZER)
    with pytest.raises(ValueError, match="has no requests.parquet"):
        turns.load_second_turns(request(name, tmp_path / "nowhere"), TOKENIZER)
    with pytest.raises(ValueError, match="holds no answers of an arm no-spec"):
        turns.load_second_turns(request(name, _run(tmp_path, ("eagle", 0, "81", "no"))), TOKENIZER)
    pq.write_table(pa.table({"arm": ["no-spec"]}), tmp_path / "requests.parquet")
    with pytest.raises(ValueError, match="has no column repeat, prompt_id, output_token_ids"):
        turns.load_second_turns(request(name, tmp_path), TOKENIZER)


def test_long_contexts_have_their_lengths_in_turn(tmp_path):
    """Of held-out conversations only; the last question stands last, and contexts come close to their lengths."""
    path = tmp_path / "conversations.json"
    talks = [conversation(i, f"question {i}" + "x" * (7 * i % 40), f"answer {i}" + "y" * 30) for i in range(900)]
    path.write_text(json.dumps(talks))
    asked = request("sharegpt-long", path, 6, max_model_len=2200)
    workload = long_context.load(asked, TOKENIZER)
    assert workload.synthetic and "512, 1024, 2048 prompt tokens in turn" in workload.rule
    lengths = [len(prompt.token_ids) for prompt in workload.prompts]
    for prompt, length, most in zip(workload.prompts, lengths, [512, 1024, 2048] * 2, strict=True):
        assert 0.85 * most < length <= most and prompt.category == f"context {most}" and prompt.max_tokens == 128
        assert prompt.token_ids[-len(prompt.text) - 2 :] == (BOS, *TOKENIZER.encode(prompt.text), HEADER)
        assert is_held_out(prompt.id.split(":")[1])
        assert tuple(TOKENIZER.apply_chat_template(list(prompt.messages))) == prompt.token_ids
        said = [part for part in "".join(map(chr, (i - 10 for i in prompt.token_ids if i > 2))).split("question ")[1:]]
        assert all(is_held_out(f"c{re.match('[0-9]+', part)[0]}") for part in said)
    assert long_context.load(asked, TOKENIZER).sha256 == workload.sha256
    short = long_context.load(request("sharegpt-long", path, 1, max_model_len=200), TOKENIZER)
    assert len(short.prompts[0].token_ids) <= 72
    with pytest.raises(ValueError, match="allowed: 1 to"):
        long_context.load(request("sharegpt-long", path, 500), TOKENIZER)


def test_json_answers_are_asked_for(tmp_path):
    path = write_jsonl(tmp_path / "g.jsonl", [{"question": "how many?", "answer": "#### 3"}])
    (prompt,) = questions.load_gsm8k_json(request("gsm8k-json", path, 1), TOKENIZER).prompts
    assert prompt.text == f"how many?\n\n{questions.JSON_REQUEST}"
    assert (prompt.category, prompt.reference, prompt.max_tokens) == ("json", "#### 3", 256)


def test_a_grid_of_temperatures(tmp_path):
    workload = question_files.load_question_file(
        request("spec-bench", write_jsonl(tmp_path / "q.jsonl", ROWS), 2), TOKENIZER
    )
    grid = at_temperatures(workload, (0.0, 0.7))
    first, second = workload.prompts
    ids = [f"{prompt.id}@T={heat}" for prompt in (first, second) for heat in ("0", "0.7")]
    assert [prompt.id for prompt in grid.prompts] == ids
    assert grid.prompts[1] == replace(first, id=ids[1], temperature=0.7)
    assert grid.rule.endswith("each at temperatures 0, 0.7") and grid.sha256 != workload.sha256
    assert [temperature_of(name) for name in ids] == [0, 0.7, 0, 0.7]
    assert temperature_of("81") is None and temperature_of("x@T=1-2") is None
    assert at_temperatures(workload, ()) is workload
