from __future__ import annotations

import shlex

import pytest

from specbench.harness.judge.history.rerun import load_options, rerun_command
from specbench.harness.store.run_record import RunRecord

A, B = "a" * 40, "b" * 40


def test_the_load_of_the_run_without_its_arms_and_blocks():
    argv = shlex.split(
        "specbench run -s no-spec --strategy=eagle:k=4 --num-prompts 4 --dtype=float32 --num-repeats 3 --label x "
        "--output-dir /tmp/runs --quiet --dataset-path 'my prompts.jsonl' --certify-graphs --accuracy gsm8k:10"
    )
    assert (
        load_options(RunRecord(argv=tuple(argv), arms=()))
        == "--num-prompts 4 --dtype=float32 --dataset-path 'my prompts.jsonl'"
    )


@pytest.mark.parametrize(
    "words", ["run --recipe vllm-pr-20078", "run --base=best", "run --batch-sizes 1,8", "import x.json"]
)
def test_what_one_pair_of_sides_cannot_repeat(words):
    for argv in (("specbench", *words.split()), ()):
        assert load_options(RunRecord(argv=argv, arms=())) == ""


def test_the_command_is_one_that_ab_reads():
    command = rerun_command(A, B, "eagle:k=4", "--num-prompts 4")
    assert shlex.split(command)[2:] == [
        "-A",
        f"ref:{A[:12]} eagle:k=4",
        "-B",
        f"ref:{B[:12]} eagle:k=4",
        *"--num-prompts 4".split(),
    ]


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [(A, B + "+", "without local changes: bbbbbbbbbbbb+"), ("20260101T000000Z-run-12345678", B, "is not a commit")],
)
def test_what_is_no_commit_cannot_be_run_again(before, after, why):
    assert why in rerun_command(before, after, "no-spec", "")
