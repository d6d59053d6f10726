"""Two spellings of one arm are found where defaults are known, and no two arms that differ are taken for one."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from specbench.harness.cli.main import app
from specbench.harness.run.prepare import arm_check
from specbench.harness.spec.arm import parse_arm
from specbench.harness.spec.options import RunOptions
from specbench.harness.spec.same_arms import check_different

MODEL = "smollm2-135m-instruct"  # a head ships for it
TOY = RunOptions(device="cpu", model="toy", load_format="dummy")


def check(*texts: str, options: RunOptions = TOY) -> None:
    check_different([parse_arm(text) for text in texts], options, arm_check(options))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("ngram:k=4", "ngram:num_speculative_tokens=4"),
        ("ngram", "ngram:k=4"),
        ("ngram:k=4,min_n=1", "ngram:prompt_lookup_min=1"),
        ("ngram", "specbench/ngram"),
        ("no-spec", "no-spec:sync=single,state_update=fused,attention=auto"),
        ("vllm/ngram:k=4", "vllm/ngram:num_speculative_tokens=4"),
    ],
)
def test_spellings_of_one_arm(first, second):
    with pytest.raises(ValueError, match=f"^strategy: '{second}' gives the same arm as '{first}'; every arm"):
        check(first, "no-spec:status_lag=x", second)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("ngram:k=4", "ngram:k=3"),
        ("eagle:k=2,head=random", "naive-eagle:k=2,head=random"),
        ("eagle:k=2,head=random", "eagle:k=2,head=random,drafter=unpadded"),
        ("eagle:k=2,head=random", "eagle:k=2,head=random,acceptance=synthetic:2"),
        ("ngram:k=4", "vllm/ngram:k=4"),
        ("vllm/ngram:k=4", "vllm/ngram:k=4,engine.block_size=32"),
        ("vllm/ngram:k=4", "vllm/ngram"),  # only vLLM knows what it would choose
        ("nothing", "nothing:k=4"),
    ],
)
def test_arms_that_differ_or_cannot_run(first, second):
    check(first, second)


def test_a_head_is_the_same_however_it_is_spelled(tmp_path, monkeypatch):
    options = RunOptions(device="cpu", model=MODEL)
    (tmp_path / "heads").mkdir()
    monkeypatch.chdir(tmp_path)
    for first, second in (
        ("eagle:k=2", f"eagle:k=2,head=shipped:{MODEL}"),
        ("eagle:k=2,head=heads", "eagle:k=2,head=./heads"),
        (f"parallel-eagle:k=2,head={tmp_path}/heads", "parallel-eagle:k=2,head=heads"),
    ):
        with pytest.raises(ValueError, match=f"'{second}' gives the same arm as '{first}'"):
            check(first, second, options=options)
    check("eagle:k=2", "eagle:k=2,head=heads", "eagle:k=2,head=random", "eagle:k=2,head=nowhere", options=options)
    check("eagle:k=2", f"eagle:k=2,head=shipped:{MODEL}")  # random weights have no head of their own
    check("eagle:k=2", "eagle:k=2,head=shipped:nothing", options=options)


def test_certify_refuses_them_too(tmp_path):
    words = ["certify", "-s", "ngram", "-s", "ngram:k=4", "--load-format", "dummy", "--model", "toy", "--device", "cpu"]
    result = CliRunner().invoke(app, [*words, "--output-dir", str(tmp_path / "runs")])
    assert result.exit_code == 2 and "strategy: 'ngram:k=4' gives the same arm as 'ngram'" in result.stderr
