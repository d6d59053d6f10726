"""Attention in CUDA C++: launches that fit, code that compiles, and on a GPU the rows of the torch backend."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from kernels.paged_steps import Case, Step, make_step, on_dummy_page
from kernels.product_cases import Hopper

from specbench.kernels import cuda_source
from specbench.kernels.attention import bulk_attention as module
from specbench.kernels.attention.bulk_attention import Sizes, bulk_attention, bulk_sizes, choose_sizes, source
from specbench.kernels.attention.launch import LaunchShape
from specbench.kernels.attention.triton_attention import TritonAttention

CUDA = torch.device("cuda")
# Query heads, KV heads, head dimension, most rows: Llama-3.1-8B, its part of four, Llama-2-70B, Qwen2.5-1.5B, SmolLM2.
HEADS = [(32, 8, 128, 6), (8, 2, 128, 5), (64, 8, 128, 3), (12, 2, 128, 4), (9, 3, 64, 8)]
SHAPES = pytest.mark.parametrize(("heads", "q"), [(heads, q) for *heads, most in HEADS for q in (1, 2, most)], ids=str)
NUM_SMS = 132


def shape_of(
    num_requests: int,
    q: int,
    heads: tuple[int, int, int],
    most_kv: int = 336,
    uniform: bool = True,
    num_sms: int = NUM_SMS,
) -> LaunchShape:
    num_heads, num_kv_heads, head_dim = heads
    return LaunchShape(
        num_requests=num_requests,
        num_rows=num_requests * q,
        max_q=q,
        max_kv=300,
        most_kv=most_kv,
        uniform=uniform,
        num_kv_heads=num_kv_heads,
        group=num_heads // num_kv_heads,
        head_dim=head_dim,
        element_bytes=2,
        num_sms=num_sms,
    )


@SHAPES
@pytest.mark.parametrize("num_requests", [1, 8, 32, 64, 128, 256])
def test_launches_fit(num_requests, heads, q):
    sizes = choose_sizes(shape_of(num_requests, q, heads), 16)
    assert sizes is not None and sizes.num_stages >= 2 * sizes.groups and sizes.num_stages % sizes.groups == 0
    assert sizes.shared_bytes <= cuda_source.MAX_SHARED_BYTES
    assert sizes.blocks * (sizes.shared_bytes + 1024) <= 228 << 10, "all blocks of a multiprocessor run at once"


def test_what_triton_takes():
    assert choose_sizes(shape_of(64, 7, (32, 8, 128)), 16) is None, "28 rows"
    assert choose_sizes(shape_of(32, 3, (32, 8, 128), most_kv=4352), 16) is None, "12 rows over many keys"
    assert choose_sizes(shape_of(64, 1, (32, 8, 128), uniform=False), 16) is None


@pytest.mark.parametrize("most_kv", [592, 4352])
def test_many_keys_are_taken_where_requests_fill_the_gpu(most_kv):
    def takes(num_requests: int, heads: tuple[int, int, int] = (32, 8, 128)) -> bool:
        sizes = choose_sizes(shape_of(num_requests, 1, heads, most_kv), 16)
        assert sizes is None or (sizes.groups, sizes.blocks, sizes.in_turn) == (4, 2, False)
        return sizes is not None

    assert [number for number in range(1, 100) if takes(number)] == [30, 31, 32, 33, *range(60, 67), *range(90, 100)]
    assert takes(64, (64, 8, 128)) and not takes(48, (64, 8, 128))
    assert not takes(88, (9, 3, 64)), "not measured"


def operands(q: int, dtype: torch.dtype, page_size: int = 16) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    caches = (torch.zeros(4, page_size, 8, 128, dtype=dtype) for _ in "kv")
    return torch.zeros(q * 2, 32, 128, dtype=dtype), *caches


def test_all_numbers_of_requests_are_compiled_when_one_is_first_met(monkeypatch):
    hopper = Hopper(monkeypatch)
    module._load_all.cache_clear()
    given = operands(1, torch.float16)
    met = bulk_sizes(shape_of(2, 1, (32, 8, 128)), *given)
    assert met == choose_sizes(shape_of(2, 1, (32, 8, 128)), 16)
    every = {choose_sizes(shape_of(number, 1, (32, 8, 128)), 16) for number in range(1, 300)}
    assert {*hopper.loaded} == {source(sizes, True) for sizes in every} and len(every) == 3
    assert bulk_sizes(shape_of(200, 1, (32, 8, 128)), *given) in every and len(hopper.loaded) == 3
    module._load_all.cache_clear()


def test_what_many_keys_need_is_compiled_even_if_triton_takes_this_launch(monkeypatch):
    hopper = Hopper(monkeypatch)
    module._load_all.cache_clear()
    assert bulk_sizes(shape_of(2, 1, (32, 8, 128), 4352), *operands(1, torch.float16)) is None
    many = choose_sizes(shape_of(32, 1, (32, 8, 128), 4352), 16)
    assert many is not None and {*hopper.loaded} == {source(many, True)}
    module._load_all.cache_clear()


def test_many_keys_are_compiled_where_a_single_wave_is_never_full_enough(monkeypatch):
    hopper = Hopper(monkeypatch)
    module._load_all.cache_clear()
    shape = shape_of(1, 1, (40, 40, 128), 4352, num_sms=114)
    taken = [number for number in range(1, 40) if choose_sizes(replace(shape, num_requests=number), 16)]
    assert taken[0] == 11, "5 fill 200 of 228 places, 11 fill 440 of 456"
    q_THD = torch.zeros(1, 40, 128, dtype=torch.float16)
    caches = (torch.zeros(4, 16, 40, 128, dtype=torch.float16) for _ in "kv")
    assert bulk_sizes(shape, q_THD, *caches) is None and len(hopper.loaded) == 1
    module._load_all.cache_clear()


def test_operands_that_a_bulk_copy_cannot_read(monkeypatch):
    Hopper(monkeypatch)
    shape = shape_of(2, 1, (32, 8, 128))
    assert bulk_sizes(shape, *operands(1, torch.float16)) is not None
    assert bulk_sizes(shape, *operands(1, torch.float32)) is None
    assert bulk_sizes(shape, *operands(1, torch.float16, page_size=8)) is None
    q_THD, k_cache, v_cache = operands(1, torch.float16)
    assert bulk_sizes(shape, q_THD, k_cache.transpose(0, 1).contiguous().transpose(0, 1), v_cache) is None
    module._load_all.cache_clear()


@pytest.mark.parametrize("is_half", [False, True])
@SHAPES
@pytest.mark.parametrize("num_requests", [1, 32, 512])
def test_compiles_for_sm90(num_requests, heads, q, is_half):
    assert_compiles(choose_sizes(shape_of(num_requests, q, heads), 16), is_half)


@pytest.mark.parametrize("is_half", [False, True])
@pytest.mark.parametrize("q", [1, 2])
def test_many_keys_compile_for_sm90(q, is_half):
    assert_compiles(choose_sizes(shape_of(32, q, (32, 8, 128), most_kv=4352), 16), is_half)


def assert_compiles(sizes: Sizes | None, is_half: bool) -> None:
    assert sizes is not None
    code = cuda_source.binary(source(sizes, is_half), "sm_90a")
    assert code.startswith(b"\x7fELF") and b"bulk_attention" in code


def test_what_does_not_compile_says_why():
    fitting = source(Sizes(1, 32, 8, 128, 16, groups=2, blocks=1), False)
    odd = tuple((name, 7 if name == "STAGES" else value) for name, value in fitting.constants)
    with pytest.raises(RuntimeError, match="a stage is always the same group's") as raised:
        cuda_source.binary(replace(fitting, constants=odd), "sm_90a")
    assert "as in Sizes" in str(raised.value), "the bytes of shared memory are counted on both sides"


def few_keys(num_requests: int, q: int, **shape: int) -> Case:
    """Lengths from the shortest to 500 keys: last boxes of one key and whole ones, none before the rows, and many."""
    lengths = tuple((q, q if i % 5 == 1 else q + 77 * (i + 4) % (496 - q)) for i in range(num_requests))
    return Case(lengths=lengths, seed=num_requests + q, max_kv=500, **shape)


def most_keys(num_requests: int, q: int, **shape: int) -> Case:
    """Lengths of up to 35 boxes, whose pages are read in two parts, before those of a block's next request."""
    lengths = tuple((q, 560 - 7 * i % 200) for i in range(num_requests))
    return Case(lengths=lengths, seed=num_requests + q, max_kv=560, **shape)


def many_keys(num_requests: int, q: int, **shape: int) -> Case:
    """Lengths from the shortest to 4,000 keys."""
    lengths = tuple((q, q if i % 5 == 1 else q + 977 * (i + 4) % (4000 - q)) for i in range(num_requests))
    return Case(lengths=lengths, seed=num_requests + q, max_kv=4352, **shape)


CASES = [
    *(few_keys(b, q, num_kv_heads=8) for b in (1, 8, 33, 70, 130) for q in (1, 2)),
    *(few_keys(40, 1, num_kv_heads=h, group=g) for h, g in ((2, 6), (8, 3), (8, 1), (4, 2), (4, 8))),
    *(few_keys(b, q, num_kv_heads=3, group=3, head_dim=64) for b in (2, 60, 300) for q in (1, 2)),
    *(few_keys(40, 2, num_kv_heads=8, page_size=page) for page in (32, 64)),
    few_keys(40, 5, num_kv_heads=8, group=1),
    few_keys(40, 23, num_kv_heads=8, group=1),
    few_keys(40, 3, num_kv_heads=8, group=8),
    *(few_keys(40, q, num_kv_heads=4, group=g) for q, g in ((1, 7), (2, 7), (3, 7), (3, 5), (4, 5))),
    Case(lengths=((4, 4),), num_kv_heads=8, max_kv=500),
    *(most_keys(b, q, num_kv_heads=8) for b in (33, 70, 130) for q in (1, 5)),
    Case(lengths=tuple((5, 5 + 37 * i % 380) for i in range(40)), num_kv_heads=8, page_size=128, max_kv=384),
    *(few_keys(b, q, num_kv_heads=8) for b in (1, 8, 33, 130) for q in (3, 4, 5, 6)),
    *(few_keys(b, 4, num_kv_heads=2, group=6) for b in (1, 70)),
    *(few_keys(b, q, num_kv_heads=3, group=3, head_dim=64) for b in (2, 60, 300) for q in (5, 8)),
    *(replace(few_keys(40, q, num_kv_heads=8), dtype=torch.float16) for q in (2, 5)),
    *(many_keys(b, q, num_kv_heads=8) for b in (32, 66) for q in (1, 2)),
    many_keys(130, 1, num_kv_heads=2, group=6),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{len(case.lengths)}-{case.num_kv_heads}-{case}")
def test_cases_are_this_kernels(case):
    step = make_step(case, torch.device("cpu"))
    shape = replace(LaunchShape.of(step.q_THD, step.k_cache, step.meta), num_sms=NUM_SMS)
    assert choose_sizes(shape, case.page_size) is not None


def attend(step: Step) -> torch.Tensor:
    shape = LaunchShape.of(step.q_THD, step.k_cache, step.meta)
    sizes = bulk_sizes(shape, step.q_THD, step.k_cache, step.v_cache)
    assert sizes is not None, "the case is not this kernel's"
    given = step.q_THD, step.k_cache, step.v_cache, step.meta.kv_len_B, step.meta.block_table_BP
    return bulk_attention(*given, step.scale, torch.empty_like(step.q_THD), sizes)


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{len(case.lengths)}-{case.num_kv_heads}-{case}")
def test_rows_are_those_of_torch(case):
    step = make_step(case, CUDA)
    torch.cuda.synchronize()  # lengths and pages are read before the wait for the kernel before
    step.check(attend(step))
    assert torch.equal(step.run(TritonAttention()), attend(step)), "the backend chooses it"


@pytest.mark.gpu
@pytest.mark.parametrize("q", [1, 2, 5])
@pytest.mark.parametrize("num_requests", [3, 40])
def test_nothing_behind_the_keys_shows(num_requests, q):
    step = make_step(few_keys(num_requests, q, num_kv_heads=8), CUDA, garbage=float("nan"))
    torch.cuda.synchronize()
    assert not attend(step).isnan().any()


@pytest.mark.gpu
@pytest.mark.parametrize("q", [1, 2, 5])
def test_padding_requests_give_zeros(q):
    step = on_dummy_page(make_step(few_keys(40, q, num_kv_heads=8), CUDA), first=30)
    torch.cuda.synchronize()
    out_THD = attend(step)
    step.check(out_THD)
    assert (out_THD[30 * q :] == 0).all()


@pytest.mark.gpu
@pytest.mark.parametrize("q", [1, 2, 5])
@pytest.mark.parametrize("num_requests", [7, 33, 120])
def test_a_request_has_the_same_bits_beside_any_others(num_requests, q):
    """Others' lengths move where its keys lie in shared memory and which warps take them."""
    case = few_keys(num_requests, q, num_kv_heads=8)
    step = make_step(case, CUDA)
    torch.cuda.synchronize()
    out_BQHD = attend(step).view(num_requests, q, 32, 128).clone()
    step.meta.kv_len_B[::2] = q  # every second one is a short one now
    torch.cuda.synchronize()
    assert torch.equal(attend(step).view(num_requests, q, 32, 128)[1::2], out_BQHD[1::2])


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("q", "shape"),
    [
        *((q, dict(num_kv_heads=8)) for q in (2, 5, 6)),
        *((q, dict(num_kv_heads=3, group=3, head_dim=64)) for q in (5, 8)),
        (4, dict(num_kv_heads=2, group=6)),
    ],
    ids=str,
)
@pytest.mark.parametrize("num_requests", [3, 33, 130])
def test_a_verify_pass_has_the_bits_of_passes_of_one_row(num_requests, q, shape):
    step = make_step(few_keys(num_requests, q, **shape), CUDA)
    torch.cuda.synchronize()
    out_BQHD = attend(step).view(num_requests, q, *step.q_THD.shape[1:])
    rows_BQHD, last_kv_len_B = step.q_THD.view(out_BQHD.shape), step.meta.kv_len_B
    for row in range(q):
        alone = replace(step.meta, max_q=1, kv_len_B=last_kv_len_B - (q - 1 - row))
        torch.cuda.synchronize()
        out_BHD = attend(replace(step, q_THD=rows_BQHD[:, row].contiguous(), meta=alone))
        assert torch.equal(out_BHD, out_BQHD[:, row])


@pytest.mark.gpu
@pytest.mark.parametrize("q", [1, 2, 5])
@pytest.mark.parametrize("num_requests", [4, 40, 130])
def test_a_captured_chain_waits_for_its_rows(num_requests, q):
    """Each layer's queries are the rows of the layer before, whose kernel may still run when it starts."""
    step = make_step(few_keys(num_requests, q, num_kv_heads=8), CUDA)
    torch.cuda.synchronize()

    def chain(rows_THD: torch.Tensor, in_order: bool) -> torch.Tensor:
        for _ in range(20):
            rows_THD = attend(replace(step, q_THD=rows_THD))
            if in_order:
                torch.cuda.synchronize()
        return rows_THD

    chain(step.q_THD, in_order=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured_THD = chain(step.q_THD, in_order=False)
    for seed in range(20):
        step.q_THD.copy_(torch.randn(step.q_THD.shape, generator=torch.Generator().manual_seed(seed)))
        graph.replay()
        assert torch.equal(captured_THD, chain(step.q_THD, in_order=True))
