"""GSM8K, MT-Bench, HumanEval and the synthetic generator, on files of a few records."""

from __future__ import annotations

import gzip
import hashlib
import json
import sys
import zipfile

import pytest
from workloads.fakes import CharTokenizer, write_jsonl

from specbench.workloads import gsm_symbolic, questions, turns
from specbench.workloads.assets.resolve import ResolvedAsset
from specbench.workloads.base import WorkloadRequest

TOKENIZER = CharTokenizer()
ROWS = [{"question": f"how many {i}?", "answer": f"#### {i}"} for i in range(20)]


def request(name, path, num_prompts=3, **changes):
    return WorkloadRequest(name=name, path=str(path), num_prompts=num_prompts, **changes)


def test_gsm8k_reads_the_published_form_and_evaluation_requests(tmp_path):
    plain = write_jsonl(tmp_path / "g.jsonl", ROWS)
    packed = tmp_path / "requests.jsonl.gz"
    packed.write_bytes(gzip.compress("".join(json.dumps({"doc": row, "request": {}}) + "\n" for row in ROWS).encode()))
    one = questions.load_gsm8k(request("gsm8k", plain), TOKENIZER)
    other = questions.load_gsm8k(request("gsm8k", packed), TOKENIZER)
    assert one.prompts == other.prompts
    prompt = one.prompts[0]
    assert prompt.text == ROWS[int(prompt.id)]["question"]
    assert prompt.reference == ROWS[int(prompt.id)]["answer"]
    assert prompt.max_tokens == 256
    assert not one.synthetic and "seed 42" in one.rule


def test_gsm8k_names_the_field_that_is_missing(tmp_path):
    path = write_jsonl(tmp_path / "g.jsonl", [ROWS[0], {"question": "no answer"}])
    with pytest.raises(
        ValueError, match=r"g\.jsonl:2: field 'answer' is NoneType, expected a string; it has: question"
    ):
        questions.load_gsm8k(request("gsm8k", path), TOKENIZER)


def test_question_sets_are_seeded_and_filtered_by_length_only(tmp_path):
    rows = [*ROWS, {"question": "x" * 300, "answer": "long"}]
    path = write_jsonl(tmp_path / "g.jsonl", rows)
    small = {"max_model_len": 100, "output_len": 50}
    workload = questions.load_gsm8k(request("gsm8k", path, 20, **small), TOKENIZER)
    assert sorted(int(prompt.id) for prompt in workload.prompts) == list(range(20))
    assert {prompt.max_tokens for prompt in workload.prompts} == {50}
    with pytest.raises(ValueError, match="num_prompts: 21 is not allowed; gsm8k has 20 that pass its rule"):
        questions.load_gsm8k(request("gsm8k", path, 21, **small), TOKENIZER)
    other = questions.load_gsm8k(request("gsm8k", path, 20, seed=1, **small), TOKENIZER)
    assert other.sha256 != workload.sha256
    prefix = questions.load_gsm8k(request("gsm8k", path, 5, **small), TOKENIZER)
    assert prefix.prompts == workload.prompts[:5]


def test_mt_bench_takes_first_turns(tmp_path):
    rows = [{"question_id": 81, "category": "writing", "turns": ["first", "second"]}]
    path = write_jsonl(tmp_path / "q.jsonl", rows)
    (prompt,) = turns.load_mt_bench(request("mt-bench", path, 1), TOKENIZER).prompts
    assert (prompt.id, prompt.text, prompt.category, prompt.max_tokens) == ("81", "first", "writing", 1024)
    bad = write_jsonl(tmp_path / "bad.jsonl", [{"question_id": 1, "turns": []}])
    with pytest.raises(ValueError, match=r"bad\.jsonl:1: 'turns' is \[\]; allowed: a list"):
        turns.load_mt_bench(request("mt-bench", bad, 1), TOKENIZER)


def test_a_key_that_is_null_is_not_there(tmp_path):
    """It was the category `None`; and two rows without an id had the same."""
    rows = [{"question_id": None, "category": None, "turns": [text]} for text in ("one", "two")]
    path = write_jsonl(tmp_path / "q.jsonl", rows)
    prompts = turns.load_mt_bench(request("mt-bench", path, 2), TOKENIZER).prompts
    assert sorted((prompt.id, prompt.text, prompt.category) for prompt in prompts) == [
        ("1", "one", ""),
        ("2", "two", ""),
    ]


def test_humaneval_sends_the_function_head_as_it_stands(tmp_path):
    rows = [{"task_id": "HumanEval/0", "prompt": "def f():\n", "canonical_solution": "    pass\n"}]
    path = write_jsonl(tmp_path / "h.jsonl", rows)
    (prompt,) = questions.load_humaneval(request("humaneval", path, 1), TOKENIZER).prompts
    assert (prompt.id, prompt.text, prompt.reference) == ("HumanEval/0", "def f():\n", "    pass\n")


GENERATOR = """
from reasoning_gym.utils import shout
def generate_{number}(rng, difficulty):
    value = rng.randint(0, 10**6)
    return {{"question": shout(f"{number} {{value}}?"), "answer": value}}
"""


@pytest.fixture
def generator_wheel(tmp_path):
    path = tmp_path / "reasoning_gym-0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("reasoning_gym/utils.py", "def shout(text):\n    return text.upper()\n")
        folder = "reasoning_gym/arithmetic/gsm_symbolic"
        archive.writestr(f"{folder}/generators_00_49.py", GENERATOR.format(number=3))
        archive.writestr(f"{folder}/generators_50_99.py", GENERATOR.format(number=70) + GENERATOR.format(number=71))
        archive.writestr(f"{folder}/gsm_symbolic.py", "import nothing_that_exists\ntasks_ok = [3, 70]\n")
    return path


def test_generated_questions_are_seeded_and_leave_no_module(generator_wheel):
    first = gsm_symbolic.generate(generator_wheel, 40, seed=5)
    assert first == gsm_symbolic.generate(generator_wheel, 40, seed=5)
    assert first != gsm_symbolic.generate(generator_wheel, 40, seed=6)
    assert {question.category for question in first} == {"template-3", "template-70"}
    assert not [name for name in sys.modules if name.startswith("reasoning_gym")]


def test_generated_questions_are_marked_synthetic(monkeypatch, generator_wheel):
    monkeypatch.setattr(gsm_symbolic, "WHEEL_SHA256", hashlib.sha256(generator_wheel.read_bytes()).hexdigest())
    request = WorkloadRequest(name="gsm-symbolic", path=str(generator_wheel), num_prompts=4)
    workload = gsm_symbolic.load(request, TOKENIZER)
    assert workload.synthetic and len(workload.prompts) == 4


@pytest.mark.parametrize("is_cached", [False, True])
def test_no_code_is_run_out_of_another_wheel(monkeypatch, generator_wheel, is_cached):
    if is_cached:  # by the size that was recorded, its bytes changed since
        asset = ResolvedAsset(name="gsm-symbolic", path=generator_wheel, source="", sha256=gsm_symbolic.WHEEL_SHA256)
        monkeypatch.setattr(gsm_symbolic, "resolve", lambda name: asset)
    request = WorkloadRequest(name="gsm-symbolic", path=str(generator_wheel), num_prompts=4)
    with pytest.raises(ValueError, match=f"{generator_wheel.name}: sha256 .*allowed: {gsm_symbolic.WHEEL_SHA256}"):
        gsm_symbolic.load(request, TOKENIZER)
