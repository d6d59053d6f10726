"""What needs no GPU of FlashInfer: kernels chosen, layouts, masks, wrappers kept and used again, refusals.

FlashInfer itself is stood in for by objects that attend in plain torch over nothing but what they were handed.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from kernels.paged_steps import Case, bit, make_step, on_dummy_page
from torch import Tensor

from specbench.kernels.attention import flashinfer_attention, flashinfer_launches, flashinfer_xqa
from specbench.kernels.attention.base import AttentionGeometry, HostLengths
from specbench.kernels.attention.flashinfer_attention import FlashInferAttention, choose_kernel
from specbench.kernels.attention.flashinfer_launches import page_lists
from specbench.kernels.attention.flashinfer_xqa import FlashInferXqa
from specbench.kernels.attention.torch_attention import TorchAttention

CPU = torch.device("cpu")
SMALL = dict(head_dim=16, group=2, dtype=torch.bfloat16)


def geometry(**changes: Any) -> AttentionGeometry:
    defaults = dict(num_q_heads=32, num_kv_heads=8, head_dim=128, page_size=16, scale=1.0, dtype=torch.bfloat16)
    return AttentionGeometry(**(defaults | dict(device=CPU) | changes))


@pytest.mark.parametrize(
    ("case", "heads", "capability", "kernel"),
    [
        (Case(lengths=((1, 40), (1, 5)), **SMALL), 32, 9, "fa2"),
        (Case(lengths=((1, 40), (1, 5)), **SMALL), 16, 9, "decode"),
        (Case(lengths=((1, 40), (0, 5)), **SMALL), 16, 9, "fa2"),
        (Case(lengths=((5, 40), (5, 5)), **SMALL), 32, 9, "fa2"),
        (Case(lengths=((80, 90), (1, 5)), **SMALL), 32, 9, "fa3"),
        (Case(lengths=((80, 90), (1, 5)), **SMALL), 32, 8, "fa2"),
        (Case(lengths=((70, 90),), num_masked=70, **SMALL), 32, 9, "fa2"),
        (Case(lengths=((1, 90),), num_masked=5, **SMALL), 8, 9, "fa2"),
    ],
)
def test_kernel_of_a_step(case, heads, capability, kernel):
    assert choose_kernel(make_step(case, CPU).meta, geometry(num_q_heads=heads), capability) == kernel


def test_page_lists_leave_out_unused_entries():
    table_BP = np.arange(1, 13, dtype=np.int32).reshape(3, 4)
    kv_len_B = np.array([33, 0, 16], np.int32)
    lists = page_lists(HostLengths(np.array([0, 1, 1, 2], np.int32), kv_len_B, table_BP), 16)
    assert lists.first_page_B1.tolist() == [0, 3, 3, 4]
    assert lists.pages_N.tolist() == [1, 2, 3, 9]
    assert lists.last_len_B.tolist() == [1, 0, 16]
    assert {x.dtype for x in (lists.first_page_B1, lists.pages_N, lists.last_len_B)} == {torch.int32}


def test_missing_flashinfer_is_an_error_with_the_reason(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for make in (FlashInferAttention, flashinfer_xqa.FlashInferXqa):
        with pytest.raises(
            ValueError, match="attention: flashinfer.* cannot be used here: (flashinfer-python is|no CUDA)"
        ):
            make()


class Wrapper:
    """FlashInfer's paged prefill wrapper as its documentation has it, with the torch backend for a kernel."""

    made: list[Wrapper] = []

    def __init__(
        self, workspace: Tensor, layout: str, use_cuda_graph: bool = False, backend: str = "auto", **buffers: Any
    ):
        self.is_fixed, self.backend, self.buffers = use_cuda_graph, backend, buffers
        self.made.append(self)

    def reset_workspace_buffer(self, floats: Tensor, ints: Tensor) -> None:
        self.ints = ints

    def plan(
        self,
        cu_q: Tensor,
        first_page: Tensor,
        pages: Tensor,
        last_len: Tensor,
        num_q_heads: int,
        num_kv_heads: int,
        head_dim: int,
        page_size: int,
        causal: bool,
        sm_scale: float,
        q_data_type: torch.dtype,
        kv_data_type: torch.dtype,
        packed_custom_mask: Tensor | None = None,
        disable_split_kv: bool = False,
        uniform_q_len: int = 0,
    ) -> None:
        given = dict(
            qo_indptr=cu_q, paged_kv_indptr=first_page, paged_kv_indices=pages, paged_kv_last_page_len=last_len
        )
        assert causal == (packed_custom_mask is None)
        for name, value in given.items():
            if not self.is_fixed:
                self.buffers[f"{name}_buf"] = value
            self.buffers[f"{name}_buf"][: len(value)].copy_(value)
        if packed_custom_mask is not None:
            self.buffers["mask_indptr_buf"].fill_(-1)  # in bits, whatever they are
        self.scale, self.page_size, self.num_rows = sm_scale, page_size, int(cu_q[-1])

    def run(self, q: Tensor, caches: tuple[Tensor, Tensor], out: Tensor) -> Tensor:
        assert len(q) == self.num_rows, "FlashInfer refuses other rows than planned"
        cu_q, first, pages, last = (
            self.buffers[f"{name}_buf"]
            for name in ("qo_indptr", "paged_kv_indptr", "paged_kv_indices", "paged_kv_last_page_len")
        )
        for b in range(len(last)):
            mine = pages[first[b] : first[b + 1]].long()
            kv_len = max(len(mine) - 1, 0) * self.page_size + int(last[b])
            rows = slice(int(cu_q[b]), int(cu_q[b + 1]))
            k_LHD, v_LHD = (x[mine].flatten(0, 1)[:kv_len].float() for x in caches)
            q_qHD = q[rows].float()
            group = q.shape[1] // k_LHD.shape[1]
            score_HqL = torch.einsum("qhd,lhd->hql", q_qHD, k_LHD.repeat_interleave(group, 1)) * self.scale
            weight_HqL = score_HqL.masked_fill(~self._sees_qL(b, len(q_qHD), kv_len), float("-inf")).softmax(-1)
            out[rows] = torch.einsum("hql,lhd->qhd", weight_HqL, v_LHD.repeat_interleave(group, 1)).to(out.dtype)
        return out

    def _sees_qL(self, b: int, q: int, kv_len: int) -> Tensor:
        if "custom_mask_buf" not in self.buffers:
            return torch.ones(q, kv_len, dtype=torch.bool).tril(kv_len - q)
        packed = self.buffers["custom_mask_buf"][int(self.buffers["mask_indptr_buf"][b]) :].tolist()
        return torch.tensor([[bit(packed, row * kv_len + key) for key in range(kv_len)] for row in range(q)])


class NoGuard:
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


@pytest.fixture
def flashinfer(monkeypatch: pytest.MonkeyPatch) -> FlashInferAttention:
    monkeypatch.setattr(Wrapper, "made", [])
    monkeypatch.setattr(flashinfer_attention, "flashinfer_missing", lambda: None)
    monkeypatch.setattr(flashinfer_attention, "check_head_dim", lambda head_dim: None)
    monkeypatch.setattr(flashinfer_attention, "_FLOAT_WORKSPACE_BYTES", 16)
    monkeypatch.setattr(
        flashinfer_launches, "load", lambda m: SimpleNamespace(BatchPrefillWithPagedKVCacheWrapper=Wrapper)
    )
    monkeypatch.setattr(flashinfer_launches, "_ReplanGuard", NoGuard)
    monkeypatch.setattr(flashinfer_launches, "fills_device", lambda meta, geometry: False)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (9, 0))
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: self)
    return FlashInferAttention(choose=lambda *step: "fa2" if choose_kernel(*step) == "decode" else choose_kernel(*step))


STEPS = [
    Case(lengths=((1, 40), (1, 5)), **SMALL),
    Case(lengths=((5, 40), (5, 5), (5, 64)), **SMALL),
    Case(lengths=((3, 40), (0, 7), (5, 9), (0, 0)), **SMALL),
    Case(lengths=((70, 90), (1, 3)), page_size=1, **SMALL),
    Case(lengths=((6, 6), (6, 43)), num_masked=6, **SMALL),
    Case(lengths=((3, 11), (3, 43)), num_masked=11, max_kv=100, **SMALL),
]


@pytest.mark.parametrize("case", STEPS, ids=str)
def test_planned_steps(case, flashinfer):
    step = make_step(case, CPU)
    step.plan(flashinfer)
    step.check(step.run(flashinfer))
    assert [w.is_fixed for w in Wrapper.made] == [step.meta.is_uniform]
    out_THD = torch.zeros_like(step.q_THD)
    assert step.run(flashinfer, out_THD) is out_THD
    step.check(out_THD)


@pytest.mark.parametrize("num_masked", [0, 4])
def test_replanned_in_place(num_masked, flashinfer):
    """What a captured launch reads keeps its address; other lengths, pages and masks are written there."""
    case = Case(lengths=((4, 4), (4, 20)), num_masked=num_masked, max_kv=300, **SMALL)
    step = make_step(case, CPU)
    step.plan(flashinfer)
    addresses = {name: buffer.data_ptr() for name, buffer in Wrapper.made[0].buffers.items()}
    for seed, kv_len in enumerate((300, 4, 77)):
        step = step.become(make_step(replace(case, lengths=((4, kv_len), (4, 4 + seed)), seed=seed), CPU))
        step.plan(flashinfer)
        step.check(step.run(flashinfer))
    assert len(Wrapper.made) == 1
    assert addresses == {name: buffer.data_ptr() for name, buffer in Wrapper.made[0].buffers.items()}


def test_mask_written_after_the_plan_counts(flashinfer):
    """A phase of the graph that holds the forward writes the tree; the plan came before."""
    step = make_step(Case(lengths=((5, 30), (5, 9)), num_masked=5, **SMALL), CPU)
    step.plan(flashinfer)
    step.run(flashinfer)
    assert step.meta.tree_mask_BQM is not None
    step.meta.tree_mask_BQM[:, 4, :4] ^= True
    step.check(step.run(flashinfer))


def test_padding_requests(flashinfer):
    step = on_dummy_page(make_step(Case(lengths=((3, 60), (3, 33), (3, 9)), **SMALL), CPU), first=1)
    step.plan(flashinfer)
    out_THD = step.run(flashinfer)
    step.check(out_THD)
    assert (out_THD[3:] == 0).all()


def test_one_metadata_for_two_models(flashinfer):
    step = make_step(STEPS[1], CPU)
    other = replace(make_step(replace(STEPS[1], group=1), CPU), meta=step.meta, lengths=step.lengths)
    other.k_cache.copy_(step.k_cache), other.v_cache.copy_(step.v_cache)
    step.plan(flashinfer)
    other.plan(flashinfer)
    step.check(step.run(flashinfer))
    other.check(other.run(flashinfer))


def test_wrappers_of_gone_metadata_are_used_again(flashinfer):
    for _ in range(3):
        steps = [make_step(case, CPU) for case in (STEPS[1], STEPS[2], STEPS[2])]
        for step in steps:
            step.plan(flashinfer)
        for step in reversed(steps):
            step.check(step.run(flashinfer))
        del steps, step
    assert len(Wrapper.made) == 3


def test_forward_needs_a_plan(flashinfer):
    step = make_step(STEPS[1], CPU)
    with pytest.raises(AssertionError, match="plan"):
        step.run(flashinfer)
    step.plan(flashinfer)
    with pytest.raises(AssertionError, match="scale"):
        replace(step, scale=2.0).run(flashinfer)


def test_flashinfer_refuses(monkeypatch, flashinfer):
    monkeypatch.undo()
    monkeypatch.setenv("FLASHINFER_DISABLE_JIT", "1")
    step = make_step(Case(lengths=((1, 5),), **SMALL), CPU)
    with pytest.raises(ValueError, match=r"head_dim: 16; .*prebuilt kernels only.*: 64, 128"):
        flashinfer.plan(step.meta, step.lengths, step.geometry)
    with pytest.raises(ValueError, match="dtype: torch.float32"):
        flashinfer.plan(step.meta, step.lengths, geometry(dtype=torch.float32))


def xqa_kernel(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    page_table: Tensor,
    seq_lens: Tensor,
    output: Tensor,
    workspace_buffer: Tensor,
    semaphores: Tensor,
    num_kv_heads: int,
    page_size: int,
    q_scale: float,
    q_seq_len: int,
    mask: Tensor | None,
) -> None:
    """flashinfer.xqa.xqa as its documentation has it."""
    assert q.is_contiguous() and page_table.is_contiguous() and semaphores.dtype == torch.uint32
    assert q.dim() == (5 if q_seq_len > 1 else 4) and seq_lens.dtype == torch.uint32 and seq_lens.shape[1] == 1
    assert (mask is None) == (q_seq_len == 1)
    for b, kv_len in enumerate(seq_lens.flatten().tolist()):
        slot_L = torch.arange(kv_len)
        flat_L = page_table[b, slot_L // page_size].long() * page_size + slot_L % page_size
        k_LHD, v_LHD = (x.flatten(0, 1)[flat_L].float() for x in (k_cache, v_cache))
        q_qHD = q[b].reshape(q_seq_len, *q.shape[-2:]).float()
        sees_qL = torch.ones(q_seq_len, kv_len, dtype=torch.bool)
        if mask is not None:
            words = mask[b].view(torch.uint8).flatten().tolist()
            row_bits = -(-q_seq_len // 32) * 32
            own = [[bit(words, row * row_bits + j) for j in range(q_seq_len)] for row in range(q_seq_len)]
            sees_qL[:, kv_len - q_seq_len :] = torch.tensor(own)
        group = q.shape[-2] // num_kv_heads
        scale = q_scale * q.shape[-1] ** -0.5
        score_HqL = torch.einsum("qhd,lhd->hql", q_qHD, k_LHD.repeat_interleave(group, 1)) * scale
        weight_HqL = score_HqL.masked_fill(~sees_qL, float("-inf")).softmax(-1)
        out_qHD = torch.einsum("hql,lhd->qhd", weight_HqL, v_LHD.repeat_interleave(group, 1))
        output[b] = out_qHD.view(output[b].shape).to(output.dtype)


@pytest.fixture
def xqa(monkeypatch: pytest.MonkeyPatch) -> FlashInferXqa:
    monkeypatch.setattr(flashinfer_xqa, "xqa_missing", lambda: None)
    monkeypatch.setattr(flashinfer_xqa, "load", lambda module: SimpleNamespace(xqa=xqa_kernel))
    monkeypatch.setattr(TorchAttention, "is_planned", False, raising=False)
    return FlashInferXqa(ragged=TorchAttention())


@pytest.mark.parametrize(
    "case",
    [
        Case(lengths=((1, 40), (1, 1)), **SMALL),
        Case(lengths=((5, 40), (5, 5)), **SMALL),
        Case(lengths=((9, 40), (9, 17)), page_size=32, **SMALL),
        Case(lengths=((8, 40), (8, 8)), num_masked=8, **SMALL),
        Case(lengths=((40, 60), (40, 41)), num_masked=40, **SMALL),
    ],
    ids=str,
)
def test_xqa(case, xqa):
    step = make_step(case, CPU)
    out_THD = torch.zeros_like(step.q_THD)
    assert step.run(xqa, out_THD) is out_THD
    step.check(out_THD)
    if step.meta.tree_mask_BQM is not None:
        step.meta.tree_mask_BQM[:, -1, :-1] ^= True
    step.meta.kv_len_B[1] -= 0 if step.meta.kv_len_B[1] == step.meta.max_q else 1
    step.check(step.run(xqa))


def test_xqa_leaves_ragged_steps_to_the_other_backend(xqa):
    for case in (STEPS[2], Case(lengths=((10, 20), (10, 12)), **SMALL)):
        step = make_step(replace(case, dtype=torch.float32), CPU)
        assert torch.equal(step.run(xqa), step.expected_THD())


def test_xqa_refuses(xqa):
    for case, message in [
        (Case(lengths=((1, 5),), page_size=8, **SMALL), "page_size: 8; allowed .*16, 32, 64, 128"),
        (Case(lengths=((1, 5),), head_dim=24), "head_dim: 24"),
        (Case(lengths=((4, 9),), num_masked=9, **SMALL), r"tree mask: \(4, 9\)"),
        (Case(lengths=((1, 5),), head_dim=16, dtype=torch.float32), "dtype: torch.float32"),
    ]:
        with pytest.raises(ValueError, match=message):
            make_step(case, CPU).run(xqa)
