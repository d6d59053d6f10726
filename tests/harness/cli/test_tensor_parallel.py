"""`--tensor-parallel-size` on the command line: what cannot be split is one line and exit code 2, and no process."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _no_process(monkeypatch):
    def started(*args: object) -> None:
        raise AssertionError("a rank was started")

    monkeypatch.setattr("specbench.harness.engines.native.adapter.Processes", started)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--tensor-parallel-size 3", "tensor_parallel_size: 3 is not allowed; allowed: 1, 2, 4"),
        ("--tensor-parallel-size 8", "tensor_parallel_size: 8 is not allowed; allowed: 1 to 4"),
        ("--tensor-parallel-size 4", "tensor_parallel_size: 4 is not allowed; num_key_value_heads is 2"),
        (
            "--tensor-parallel-size 4 --draft-tensor-parallel-size 2",
            "draft_tensor_parallel_size: 2 is not allowed; allo",
        ),
        (
            "--tensor-parallel-size 4 --model qwen3-30b-a3b-fp8 --num-layers 1",
            "tensor_parallel_size: 4 is not allowed; moe_intermediate_size is 768, and a rank's part",
        ),
        ("--draft-tensor-parallel-size 2", "draft_tensor_parallel_size: 2 is not allowed"),
        ("--tensor-parallel-size 2 --all-reduce one-shot", "all_reduce: 'one-shot' is not allowed on cpu: symmetric"),
        ("--all-reduce nccl", "all_reduce: 'nccl' has no effect on one GPU"),
        ("--tensor-parallel-size 2 -s openai/no-spec:url=http://localhost:1", "is not allowed with openai/no-spec"),
    ],
)
def test_what_cannot_be_split_is_refused(cli, toy, words, said):
    result = cli(*toy, "--device", "cpu", *words.split())
    assert result.exit_code == 2 and said in result.stderr, result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_nsys_sees_one_process(cli, toy):
    words = [word for word in toy[1:] if word not in ("--num-repeats", "1")]
    result = cli("profile", "run", *words, "--tool", "nsys", "--tensor-parallel-size", "2", "--device", "cpu")
    assert result.exit_code == 2 and "tool: nsys is not allowed with several ranks" in result.stderr


def test_a_checkpoint_that_cannot_be_split_is_refused_by_its_config(cli, chat):
    result = cli(*chat, "--device", "cpu", "--tensor-parallel-size", "4")
    assert result.exit_code == 2
    assert "tensor_parallel_size: 4 is not allowed; num_key_value_heads is 2" in result.stderr


def test_more_ranks_than_gpus_are_refused(cli, toy, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    result = cli(*toy, "--device", "cuda", "--tensor-parallel-size", "2")
    assert result.exit_code == 2
    assert "tensor_parallel_size: 2 is not allowed; this machine has 1 GPU, one a rank" in result.stderr
