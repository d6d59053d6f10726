"""FlashInfer's XQA kernels on a GPU; a file of its own because each shape is compiled first (all of them at once)."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from kernels.paged_steps import Case, make_step, on_dummy_page

from specbench.kernels.attention.flashinfer_lib import xqa_missing
from specbench.kernels.attention.flashinfer_xqa import FlashInferXqa

pytestmark = pytest.mark.gpu
CUDA = torch.device("cuda")
MIXED_KV = (1, 17, 640, 5000)
# Whether what stands behind a request's keys, when that is NaN, reaches its result: caches must then start as zeros.
LEAKS_NAN = False


def uniform(q: int, num_masked: int = 0, **shape: int) -> Case:
    return Case(lengths=tuple((q, max(q, kv_len)) for kv_len in MIXED_KV), num_masked=num_masked, seed=q, **shape)


CHAINS = [
    uniform(1),
    uniform(5),
    uniform(2, group=1, page_size=64, head_dim=64),
    uniform(9, group=8, page_size=128),
    uniform(5, num_kv_heads=3, group=3, head_dim=64, page_size=32),
]
TREES = [uniform(8, 8), uniform(26, 26, group=2)]
BATCHES = [Case(lengths=((5, 300),) * 64, num_kv_heads=8), Case(lengths=((5, 5),))]


@pytest.fixture(scope="module")
def xqa() -> FlashInferXqa:
    """The backend, with all modules of the cases compiled side by side."""
    if missing := xqa_missing():
        pytest.skip(missing)
    from flashinfer.jit.core import build_jit_specs
    from flashinfer.jit.xqa import gen_xqa_module

    bf16 = torch.bfloat16
    shapes = {(c.page_size, c.head_dim, c.group, c.lengths[0][0]) for c in CHAINS + TREES}
    build_jit_specs([gen_xqa_module(bf16, bf16, page, d, g, False, bf16, q) for page, d, g, q in sorted(shapes)])
    return FlashInferXqa()


@pytest.mark.parametrize("case", CHAINS + TREES + BATCHES, ids=str)
def test_uniform(case, xqa):
    step = make_step(case, CUDA)
    step.check(step.run(xqa))


def test_output_given(xqa):
    step = make_step(uniform(5), CUDA)
    out_THD = torch.full_like(step.q_THD, 7.0)
    assert step.run(xqa, out_THD) is out_THD
    step.check(out_THD)


@pytest.mark.parametrize("q", [1, 5])
def test_padding_requests(q, xqa):
    step = on_dummy_page(make_step(uniform(q), CUDA), first=2)
    out_THD = step.run(xqa)
    step.check(out_THD)
    assert (out_THD[2 * q :] == 0).all()


@pytest.mark.parametrize("q", [1, 5])
def test_nan_behind_the_keys(q, xqa):
    step = make_step(Case(lengths=((q, 101), (q, 517))), CUDA, garbage=float("nan"))
    assert not bool(step.run(xqa).isnan().any()) or LEAKS_NAN


@pytest.mark.parametrize("num_masked", [0, 8])
def test_captured_once_serves_every_length(num_masked, xqa):
    """Two layers in one graph; lengths and masks are written in place between replays."""
    q = num_masked or 5
    case = Case(lengths=((q, q), (q, 40)), num_masked=num_masked, max_kv=5000)
    step = make_step(case, CUDA)
    second = replace(step, k_cache=step.k_cache.flip(1), v_cache=step.v_cache.flip(1))
    step.run(xqa), second.run(xqa)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outs = [step.run(xqa), second.run(xqa)]
    for seed, kv_len in enumerate((5000, q, 129, 3000), start=1):
        step.become(make_step(replace(case, lengths=((q, kv_len), (q, q + seed)), seed=seed), CUDA))
        second.k_cache.copy_(step.k_cache.flip(1)), second.v_cache.copy_(step.v_cache.flip(1))
        graph.replay()
        step.check(outs[0])
        second.check(outs[1])


def test_ragged_steps_go_to_the_other_backend(xqa):
    step = make_step(Case(lengths=((70, 300), (0, 5), (1, 40))), CUDA)
    step.check(step.run(xqa))


def test_refused_shapes(xqa):
    with pytest.raises(ValueError, match="page_size: 8; allowed .*16, 32, 64, 128"):
        make_step(Case(lengths=((1, 5),), page_size=8), CUDA).run(xqa)
    with pytest.raises(ValueError, match=r"tree mask: \(4, 9\)"):
        make_step(Case(lengths=((4, 9),), num_masked=9), CUDA).run(xqa)
