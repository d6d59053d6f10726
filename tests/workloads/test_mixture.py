"""Several data sets in one workload: divided evenly, in turn, and refused where a list makes no sense."""

from __future__ import annotations

import re

import pytest

from specbench.workloads.base import Prompt, Workload, WorkloadRequest
from specbench.workloads.mixture import interleave, is_mixture, requests_of


def part(name: str, num: int, synthetic: bool = False) -> Workload:
    prompts = tuple(
        Prompt(id=str(n), token_ids=(n, len(name)), max_tokens=5, text="", category="old") for n in range(num)
    )
    return Workload(name=name, prompts=prompts, rule=f"rule of {name}", source=f"file:{name}", synthetic=synthetic)


def test_prompts_are_divided_evenly_and_the_first_data_sets_get_the_remainder():
    request = WorkloadRequest(name="humaneval, mt-bench,gsm8k", num_prompts=8, output_len=7, seed=3)
    parts = requests_of(request)
    assert [(one.name, one.num_prompts) for one in parts] == [("humaneval", 3), ("mt-bench", 3), ("gsm8k", 2)]
    assert {(one.output_len, one.seed) for one in parts} == {(7, 3)}
    assert requests_of(WorkloadRequest(name="gsm8k", num_prompts=8)) == (WorkloadRequest(name="gsm8k", num_prompts=8),)


def test_data_sets_take_turns_and_name_their_prompts():
    mixed = interleave({"a": part("a", 3), "b": part("b", 2), "c": part("c", 2, synthetic=True)})
    assert [prompt.id for prompt in mixed.prompts] == ["a:0", "b:0", "c:0", "a:1", "b:1", "c:1", "a:2"]
    assert [prompt.category for prompt in mixed.prompts] == ["a", "b", "c", "a", "b", "c", "a"]
    assert {prompt.max_tokens for prompt in mixed.prompts} == {5} and mixed.synthetic
    assert mixed.name == "a,b,c" and mixed.source == "a: file:a; b: file:b; c: file:c"
    assert mixed.rule.startswith("a (3 prompts): rule of a; b (2 prompts): rule of b; ")
    assert mixed.sha256 != interleave({"a": part("a", 3), "b": part("b", 2), "d": part("c", 2)}).sha256


def test_one_data_set_stays_as_it_is():
    alone = part("a", 3)
    assert interleave({"a": alone}) is alone


def test_categories_that_are_data_sets_are_recognised():
    mixed = interleave({"a": part("a", 2), "b": part("b", 2)})
    assert is_mixture({prompt.id: prompt.category for prompt in mixed.prompts})
    assert not is_mixture({"81": "writing", "82": "coding"})
    assert not is_mixture({"a:0": "a", "a:1": "a"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"name": "gsm8k,humaneval,gsm8k"},
            "dataset_name: 'gsm8k,humaneval,gsm8k' is not allowed; gsm8k is in it twice; allowed: ",
        ),
        (
            {"name": "gsm8k,"},
            "dataset_name: 'gsm8k,' is not allowed; it has an empty item; allowed: names separated by",
        ),
        ({"name": "gsm8k, ,humaneval"}, "it has an empty item"),
        (
            {"name": "gsm8k,humaneval", "path": "x.jsonl"},
            "dataset_path: 'x.jsonl' is not allowed; a path belongs to one data set",
        ),
        (
            {"name": "gsm8k,hf"},
            "dataset_name: 'gsm8k,hf' is not allowed; hf needs a dataset_path, which belongs to one data set",
        ),
        (
            {"name": "gsm8k,humaneval", "hf_split": "test"},
            "hf_split: 'test' is not allowed; only the data set hf takes it",
        ),
        ({"name": "gsm8k,humaneval,mt-bench", "num_prompts": 2}, "num_prompts: 2 is not allowed; allowed: 3 or more"),
    ],
)
def test_lists_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        WorkloadRequest(**options)
