"""The compiled small operations of a CPU: the right results, and what happens where they cannot be had."""

from __future__ import annotations

import os
import stat
import subprocess
from dataclasses import replace

import pytest
import torch
from kernels.test_attention import Case, check, make_step

from specbench.kernels import compiled, rms_norm, rope_store_kv, silu_and_mul
from specbench.kernels.attention import torch_attention

CPU = torch.device("cpu")
BF16 = torch.bfloat16
needs_compiler = pytest.mark.skipif(compiled.library() is None, reason="no C compiler")


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """As in a new process with an empty cache."""
    monkeypatch.setenv("SPECBENCH_CACHE", str(tmp_path))
    caches = (compiled.library, compiled.compiler)
    for cached in caches:
        cached.cache_clear()
    yield tmp_path
    for cached in caches:
        cached.cache_clear()


@needs_compiler
@pytest.mark.parametrize("head_dim", [16, 64, 80, 128])
@pytest.mark.parametrize("lengths", [((1, 1),), ((1, 40),), ((5, 5),), ((5, 70), (1, 33), (9, 20))], ids=str)
def test_attention_over_few_rows(monkeypatch, lengths, head_dim):
    monkeypatch.delattr(torch_attention, "_plan")  # what torch's operations need
    check(torch_attention.TorchAttention(), Case(lengths=lengths, head_dim=head_dim, dtype=BF16), CPU)


@needs_compiler
@pytest.mark.parametrize("older", [0, 7])
def test_attention_under_a_tree_mask(monkeypatch, older):
    monkeypatch.delattr(torch_attention, "_plan")
    check(torch_attention.TorchAttention(), Case(lengths=((6, 50), (6, 13)), dtype=BF16, tree=True, older=older), CPU)


@needs_compiler
@pytest.mark.parametrize("num_keys", [5, 16, 131, 262])
def test_a_row_alone_and_among_others_has_the_same_bits(num_keys):
    step = make_step(Case(lengths=((5, num_keys),), head_dim=64, dtype=BF16), CPU)

    def attend(q_THD, keys: int) -> torch.Tensor:
        lengths = {"cu_q_B1": [0, q_THD.shape[0]], "kv_len_B": [keys]}
        tensors = {name: torch.tensor(value, dtype=torch.int32) for name, value in lengths.items()}
        meta = replace(step.meta, **tensors, max_q=q_THD.shape[0], max_kv=keys)
        return torch_attention.TorchAttention().forward(q_THD, step.k_cache, step.v_cache, meta, step.scale)

    rows = [attend(step.q_THD[i : i + 1], num_keys - 4 + i) for i in range(5)]
    assert torch.equal(torch.cat(rows), attend(step.q_THD, num_keys))


@needs_compiler
@pytest.mark.parametrize(("lengths", "is_compiled"), [((40, 300), False), ((4, 300), True)])
def test_many_scores_are_left_to_torch(lengths, is_compiled, monkeypatch):
    attend, attended = torch_attention._attend_compiled, []

    def spy(*arguments):
        attended.append(attend(*arguments))
        return attended[-1]

    monkeypatch.setattr(torch_attention, "_attend_compiled", spy)
    check(torch_attention.TorchAttention(), Case(lengths=(lengths,), dtype=BF16), CPU)
    assert attended and all((out is not None) == is_compiled for out in attended)


@needs_compiler
def test_each_operation_runs_compiled_where_it_takes_the_rows(monkeypatch):
    called = []
    functions = compiled.library()

    class Spy:
        def __getattr__(self, name):
            return lambda *arguments: called.append(name) or getattr(functions, name)(*arguments)

    monkeypatch.setattr(compiled, "library", Spy)
    x, residual, weight = (torch.randn(*shape, dtype=BF16) for shape in ((3, 64), (3, 64), (64,)))
    cache = torch.zeros(2, 4, 1, 16, dtype=BF16)
    rope_store_kv.rope_store_kv(x, torch.rand(9, 16), torch.arange(3), torch.arange(3), cache, cache.clone(), 2, 1)
    rms_norm.rms_norm(x, weight, 1e-5)
    rms_norm.add_rms_norm(x, residual, weight, 1e-5)
    silu_and_mul.silu_and_mul(x)
    assert called == [
        "specbench_rope_store_kv",
        "specbench_rms_norm",
        "specbench_rms_norm",
        "specbench_silu_and_mul",
    ]


@needs_compiler
def test_not_a_number_stays_one():
    x = torch.full((2, 64), float("nan"), dtype=BF16)
    x[1] = float("inf")
    assert rms_norm.rms_norm_c(x, torch.ones(64, dtype=BF16), 1e-5).isnan().all()
    assert silu_and_mul.silu_and_mul_c(x)[0].isnan().all() and silu_and_mul.silu_and_mul_c(x)[1].isinf().all()


@pytest.mark.parametrize(
    "rows",
    [
        torch.zeros(2, 8),
        torch.zeros(0, 8, dtype=BF16),
        torch.zeros(compiled.MAX_ROWS + 1, 8, dtype=BF16),
        torch.zeros(2, 8, dtype=BF16, requires_grad=True),
    ],
    ids=["fp32", "none", "many", "gradients"],
)
def test_what_it_does_not_take(rows):
    assert not compiled.takes(rows)


def test_without_a_compiler_torch_does_it(fresh, monkeypatch):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(fresh))
    rows = torch.ones(1, 8, dtype=BF16)
    assert compiled.library() is None and compiled.compiler() is None and not compiled.takes(rows)
    assert silu_and_mul.silu_and_mul(rows).shape == (1, 4)


def test_with_a_compiler_that_fails_too(fresh, monkeypatch):
    broken = fresh / "cc"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CC", str(broken))
    assert compiled.library() is None and not list(fresh.glob("compiled/*"))


@needs_compiler
def test_it_is_made_once_and_its_compiler_named(fresh, monkeypatch):
    assert compiled.library() is not None
    (made,) = fresh.glob("compiled/*")
    version = subprocess.run(["cc", "--version"], capture_output=True, text=True).stdout
    assert version.startswith(compiled.compiler() or "nothing")
    compiled.library.cache_clear()
    monkeypatch.setattr(subprocess, "run", None)
    assert compiled.library() is not None and made.exists()


@needs_compiler
def test_a_file_that_others_can_write_is_not_loaded(fresh):
    assert compiled.library() is not None
    (made,) = fresh.glob("compiled/*")
    os.chmod(made, made.stat().st_mode | stat.S_IWOTH)
    compiled.library.cache_clear()
    assert compiled.library() is None
