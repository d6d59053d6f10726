"""Attention backends against dense fp32 attention of one request at a time.

Legend: T rows, B requests, q rows and L keys of one request, H heads, D head dimension.
"""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from specbench.kernels.attention import torch_attention
from specbench.kernels.attention.base import AttentionBackend, AttentionMetadata
from specbench.kernels.attention.launch import Launch
from specbench.kernels.attention.torch_attention import TorchAttention, in_blocks
from specbench.kernels.attention.triton_attention import TritonAttention
from specbench.kernels.triton_support import HAS_TRITON

# Largest absolute error on outputs of order 1: the weights are rounded to the dtype before the second product.
TOLERANCE = {torch.float32: 2e-5, torch.float16: 3e-3, torch.bfloat16: 2e-2}


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """A ragged step: (rows, keys) of each request, and the shape of heads and pages."""

    lengths: tuple[tuple[int, int], ...]
    num_kv_heads: int = 2
    group: int = 3
    head_dim: int = 16
    page_size: int = 16
    dtype: torch.dtype = torch.float32
    tree: bool = False
    older: int = 0
    """Keys before the step's own rows that the tree mask covers too (M = q + older)."""
    seed: int = 0

    def __str__(self) -> str:
        lengths = ",".join(f"{q}x{kv_len}" for q, kv_len in self.lengths[:4])
        dtype = str(self.dtype).removeprefix("torch.")
        tree = f"-tree+{self.older}" if self.tree else ""
        return f"{lengths}-g{self.group}-d{self.head_dim}-p{self.page_size}-{dtype}" + tree


@dataclass(frozen=True, slots=True)
class Step:
    q_THD: Tensor
    k_cache: Tensor
    v_cache: Tensor
    meta: AttentionMetadata
    scale: float
    expected_THD: Tensor


def random_trees(num_requests: int, q: int) -> Tensor:
    """Ancestor masks of random trees: each node sees itself and what its parent, an earlier node, sees."""
    mask_BQQ = torch.eye(q, dtype=torch.bool).repeat(num_requests, 1, 1)
    for b, i in itertools.product(range(num_requests), range(1, q)):
        parent = int(torch.randint(i, ()))
        mask_BQQ[b, i] |= mask_BQQ[b, parent]
    return mask_BQQ


def with_older_keys(trees_BQQ: Tensor, older: int) -> Tensor:
    """[B, Q, older + Q]: as in the later levels of a tree drafter, a row sees some of the rows of earlier levels."""
    num_requests, q, _ = trees_BQQ.shape
    return torch.cat([torch.rand(num_requests, q, older) < 0.5, trees_BQQ], dim=2)


def dense_attention(q_qHD: Tensor, k_LHD: Tensor, v_LHD: Tensor, own_qM: Tensor, scale: float) -> Tensor:
    """The oracle: every score in fp64, masked by hand."""
    q, num_heads, _ = q_qHD.shape
    kv_len = k_LHD.shape[0]
    k_LHD, v_LHD = (x.double().repeat_interleave(num_heads // x.shape[1], 1) for x in (k_LHD, v_LHD))
    score_HqL = torch.einsum("qhd,lhd->hql", q_qHD.double(), k_LHD) * scale
    visible_qL = torch.ones(q, kv_len, dtype=torch.bool)
    visible_qL[:, kv_len - own_qM.shape[1] :] = own_qM
    weight_HqL = score_HqL.masked_fill(~visible_qL, float("-inf")).softmax(-1)
    return torch.einsum("hql,lhd->qhd", weight_HqL, v_LHD)


def make_step(case: Case, device: torch.device) -> Step:
    """Random rows over shuffled pages; every slot that holds no key of a request is NaN, page 0 too."""
    torch.manual_seed(case.seed)
    page = case.page_size
    max_q = max(q for q, _ in case.lengths)
    max_kv = max(kv_len for _, kv_len in case.lengths)
    pages_of = [-(-kv_len // page) for _, kv_len in case.lengths]
    ids = (torch.randperm(sum(pages_of) + 3) + 1).tolist()
    cache_shape = (len(ids) + 1, page, case.num_kv_heads, case.head_dim)
    k_cache, v_cache = (torch.full(cache_shape, float("nan")) for _ in "kv")
    num_rows = sum(q for q, _ in case.lengths)
    q_THD = torch.randn(num_rows, case.num_kv_heads * case.group, case.head_dim).to(case.dtype)
    # Wider than needed, the rest 0: as the engine's tables are.
    table_BP = torch.zeros(len(case.lengths), max(pages_of) + 2, dtype=torch.int32)
    trees_BQM = with_older_keys(random_trees(len(case.lengths), max_q), case.older) if case.tree else None
    scale = case.head_dim**-0.5
    expected, cu_q = [], [0]
    for b, (q, kv_len) in enumerate(case.lengths):
        k_LHD, v_LHD = (torch.randn(kv_len, *cache_shape[2:]).to(case.dtype) for _ in "kv")
        table_BP[b, : pages_of[b]] = torch.tensor([ids.pop() for _ in range(pages_of[b])])
        slots = torch.arange(kv_len)
        flat = table_BP[b, slots // page].long() * page + slots % page
        k_cache.view(-1, *cache_shape[2:])[flat] = k_LHD.float()
        v_cache.view(-1, *cache_shape[2:])[flat] = v_LHD.float()
        own_qM = torch.ones(q, q, dtype=torch.bool).tril() if trees_BQM is None else trees_BQM[b]
        rows = slice(cu_q[-1], cu_q[-1] + q)
        expected.append(dense_attention(q_THD[rows], k_LHD, v_LHD, own_qM, scale))
        cu_q.append(cu_q[-1] + q)
    meta = AttentionMetadata(
        cu_q_B1=torch.tensor(cu_q, dtype=torch.int32, device=device),
        kv_len_B=torch.tensor([kv_len for _, kv_len in case.lengths], dtype=torch.int32, device=device),
        block_table_BP=table_BP.to(device),
        max_q=max_q,
        max_kv=max_kv,
        is_uniform=len({q for q, _ in case.lengths}) == 1,
        tree_mask_BQM=None if trees_BQM is None else trees_BQM.to(device),
    )
    k_cache, v_cache = (x.to(device, case.dtype) for x in (k_cache, v_cache))
    return Step(q_THD.to(device), k_cache, v_cache, meta, scale, torch.cat(expected))


def check(backend: AttentionBackend, case: Case, device: torch.device) -> None:
    step = make_step(case, device)
    inputs = (step.q_THD, step.k_cache, step.v_cache, step.meta, step.scale)
    out_THD = backend.forward(*inputs)
    assert out_THD.dtype == case.dtype and out_THD.shape == step.q_THD.shape and out_THD.is_contiguous()
    torch.testing.assert_close(out_THD.double().cpu(), step.expected_THD, atol=TOLERANCE[case.dtype], rtol=0)


def test_result_is_written_where_asked(device: torch.device) -> None:
    """Rows of a larger buffer: the part of a step whose rows stand in the middle."""
    for lengths in (((3, 40),), ((3, 40), (2, 7))):
        for backend in backends_of(device):
            step = make_step(Case(lengths=lengths), device)
            num_rows = step.q_THD.shape[0]
            buffer_THD = torch.full((num_rows + 2, *step.q_THD.shape[1:]), -7.0, device=device)
            inputs = (step.q_THD, step.k_cache, step.v_cache, step.meta, step.scale)
            given = backend.forward(*inputs, out_THD=buffer_THD[1:-1])
            assert given.data_ptr() == buffer_THD[1:-1].data_ptr()
            assert torch.equal(buffer_THD[1:-1], backend.forward(*inputs))
            assert (buffer_THD[[0, -1]] == -7.0).all()


def fixed_launch(**changes: int) -> TritonAttention:
    """A backend whose launch is the given one."""
    defaults = dict(block_m=16, block_n=16, num_splits=1, num_warps=4, num_stages=2)
    launch = Launch(**(defaults | changes))
    return TritonAttention(choose=lambda shape: launch)


@pytest.fixture
def triton_device(device: torch.device) -> torch.device:
    """On a CPU only Triton's interpreter can run the kernels."""
    if not HAS_TRITON:
        pytest.skip("Triton is not installed")
    if device.type == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("TRITON_INTERPRET is not 1, so kernels run on a GPU only")
    return device


@pytest.fixture(autouse=True)
def interpreted_loop_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton 3.6's interpreter reads a loop bound as int(array of one element), which numpy 2.4 refuses."""
    if not HAS_TRITON:
        return
    from triton.runtime import interpreter

    patch_tensor = interpreter._patch_lang_tensor

    def patch_index_too(tensor: Any, scope: Any) -> None:
        patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    monkeypatch.setattr(interpreter, "_patch_lang_tensor", patch_index_too)


MIXED = ((1, 1), (1, 17), (3, 40), (7, 7), (1, 33))

SMALL_CASES = [
    *(Case(lengths=((q, q), (q, q + 31), (q, 64)), seed=q) for q in range(1, 10)),
    *(Case(lengths=((5, 70), (5, 5)), group=group) for group in (1, 3, 4, 8)),
    *(Case(lengths=((4, 131), (4, 64), (4, 65)), page_size=page) for page in (1, 16, 32, 64, 128)),
    *(Case(lengths=((1, kv_len),), page_size=16) for kv_len in (1, 15, 16, 17, 100)),
    Case(lengths=((2, 50), (2, 3)), head_dim=64, num_kv_heads=3),
    Case(lengths=((2, 50), (2, 3)), head_dim=128, group=4),
    Case(lengths=MIXED),
    Case(lengths=MIXED, page_size=1, group=1),
    Case(lengths=((40, 90), (1, 200), (1, 1), (33, 33)), group=4, page_size=32),
    *(Case(lengths=((q, q), (q, q + 37), (q, 20)), tree=True, seed=q) for q in (1, 2, 6, 16)),
    *(Case(lengths=((q, q + 9), (q, q + 37)), tree=True, older=older, seed=q) for q in (1, 2, 4) for older in (1, 9)),
    Case(lengths=((8, 56), (8, 130)), tree=True, older=48, page_size=1, num_kv_heads=1),
    Case(lengths=((5, 70), (1, 30)), dtype=torch.float16, group=4),
    Case(lengths=((1, 70), (1, 30)), dtype=torch.float16, head_dim=64),
]

# Lengths and heads of real models, for which the interpreter is too slow, and bf16, which its tl.dot does not know.
LARGE_CASES = [
    Case(lengths=((5, 70), (1, 30)), dtype=torch.bfloat16, group=4),
    Case(lengths=((1, 70), (1, 30)), dtype=torch.bfloat16, head_dim=64),
    Case(lengths=((1, 1), (1, 17), (1, 4096), (1, 5000)), num_kv_heads=3, head_dim=64, page_size=32),
    Case(lengths=((5, 5000), (5, 5), (5, 1000)), num_kv_heads=8, group=4, head_dim=128, page_size=64),
    Case(lengths=((9, 3000),), num_kv_heads=2, group=8, head_dim=128, dtype=torch.bfloat16),
    Case(lengths=((512, 2000), (1, 3000), (5, 700)), num_kv_heads=2, group=4, head_dim=64, dtype=torch.bfloat16),
    Case(lengths=((512, 512),), num_kv_heads=3, head_dim=64, page_size=128),
    Case(lengths=((64, 1000), (64, 64)), num_kv_heads=2, group=4, head_dim=128, tree=True),
    Case(lengths=((8, 1000), (8, 64)), num_kv_heads=2, group=4, head_dim=128, tree=True, older=56),
    *(
        Case(lengths=((5, 600), (5, 9)), num_kv_heads=8, group=4, head_dim=128, page_size=p)
        for p in (1, 16, 32, 64, 128)
    ),
]


@pytest.mark.parametrize("case", SMALL_CASES + LARGE_CASES, ids=str)
def test_torch(case: Case, device: torch.device) -> None:
    check(TorchAttention(), case, device)


@pytest.mark.parametrize("case", SMALL_CASES, ids=str)
def test_triton(case: Case, triton_device: torch.device) -> None:
    check(TritonAttention(), case, triton_device)


@pytest.mark.gpu
@pytest.mark.parametrize("case", LARGE_CASES, ids=str)
def test_triton_large(case: Case) -> None:
    check(TritonAttention(), case, torch.device("cuda"))


@pytest.mark.parametrize("num_splits", [1, 3, 32])
@pytest.mark.parametrize("lengths", [((1, 100), (1, 1), (1, 16)), ((5, 100), (5, 5), (5, 17)), MIXED], ids=str)
def test_triton_splits(num_splits: int, lengths: tuple[tuple[int, int], ...], triton_device: torch.device) -> None:
    check(fixed_launch(num_splits=num_splits), Case(lengths=lengths), triton_device)


@pytest.mark.parametrize("num_splits", [1, 5])
def test_triton_splits_tree(num_splits: int, triton_device: torch.device) -> None:
    check(fixed_launch(num_splits=num_splits), Case(lengths=((20, 50), (20, 20)), tree=True), triton_device)


@pytest.mark.parametrize("page_size", [1, 32])
@pytest.mark.parametrize("block_m", [16, 32])
def test_triton_several_tiles(page_size: int, block_m: int, triton_device: torch.device) -> None:
    """A request's packed rows end and begin inside a tile, ragged and uniform, with splits before and behind a tile."""
    backend = fixed_launch(block_m=block_m, block_n=32, num_splits=3)
    # 41 and 44 keys: the last row of the first tile (16 or 32 packed rows, 3 heads) is alone in seeing key 32.
    for lengths in (((14, 41), (1, 90), (22, 44)), ((23, 60), (23, 23))):
        check(backend, Case(lengths=lengths, num_kv_heads=1, page_size=page_size), triton_device)


def backends_of(device: torch.device) -> list[AttentionBackend]:
    on_cpu_without_interpreter = device.type == "cpu" and os.environ.get("TRITON_INTERPRET") != "1"
    if not HAS_TRITON or on_cpu_without_interpreter:
        return [TorchAttention()]
    return [TorchAttention(), fixed_launch(num_splits=2)]


def test_blocks_of_query_rows_give_what_all_at_once_give() -> None:
    q, k, v = torch.randn(2, 3, 11, 8), torch.randn(2, 1, 20, 8).expand(2, 3, 20, 8), torch.randn(2, 3, 20, 8)
    bias = torch.zeros(11, 20).masked_fill_(torch.rand(11, 20) < 0.3, float("-inf"))
    whole = scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=0.3)
    for most in (1, 4, 11, 99):
        torch.testing.assert_close(in_blocks(q, k, v, bias, 0.3, most), whole)
    assert torch.equal(in_blocks(q, k, v, None, 0.3, 4), scaled_dot_product_attention(q, k, v, scale=0.3))


@pytest.mark.parametrize("lengths", [((1, 40),), ((4, 40),), ((300, 320),)])
def test_the_reference_is_dense_whatever_the_product_gives(lengths, monkeypatch) -> None:
    """On a GPU, torch's plain products leave the heads of one row apart in memory."""

    def apart(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float) -> Tensor:
        out = scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scale)
        return torch.cat([out, out], dim=-1)[..., : out.shape[-1]]

    monkeypatch.setattr(torch_attention, "_product", apart)
    check(TorchAttention(), Case(lengths=lengths), torch.device("cpu"))


def test_metadata_rewritten_in_place(device: torch.device) -> None:
    """The engine reuses one metadata object round after round; nothing derived from old values may survive."""
    case = Case(lengths=((3, 40), (3, 20)), tree=True)
    for backend in backends_of(device):
        step = make_step(case, device)
        meta, mask_BQM = step.meta, step.meta.tree_mask_BQM
        assert mask_BQM is not None
        for seed, lengths in ((1, ((3, 30), (3, 12))), (2, ((3, 30), (3, 12))), (3, ((3, 3), (3, 40)))):
            other = make_step(Case(lengths=lengths, tree=True, seed=seed), device)
            other_mask_BQM = other.meta.tree_mask_BQM
            assert other_mask_BQM is not None
            meta.kv_len_B.copy_(other.meta.kv_len_B)
            meta.block_table_BP.zero_()
            meta.block_table_BP[:, : other.meta.block_table_BP.shape[1]] = other.meta.block_table_BP
            mask_BQM.copy_(other_mask_BQM)
            out_THD = backend.forward(other.q_THD, other.k_cache, other.v_cache, meta, other.scale)
            torch.testing.assert_close(out_THD.double().cpu(), other.expected_THD, atol=2e-5, rtol=0)


def test_stale_mask_is_noticed(device: torch.device) -> None:
    """A new tree over the same keys: only the row whose ancestors changed gives another result, and the right one."""
    for backend in backends_of(device):
        step = make_step(Case(lengths=((4, 40), (4, 20)), tree=True), device)
        assert step.meta.tree_mask_BQM is not None
        inputs = (step.q_THD, step.k_cache, step.v_cache)
        before_THD = backend.forward(*inputs, step.meta, step.scale)
        step.meta.tree_mask_BQM[0, 3, :3] ^= True
        after_THD = backend.forward(*inputs, step.meta, step.scale)
        assert (after_THD != before_THD).any(-1).any(-1).nonzero().flatten().tolist() == [3]
        assert torch.equal(after_THD, backend.forward(*inputs, replace(step.meta, cache={}), step.scale))


def test_stale_pages_are_noticed(device: torch.device) -> None:
    """The same lengths on other pages: the keys of the pages the table names now are read."""
    for backend in backends_of(device):
        step = make_step(Case(lengths=((2, 30), (2, 30))), device)
        inputs = (step.q_THD, step.k_cache, step.v_cache)
        backend.forward(*inputs, step.meta, step.scale)
        step.meta.block_table_BP.copy_(step.meta.block_table_BP.flip(0))
        swapped_THD = backend.forward(step.q_THD.roll(2, 0), *inputs[1:], step.meta, step.scale)
        torch.testing.assert_close(swapped_THD.roll(2, 0).double().cpu(), step.expected_THD, atol=2e-5, rtol=0)


def test_consecutive_pages_equal_shuffled(device: torch.device) -> None:
    """The view taken of consecutive pages and the copy gathered from scattered ones hold the same keys."""
    step = make_step(Case(lengths=((4, 75),), page_size=16), device)
    table = step.meta.block_table_BP
    order = table[0, :5].long()
    k_cache, v_cache = torch.full_like(step.k_cache, torch.nan), torch.full_like(step.v_cache, torch.nan)
    k_cache[2:7], v_cache[2:7] = step.k_cache[order], step.v_cache[order]
    table[0, :5] = torch.arange(2, 7)
    for backend in backends_of(device):
        out_THD = backend.forward(step.q_THD, k_cache, v_cache, step.meta, step.scale)
        torch.testing.assert_close(out_THD.double().cpu(), step.expected_THD, atol=2e-5, rtol=0)


def test_caches_interleaved_by_page(device: torch.device) -> None:
    """Keys and values as two views of one [pages, 2, page, Hkv, D] allocation: pages are not adjacent in memory."""
    step = make_step(Case(lengths=((4, 75), (4, 16))), device)
    both = torch.stack([step.k_cache, step.v_cache], 1)
    for backend in backends_of(device):
        out_THD = backend.forward(step.q_THD, both[:, 0], both[:, 1], step.meta, step.scale)
        torch.testing.assert_close(out_THD.double().cpu(), step.expected_THD, atol=2e-5, rtol=0)


def test_padding_requests(device: torch.device) -> None:
    """Requests on the dummy page beside a real one: they read page 0, disturb nobody and produce finite rows."""
    step = make_step(Case(lengths=((3, 60), (3, 3), (3, 3))), device)
    step.k_cache[0], step.v_cache[0] = 1.0, 2.0
    step.meta.block_table_BP[1:] = 0
    for backend in backends_of(device):
        out_THD = backend.forward(step.q_THD, step.k_cache, step.v_cache, step.meta, step.scale)
        torch.testing.assert_close(out_THD[:3].double().cpu(), step.expected_THD[:3], atol=2e-5, rtol=0)
        torch.testing.assert_close(out_THD[3:], torch.full_like(out_THD[3:], 2.0))


def test_fewer_keys_than_rows_is_refused() -> None:
    step = make_step(Case(lengths=((3, 9), (3, 5))), torch.device("cpu"))
    step.meta.kv_len_B[1] = 2
    with pytest.raises(ValueError, match="kv_len of request 1 is 2"):
        TorchAttention().forward(step.q_THD, step.k_cache, step.v_cache, step.meta, step.scale)


def test_fewer_keys_than_mask_columns_is_refused() -> None:
    step = make_step(Case(lengths=((3, 19), (3, 15)), tree=True, older=6), torch.device("cpu"))
    step.meta.kv_len_B[1] = 8
    with pytest.raises(ValueError, match="at least the 9 keys of its mask"):
        TorchAttention().forward(step.q_THD, step.k_cache, step.v_cache, step.meta, step.scale)


@pytest.mark.gpu
@pytest.mark.parametrize("q", [1, 5])
def test_triton_captured_once_serves_every_length(q: int) -> None:
    """One graph, captured with the bound of the lengths, replayed with others: its launch depends on shapes alone."""
    device, backend = torch.device("cuda"), TritonAttention()
    heads = dict(num_kv_heads=8, group=4, head_dim=128, dtype=torch.bfloat16)
    step = make_step(Case(lengths=((q, 4096), (q, 4096)), **heads), device)  # type: ignore[arg-type]
    inputs = (step.q_THD, step.k_cache, step.v_cache)
    backend.forward(*inputs, step.meta, step.scale)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out_THD = backend.forward(*inputs, step.meta, step.scale)
    for seed, kv_len in enumerate((q, 40, 129, 1000, 4096)):
        other = make_step(Case(lengths=((q, kv_len), (q, q)), seed=seed, **heads), device)  # type: ignore[arg-type]
        step.q_THD.copy_(other.q_THD)
        step.k_cache.fill_(torch.nan), step.v_cache.fill_(torch.nan)
        step.k_cache[: len(other.k_cache)], step.v_cache[: len(other.v_cache)] = other.k_cache, other.v_cache
        step.meta.kv_len_B.copy_(other.meta.kv_len_B)
        width = min(step.meta.block_table_BP.shape[1], other.meta.block_table_BP.shape[1])
        step.meta.block_table_BP[:, :width] = other.meta.block_table_BP[:, :width]
        graph.replay()
        error = (out_THD.double().cpu() - other.expected_THD).abs().max()
        assert error < TOLERANCE[torch.bfloat16], f"kv_len {kv_len}: error {error}"
