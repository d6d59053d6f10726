"""Attention in CUDA C++: launches that fit, code that compiles, and on a GPU the rows of the torch backend."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from kernels.paged_steps import Case, Step, make_step, on_dummy_page
from kernels.product_cases import Hopper

from specbench.kernels import cuda_source
from specbench.kernels.attention.launch import FEW_KEYS, LaunchShape
from specbench.kernels.attention.triton_attention import TritonAttention
from specbench.kernels.attention.wgmma_attention import Form, choose_form, forms, source, wgmma_attention, wgmma_form

CUDA = torch.device("cuda")
# Query heads, KV heads, head dimension, most rows: Llama-3.1-8B, its part of four, Llama-2-70B, Qwen2.5-1.5B, SmolLM2.
HEADS = [(32, 8, 128, 12), (8, 2, 128, 5), (64, 8, 128, 6), (12, 2, 128, 8), (9, 3, 64, 16)]
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
@pytest.mark.parametrize("most_kv", [336, 4352])
@pytest.mark.parametrize("num_requests", [1, 8, 32, 64, 128, 256])
def test_launches_fit(num_requests, most_kv, heads, q):
    form = choose_form(shape_of(num_requests, q, heads, most_kv), 16)
    if form is None:
        assert most_kv > FEW_KEYS, "few keys are taken for any number of requests"
        return
    assert form.padded >= q * heads[0] // heads[1] and form.padded % 8 == 0 and form.num_stages >= 2
    assert form.shared_bytes <= cuda_source.MAX_SHARED_BYTES
    assert form.blocks * (form.shared_bytes + 1024) <= 228 << 10, "all blocks of a multiprocessor run at once"


def test_a_multiprocessor_with_one_item_has_its_shared_memory_for_it():
    blocks = {number: choose_form(shape_of(number, 5, (32, 8, 128)), 16).blocks for number in (1, 16, 17, 128)}
    assert blocks == {1: 1, 16: 1, 17: 2, 128: 2}
    one, two = (Form(5, 32, 8, 128, 16, blocks) for blocks in (1, 2))
    assert (one.num_stages, two.num_stages) == (6, 3)
    assert {choose_form(shape_of(number, 5, (9, 3, 64)), 16).blocks for number in (1, 128)} == {2}


def test_what_triton_takes():
    assert choose_form(shape_of(64, 13, (32, 8, 128)), 16) is None, "52 rows"
    assert choose_form(shape_of(8, 5, (32, 8, 128), most_kv=4352), 16) is None, "its keys had better be split"
    assert choose_form(shape_of(64, 1, (32, 8, 128), uniform=False), 16) is None
    assert choose_form(shape_of(64, 1, (32, 8, 256)), 16) is None


@pytest.mark.parametrize("q", [1, 5])
@pytest.mark.parametrize("most_kv", [592, 4352])
def test_many_keys_are_taken_where_requests_fill_the_gpu(most_kv, q):
    def takes(num_requests: int, heads: tuple[int, int, int] = (32, 8, 128)) -> bool:
        form = choose_form(shape_of(num_requests, q, heads, most_kv), 16)
        assert form is None or (form.blocks, form.in_turn) == (2, False)
        return form is not None

    assert [number for number in range(1, 100) if takes(number)] == [30, 31, 32, 33, *range(60, 67), *range(90, 100)]
    assert takes(64, (64, 8, 128)) and not takes(48, (64, 8, 128))
    assert takes(88, (9, 3, 64)) and not takes(89, (9, 3, 64))


def operands(q: int, dtype: torch.dtype, page_size: int = 16) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    caches = (torch.zeros(4, page_size, 8, 128, dtype=dtype) for _ in "kv")
    return torch.zeros(q * 2, 32, 128, dtype=dtype), *caches


def test_all_numbers_of_requests_are_compiled_when_one_is_first_met(monkeypatch):
    hopper = Hopper(monkeypatch)
    met = wgmma_form(shape_of(2, 1, (32, 8, 128)), *operands(1, torch.float16))
    assert met == choose_form(shape_of(2, 1, (32, 8, 128)), 16)
    every = {choose_form(shape_of(number, 1, (32, 8, 128)), 16) for number in range(1, 300)}
    assert {*hopper.loaded} == {source(form, True) for form in every} and len(every) == 2


def test_what_many_keys_need_is_compiled_even_if_triton_takes_this_launch(monkeypatch):
    hopper = Hopper(monkeypatch)
    assert wgmma_form(shape_of(2, 1, (32, 8, 128), 4352), *operands(1, torch.float16)) is None
    many = choose_form(shape_of(32, 1, (32, 8, 128), 4352), 16)
    assert many is not None and {*hopper.loaded} == {source(many, True)}


def test_operands_that_a_bulk_copy_cannot_read(monkeypatch):
    Hopper(monkeypatch)
    shape = shape_of(2, 1, (32, 8, 128))
    assert wgmma_form(shape, *operands(1, torch.float16)) is not None
    assert wgmma_form(shape, *operands(1, torch.float32)) is None
    assert wgmma_form(shape, *operands(1, torch.float16, page_size=8)) is None
    q_THD, k_cache, v_cache = operands(1, torch.float16)
    assert wgmma_form(shape, q_THD, k_cache.transpose(0, 1).contiguous().transpose(0, 1), v_cache) is None


@pytest.mark.parametrize("is_half", [False, True])
@SHAPES
def test_compiles_for_sm90(heads, q, is_half):
    few, many = ({source(form, is_half) for form in forms(shape_of(1, q, heads, kv), 16)} for kv in (336, 4352))
    assert few and many <= few, "over many keys only the launch differs"
    for each in few:
        code = cuda_source.binary(each, "sm_90a")
        assert code.startswith(b"\x7fELF") and b"wgmma_attention" in code


def test_what_does_not_compile_says_why():
    fitting = source(Form(1, 32, 8, 128, 16, blocks=1), False)
    odd = tuple((name, 5 if name == "STAGES" else value) for name, value in fitting.constants)
    with pytest.raises(RuntimeError, match="does not compile for sm_90a") as raised:
        cuda_source.binary(replace(fitting, constants=odd), "sm_90a")
    assert "as in Form" in str(raised.value), "the bytes of shared memory are counted on both sides"


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
    *(few_keys(b, q, num_kv_heads=2, group=6) for b in (1, 70) for q in (4, 5, 8)),
    *(few_keys(b, 6, num_kv_heads=8, group=8) for b in (1, 40)),
    *(few_keys(b, q, num_kv_heads=3, group=3, head_dim=64) for b in (2, 60, 300) for q in (5, 8)),
    *(replace(few_keys(40, q, num_kv_heads=8), dtype=torch.float16) for q in (2, 5)),
    *(many_keys(b, q, num_kv_heads=8) for b in (32, 66) for q in (1, 2, 5, 12)),
    *(many_keys(130, q, num_kv_heads=2, group=6) for q in (1, 5, 8)),
    *(many_keys(88, q, num_kv_heads=3, group=3, head_dim=64) for q in (1, 5, 16)),
    replace(many_keys(32, 5, num_kv_heads=8), dtype=torch.float16),
    many_keys(32, 5, num_kv_heads=8, page_size=64),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{len(case.lengths)}-{case.num_kv_heads}-{case}")
def test_cases_are_this_kernels(case):
    step = make_step(case, torch.device("meta"))
    shape = replace(LaunchShape.of(step.q_THD, step.k_cache, step.meta), num_sms=NUM_SMS)
    assert choose_form(shape, case.page_size) is not None


def attend(step: Step) -> torch.Tensor:
    shape = LaunchShape.of(step.q_THD, step.k_cache, step.meta)
    form = wgmma_form(shape, step.q_THD, step.k_cache, step.v_cache)
    assert form is not None, "the case is not this kernel's"
    given = step.q_THD, step.k_cache, step.v_cache, step.meta.kv_len_B, step.meta.block_table_BP
    return wgmma_attention(*given, step.scale, torch.empty_like(step.q_THD), form)


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{len(case.lengths)}-{case.num_kv_heads}-{case}")
def test_rows_are_those_of_torch(case):
    step = make_step(case, CUDA)
    torch.cuda.synchronize()  # lengths and pages are read before the wait for the kernel before
    step.check(attend(step))
    assert torch.equal(step.run(TritonAttention()), attend(step)), "the backend chooses it"


@pytest.mark.gpu
@pytest.mark.parametrize(
    "case",
    [
        *(few_keys(b, q, num_kv_heads=8) for b in (3, 40) for q in (1, 2, 5, 12)),
        *(few_keys(40, q, num_kv_heads=3, group=3, head_dim=64, page_size=64) for q in (1, 16)),
        many_keys(33, 5, num_kv_heads=8, page_size=64),
    ],
    ids=str,
)
def test_nothing_behind_the_keys_shows(case):
    step = make_step(case, CUDA, garbage=float("nan"))
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
    """Others' lengths move where its keys lie in shared memory."""
    case = few_keys(num_requests, q, num_kv_heads=8)
    step = make_step(case, CUDA)
    torch.cuda.synchronize()
    out_BQHD = attend(step).view(num_requests, q, 32, 128).clone()
    step.meta.kv_len_B[::2] = q  # every second one is a short one now
    torch.cuda.synchronize()
    assert torch.equal(attend(step).view(num_requests, q, 32, 128)[1::2], out_BQHD[1::2])


@pytest.mark.gpu
@pytest.mark.parametrize("keys", [few_keys, most_keys, many_keys])
@pytest.mark.parametrize("factor", [1, 20])
def test_sums_follow_scores_that_rise(keys, factor):
    """With the larger factor most rows have later keys whose scores exceed the first 64 keys' by far."""
    step = make_step(keys(66, 5, num_kv_heads=8), CUDA)
    step.q_THD.mul_(factor)
    torch.cuda.synchronize()
    step.check(attend(step))


@pytest.mark.gpu
@pytest.mark.parametrize("q", [1, 5])
@pytest.mark.parametrize("keys", [few_keys, many_keys])
def test_requests_without_keys_give_zeros(keys, q):
    step = make_step(keys(66, q, num_kv_heads=8), CUDA)
    torch.cuda.synchronize()
    expected_BX = attend(step).view(66, -1).clone()
    step.meta.kv_len_B[::3] = 0
    expected_BX[::3] = 0
    torch.cuda.synchronize()
    assert torch.equal(attend(step).view(66, -1), expected_BX)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("q", "shape"),
    [
        *((q, dict(num_kv_heads=8)) for q in (2, 5, 12)),
        *((q, dict(num_kv_heads=3, group=3, head_dim=64)) for q in (5, 16)),
        (8, dict(num_kv_heads=2, group=6)),
    ],
    ids=str,
)
@pytest.mark.parametrize("factor", [1, 20])
@pytest.mark.parametrize(("num_items", "keys"), [(24, few_keys), (264, few_keys), (1040, few_keys), (264, many_keys)])
def test_a_verify_pass_has_the_bits_of_passes_of_one_row(num_items, keys, q, shape, factor):
    """With the larger factor, rows have peaks of their own that follow at different steps."""
    num_requests = num_items // shape["num_kv_heads"]
    step = make_step(keys(num_requests, q, **shape), CUDA)
    step.q_THD.mul_(factor)
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
