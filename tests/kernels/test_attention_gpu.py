"""FlashAttention and FlashInfer on a GPU against the torch backend in fp32; XQA stands in test_attention_xqa_gpu.py.

A library that this machine lacks skips its cases, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from kernels.paged_steps import Case, Step, make_step, on_dummy_page
from torch import Tensor

from specbench.kernels.attention.base import AttentionBackend
from specbench.kernels.attention.flash_attention import FlashAttention
from specbench.kernels.attention.flash_libs import find_flash_attention
from specbench.kernels.attention.flashinfer_attention import FlashInferAttention
from specbench.kernels.attention.flashinfer_lib import flashinfer_missing, is_jit_disabled
from specbench.kernels.attention.torch_attention import TorchAttention
from specbench.kernels.attention.triton_attention import TritonAttention

pytestmark = pytest.mark.gpu
CUDA = torch.device("cuda")


def forced(kernel: str) -> Callable[[], FlashInferAttention]:
    return lambda: FlashInferAttention(choose=lambda meta, geometry, capability: kernel)


MAKERS: dict[str, Callable[[], AttentionBackend]] = {
    "triton": TritonAttention,
    "flash-attention": FlashAttention,
    "flash-attention-own-splits": lambda: FlashAttention(choose_splits=lambda shape: 0),
    "flashinfer": FlashInferAttention,
    "flashinfer-fa2": forced("fa2"),
    "flashinfer-fa3": forced("fa3"),
    "flashinfer-decode": forced("decode"),
}
# Backends whose result takes part of what stands behind a request's keys, when that is NaN (0 * NaN is NaN): with them
# caches must start as zeros, as the engine's do.
# FlashAttention-3 loads pages of 128 whole (TMA) once a step has rows enough; measured on an H200.
LEAKS_NAN = {("flash-attention", 100, 128), ("flash-attention-own-splits", 100, 128)}


def make_backend(name: str) -> AttentionBackend:
    if name.startswith("flash-attention") and (lookup := find_flash_attention()).source is None:
        pytest.skip(f"no library has it here ({'; '.join(lookup.refused)})")
    if name.startswith("flashinfer") and (missing := flashinfer_missing()):
        pytest.skip(missing)
    if name == "flashinfer-fa3" and torch.cuda.get_device_capability()[0] != 9:
        pytest.skip("FlashInfer's FA3 kernels are for compute capability 9.x")
    return MAKERS[name]()


@pytest.fixture(scope="module")
def backends() -> Callable[[str], AttentionBackend]:
    """One backend a name for the whole file: workspaces are large, and reuse over many shapes is part of the test."""
    made: dict[str, AttentionBackend] = {}

    def get(name: str) -> AttentionBackend:
        if name not in made:
            made[name] = make_backend(name)
        return made[name]

    return get


def fitting(name: str, case: Case) -> Case:
    """The case with pages that the backend has: FlashAttention-2 wants multiples of 256 keys."""
    if not name.startswith("flash-attention"):
        return case
    source = find_flash_attention().source
    multiple = source.page_multiple if source else 1
    return replace(case, page_size=-(-case.page_size // multiple) * multiple)


def check(backend: AttentionBackend, case: Case) -> None:
    step = make_step(case, CUDA)
    try:
        step.plan(backend)
        output = step.run(backend)
    except Exception as error:
        # FlashInfer packages have bf16 kernels ready; those for fp16 are compiled, unless that is disabled.
        if is_jit_disabled() and case.dtype == torch.float16 and type(error).__name__ == "MissingJITCacheError":
            pytest.skip("FLASHINFER_DISABLE_JIT is set, and this fp16 kernel is not prebuilt")
        raise
    step.check(output)


MIXED_KV = (1, 17, 640, 5000)


def uniform(q: int, **shape: int) -> Case:
    return Case(lengths=tuple((q, max(q, kv_len)) for kv_len in MIXED_KV), seed=q, **shape)


UNIFORM = [
    *(uniform(q, group=group) for q in range(1, 10) for group in (1, 2, 4, 8)),
    *(uniform(q, page_size=page, head_dim=d) for q in (1, 5) for page in (1, 16, 64, 128) for d in (64, 128)),
    uniform(5, num_kv_heads=3, group=3, head_dim=64),
    replace(uniform(5), dtype=torch.float16),
    Case(lengths=((4, 300),) * 70, num_kv_heads=8),
    Case(lengths=((5, 5),)),
    Case(lengths=((100, 300), (100, 100))),
]
RAGGED = [
    Case(lengths=((512, 2000), (0, 700), (1, 3000), (5, 700), (64, 64))),
    Case(lengths=((0, 40), (1, 1), (3, 900), (0, 1), (5, 5)), group=1, page_size=1),
    Case(lengths=((700, 700), (0, 16), (1, 5000)), head_dim=64, num_kv_heads=3, group=3),
    Case(lengths=((2, 50), (1, 600), (5, 5000), (4, 64)), head_dim=64, page_size=64, group=8),
    Case(lengths=((130, 200), (1, 200)), dtype=torch.float16, page_size=128),
]
GENERAL = ["triton", "flash-attention", "flash-attention-own-splits", "flashinfer", "flashinfer-fa2"]


@pytest.mark.parametrize("case", UNIFORM, ids=str)
@pytest.mark.parametrize("name", GENERAL)
def test_uniform(name, case, backends):
    check(backends(name), fitting(name, case))


@pytest.mark.parametrize("num_rows", [128, 129, 193, 257, 385, 600])
def test_the_reference_says_on_a_gpu_what_it_says_on_a_cpu(num_rows):
    """The kernel that torch would choose under a mask gets the last of 64 n + 1 rows wrong, beyond those that are
    packed. 600 rows are more than one block of them."""
    case = Case(lengths=((num_rows, num_rows),), num_kv_heads=3, group=3, head_dim=64, dtype=torch.float32)
    step = make_step(case, CUDA)
    meta = replace(step.meta, **{n: getattr(step.meta, n).cpu() for n in ("cu_q_B1", "kv_len_B", "block_table_BP")})
    inputs = (x.cpu() for x in (step.q_THD, step.k_cache, step.v_cache))
    on_cpu = TorchAttention().forward(*inputs, replace(meta, cache={}), step.scale)
    assert (step.expected_THD().cpu() - on_cpu).abs().max() < 1e-4


@pytest.mark.parametrize("case", RAGGED, ids=str)
@pytest.mark.parametrize("name", [*GENERAL, "flashinfer-fa3"])
def test_ragged(name, case, backends):
    check(backends(name), fitting(name, case))


@pytest.mark.parametrize("case", [uniform(100), uniform(5, group=1), uniform(64, head_dim=64)], ids=str)
def test_uniform_fa3(case, backends):
    check(backends("flashinfer-fa3"), case)


@pytest.mark.parametrize("case", [uniform(1, group=g, head_dim=d) for g in (1, 2, 3) for d in (64, 128)], ids=str)
def test_uniform_decode(case, backends):
    check(backends("flashinfer-decode"), case)


@pytest.mark.parametrize("q", [1, 5])
@pytest.mark.parametrize("name", GENERAL)
def test_padding_requests(name, q, backends):
    """Requests on the dummy page disturb nobody and give zeros, its values."""
    backend = backends(name)
    step = on_dummy_page(make_step(fitting(name, uniform(q)), CUDA), first=2)
    step.plan(backend)
    out_THD = step.run(backend)
    step.check(out_THD)
    assert (out_THD[2 * q :] == 0).all()


@pytest.mark.parametrize("name", [*GENERAL, "flashinfer-decode"])
def test_output_given_and_rows_strided(name, backends):
    """Rows as a slice of the projection's [T, (Hq + 2 Hkv) * D] result; the output lands where the caller says."""
    backend = backends(name)
    step = make_step(fitting(name, uniform(1 if name == "flashinfer-decode" else 3, group=2)), CUDA)
    rows, heads, dim = step.q_THD.shape
    qkv_TX = torch.full((rows, 2 * heads * dim), torch.nan, dtype=step.q_THD.dtype, device=CUDA)
    qkv_TX[:, : heads * dim] = step.q_THD.flatten(1)
    strided = replace(step, q_THD=qkv_TX[:, : heads * dim].view(rows, heads, dim))
    around = torch.full((rows + 2, heads, dim), 7.0, dtype=step.q_THD.dtype, device=CUDA)
    strided.plan(backend)
    out_THD = strided.run(backend, around[1:-1])
    assert out_THD.data_ptr() == around[1:-1].data_ptr()
    step.check(out_THD)
    assert (around[0] == 7).all() and (around[-1] == 7).all()


@pytest.mark.parametrize("page_size", [16, 128])
@pytest.mark.parametrize("q", [1, 5, 100])
@pytest.mark.parametrize("name", [*GENERAL, "flashinfer-fa3"])
def test_nan_behind_the_keys(name, q, page_size, backends):
    """Which libraries let NaN in unused slots through is written down above, so that a change is noticed."""
    backend = backends(name)
    case = fitting(name, Case(lengths=((q, 101), (q, 517)), page_size=page_size))
    step = make_step(case, CUDA, garbage=float("nan"))
    step.plan(backend)
    assert bool(step.run(backend).isnan().any()) == ((name, q, page_size) in LEAKS_NAN)


def capture(run: Callable[[], list[Tensor]]) -> tuple[torch.cuda.CUDAGraph, list[Tensor]]:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outs = run()
    return graph, outs


@pytest.mark.parametrize("group", [1, 4])
@pytest.mark.parametrize("q", [1, 2, 5, 9])
@pytest.mark.parametrize("name", GENERAL)
def test_captured_once_serves_every_length(name, q, group, backends):
    """One graph, captured with short lengths; replayed with others written in place, planned again where needed."""
    backend = backends(name)
    case = fitting(name, Case(lengths=((q, q), (q, 40), (q, q)), max_kv=5000, group=group))
    step = make_step(case, CUDA)
    step.plan(backend)
    graph, (out_THD,) = capture(lambda: [step.run(backend)])
    for seed, kv_len in enumerate((5000, q, 129, 16, 3000, 17)):
        other = make_step(replace(case, lengths=((q, kv_len), (q, q), (q, max(q, kv_len // 2))), seed=seed), CUDA)
        step = step.become(other)
        step.plan(backend)
        graph.replay()
        step.check(out_THD)


@pytest.mark.parametrize("name", ["triton", "flash-attention", "flashinfer"])
def test_several_passes_in_one_graph(name, backends):
    """A drafter's passes: all planned before one launch, each with a workspace of its own."""
    backend = backends(name)
    cases = [
        fitting(name, Case(lengths=((q, 60 + q), (q, 9)), max_kv=3000, group=g)) for q, g in ((5, 4), (1, 1), (1, 4))
    ]
    steps = [make_step(case, CUDA) for case in cases]

    def plan_all() -> None:
        for step in steps:
            step.plan(backend)

    plan_all()
    first = steps.copy()
    graph, outs = capture(lambda: [step.run(backend) for step in first])
    for kv_len in (3000, 12, 700):
        others = [
            replace(case, lengths=tuple((q, kv_len - i) for i, (q, _) in enumerate(case.lengths))) for case in cases
        ]
        steps[:] = [step.become(make_step(other, CUDA)) for step, other in zip(steps, others, strict=True)]
        plan_all()
        graph.replay()
        for step, out_THD in zip(steps, outs, strict=True):
            step.check(out_THD)


def trees(q: int, num_masked: int, **shape: int) -> Case:
    lengths = tuple((q, max(num_masked, kv_len)) for kv_len in MIXED_KV)
    return Case(lengths=lengths, num_masked=num_masked, seed=q, **shape)


TREES = [
    *(trees(q, q, group=group) for q, group in ((1, 4), (2, 1), (8, 8), (26, 4), (64, 4))),
    *(trees(q, m) for q, m in ((4, 9), (8, 40), (1, 5))),
    trees(10, 10, head_dim=64, num_kv_heads=3, group=3),
    trees(10, 30, page_size=1),
    trees(7, 7, page_size=64, head_dim=64),
    Case(lengths=((20, 300),) * 40, num_masked=20, num_kv_heads=8),
]


@pytest.mark.parametrize("case", TREES, ids=str)
@pytest.mark.parametrize("name", ["triton", "flashinfer"])
def test_trees(name, case, backends):
    check(backends(name), case)


@pytest.mark.parametrize(("q", "num_masked"), [(10, 10), (4, 16)])
@pytest.mark.parametrize("name", ["triton", "flashinfer"])
def test_captured_trees(name, q, num_masked, backends):
    """Two layers in one graph; mask and lengths are written after the plan, as an earlier phase of a graph does."""
    backend = backends(name)
    case = Case(lengths=((q, num_masked), (q, 90)), num_masked=num_masked, max_kv=4000)
    step = make_step(case, CUDA)
    second = replace(step, k_cache=step.k_cache.flip(1), v_cache=step.v_cache.flip(1))
    step.plan(backend)
    graph, outs = capture(lambda: [step.run(backend), second.run(backend)])
    for seed, kv_len in enumerate((4000, num_masked, 333), start=1):
        other = make_step(replace(case, lengths=((q, kv_len), (q, num_masked + seed)), seed=seed), CUDA)
        replace(step, lengths=other.lengths).plan(backend)
        step.become(other)
        second.k_cache.copy_(step.k_cache.flip(1)), second.v_cache.copy_(step.v_cache.flip(1))
        graph.replay()
        step.check(outs[0])
        second.check(outs[1])


def test_planning_does_not_wait_for_the_device(backends):
    """Plans and forwards of every kind of step with synchronising calls made errors."""
    backend = backends("flashinfer")
    cases = [uniform(1, group=1), uniform(5), trees(8, 8), RAGGED[0], RAGGED[1]]
    steps: list[Step] = [make_step(case, CUDA) for case in cases]
    for step in steps:
        step.plan(backend), step.run(backend)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for step in steps:
            step.plan(backend)
        outs = [step.run(backend) for step in steps]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for step, out_THD in zip(steps, outs, strict=True):
        step.check(out_THD)


def test_planned_in_one_order_and_run_in_another(backends):
    """Ragged steps that are planned together keep a wrapper each; metadata that is gone gives its wrapper back."""
    backend = backends("flashinfer")
    assert isinstance(backend, FlashInferAttention)
    num_idle = []
    for _ in range(3):
        steps = [make_step(case, CUDA) for case in (RAGGED[0], RAGGED[3], uniform(5), uniform(5, group=2))]
        for step in steps:
            step.plan(backend)
        for step in reversed(steps):
            step.check(step.run(backend))
        del steps, step
        num_idle.append(sum(map(len, backend._idle.values())))
    assert num_idle[0] == num_idle[2], "wrappers pile up"


def test_refused_shapes(backends, monkeypatch):
    monkeypatch.setenv("FLASHINFER_DISABLE_JIT", "1")
    backend = backends("flashinfer")
    with pytest.raises(ValueError, match="head_dim: 80; allowed .*: 64, 128"):
        make_step(Case(lengths=((1, 5),), head_dim=80), CUDA).plan(backend)
    with pytest.raises(ValueError, match="dtype"):
        step = make_step(Case(lengths=((1, 5),), dtype=torch.float32), CUDA)
        step.plan(backend)
