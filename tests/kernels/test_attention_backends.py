"""What needs no GPU of FlashAttention: where it is found, what its libraries are handed, what it refuses.

The libraries themselves are stood in for by objects that attend with the torch backend over what they are handed.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from kernels.paged_steps import Case, make_step
from torch import Tensor

from specbench.kernels.attention import flash_libs
from specbench.kernels.attention.base import AttentionMetadata
from specbench.kernels.attention.flash_attention import FlashAttention, choose_flash_splits
from specbench.kernels.attention.flash_libs import FlashCall, UnusableSource, find_flash_attention
from specbench.kernels.attention.launch import LaunchShape
from specbench.kernels.attention.torch_attention import TorchAttention

CPU = torch.device("cpu")
SMALL = dict(head_dim=16, group=2, dtype=torch.bfloat16)


class TorchSource:
    """A source that attends with the torch backend, in fp32."""

    name = "stand-in"
    page_multiple = 16

    def __init__(self) -> None:
        self.calls: list[FlashCall] = []

    def run(self, call: FlashCall) -> None:
        self.calls.append(call)
        inputs = (call.q_THD.float(), call.k_cache.float(), call.v_cache.float())
        call.out_THD.copy_(TorchAttention().forward(*inputs, replace(call.meta, cache={}), call.scale))


def source_class(name: str, reason: str | None) -> Any:
    def init(self: Any) -> None:
        if reason:
            raise UnusableSource(reason)

    return type(name, (TorchSource,), {"__init__": init, "name": name})


def test_the_first_usable_source_is_taken():
    lookup = find_flash_attention((source_class("a", "not there"), source_class("b", None), source_class("c", None)))
    assert lookup.source is not None and lookup.source.name == "b"
    assert lookup.refused == ("a: not there",)


def test_error_names_every_source_tried(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="no library has flash-attention here") as caught:
        FlashAttention()
    for source in flash_libs.SOURCES:
        assert f"{source.name}: " in str(caught.value)
    lookup = flash_libs.find_flash_attention()
    assert lookup.source is None and "no CUDA device" in str(lookup.refused)


def test_places_of_vllms_library(monkeypatch, tmp_path):
    monkeypatch.setenv("FA3_SO", str(tmp_path / "absent.so"))
    with pytest.raises(UnusableSource, match="FA3_SO names .*absent.so"):
        flash_libs.vllm_library()
    monkeypatch.delenv("FA3_SO")
    folder = tmp_path / "vllm"
    found = SimpleNamespace(submodule_search_locations=[str(folder)])
    monkeypatch.setattr(flash_libs.importlib.util, "find_spec", lambda name: found)
    with pytest.raises(UnusableSource, match="the installed vLLM has no"):
        flash_libs.vllm_library()
    library = folder / "vllm_flash_attn" / "_vllm_fa3_C.abi3.so"
    library.parent.mkdir(parents=True)
    library.touch()
    assert flash_libs.vllm_library() == library
    monkeypatch.setattr(flash_libs.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UnusableSource, match="vLLM is not installed"):
        flash_libs.vllm_library()


def test_flash_attention_attends_and_writes_where_told():
    source = TorchSource()
    backend = FlashAttention(source=source, choose_splits=lambda shape: shape.num_requests)
    step = make_step(Case(lengths=((3, 40), (3, 5)), **SMALL), CPU)
    out_THD = torch.zeros_like(step.q_THD)
    assert step.run(backend, out_THD) is out_THD
    step.check(out_THD)
    step.check(step.run(backend))
    assert source.calls[0].num_splits == 2


def test_flash_attention_refuses():
    backend = FlashAttention(source=TorchSource())
    with pytest.raises(ValueError, match="no tree masks; allowed for trees: triton, flashinfer"):
        make_step(Case(lengths=((3, 9),), num_masked=3, **SMALL), CPU).run(backend)
    with pytest.raises(ValueError, match="page_size: 8; allowed with stand-in: multiples of 16"):
        make_step(Case(lengths=((3, 9),), page_size=8, **SMALL), CPU).run(backend)
    with pytest.raises(ValueError, match="dtype: torch.float32"):
        step = make_step(Case(lengths=((3, 9),), **SMALL), CPU)
        replace(step, q_THD=step.q_THD.float()).run(backend)


def flash_shape(**changes: Any) -> LaunchShape:
    defaults = dict(
        num_requests=1, num_rows=5, max_q=5, max_kv=4096, most_kv=4096, uniform=True, num_kv_heads=8, group=4
    )
    return LaunchShape(**(defaults | dict(head_dim=128, element_bytes=2, num_sms=132) | changes))


def test_flash_splits_fill_an_idle_device_only():
    assert choose_flash_splits(flash_shape()) >= 8
    assert choose_flash_splits(flash_shape(num_requests=64, num_rows=320)) == 1
    assert choose_flash_splits(flash_shape(max_kv=100)) == 1
    assert choose_flash_splits(flash_shape(uniform=False, num_rows=8192, max_q=8192)) == 1


FA3_SCHEMA = """fwd(Tensor q, Tensor k, Tensor v, Tensor? k_new, Tensor? v_new, Tensor? q_v, Tensor(a!)? out,
    Tensor? cu_seqlens_q, Tensor? cu_seqlens_k, Tensor? cu_seqlens_k_new, Tensor? seqused_q, Tensor? seqused_k,
    int? max_seqlen_q, int? max_seqlen_k, Tensor? page_table, Tensor? kv_batch_idx, Tensor? leftpad_k,
    Tensor? rotary_cos, Tensor? rotary_sin, Tensor? seqlens_rotary, Tensor? q_descale, Tensor? k_descale,
    Tensor? v_descale, float softmax_scale, bool is_causal, int window_size_left, int window_size_right, float softcap,
    bool is_rotary_interleaved, Tensor? scheduler_metadata, int num_splits, bool? pack_gqa, int sm_margin,
    Tensor? s_aux, int cp_world_size, int cp_rank, Tensor? cp_tot_seqused_k) -> Tensor"""


@pytest.fixture
def declared(monkeypatch, tmp_path):
    """A library as FA3_SO names it, whose operator has the given declaration."""

    def declare(schema: str) -> torch.library.Library:
        path = tmp_path / "fa3.so"
        path.touch()
        monkeypatch.setenv("FA3_SO", str(path))
        monkeypatch.setattr(torch.ops, "load_library", lambda name: None)
        monkeypatch.setattr(flash_libs, "_require_capability", lambda major: None)
        library = torch.library.Library("_vllm_fa3_C", "DEF")
        library.define(schema)
        return library

    return declare


def test_vllms_operator_is_called_by_its_argument_names(declared):
    """An operator of the library's declaration, which attends over exactly what it was given."""
    library = declared(FA3_SCHEMA)

    def fwd(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> Tensor:
        names = [a.name for a in torch.ops._vllm_fa3_C.fwd.default._schema.arguments][3:]
        given = dict(zip(names, rest, strict=True))
        assert given["is_causal"] and given["window_size_left"] == given["window_size_right"] == -1
        assert given["cp_world_size"] == 1 and given["num_splits"] == 3 and given["scheduler_metadata"] is None
        meta = AttentionMetadata.ragged(
            given["cu_seqlens_q"],
            given["seqused_k"],
            given["page_table"],
            max_q=given["max_seqlen_q"],
            max_kv=given["max_seqlen_k"],
        )
        inputs = (q.float(), k.float(), v.float())
        given["out"].copy_(TorchAttention().forward(*inputs, meta, given["softmax_scale"]))
        return torch.zeros(1)

    library.impl("fwd", fwd, "CPU")
    backend = FlashAttention(source=flash_libs.VllmFlashAttention3(), choose_splits=lambda shape: 3)
    step = make_step(Case(lengths=((3, 40), (0, 7), (5, 9)), **SMALL), CPU)
    step.check(step.run(backend))


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (FA3_SCHEMA.replace("Tensor? page_table, ", ""), "has no argument page_table"),
        (FA3_SCHEMA.replace("int sm_margin", "int new_number"), "needs an argument new_number, which is not known"),
    ],
)
def test_another_declaration_of_vllms_operator_is_refused(schema, said, declared):
    library = declared(schema)  # kept: it ends with its last reference
    lookup = flash_libs.find_flash_attention((flash_libs.VllmFlashAttention3,))
    assert library.ns == "_vllm_fa3_C" and lookup.source is None and said in lookup.refused[0]


def varlen(
    q: Tensor, k: Tensor, v: Tensor, cu_q: Tensor, cu_k: Tensor, max_q: int, max_k: int, **options: Any
) -> Tensor:
    """flash-attn 2's ragged call, attended over with the torch backend."""
    assert options["causal"] and max_k >= int(cu_k.diff().max())
    meta = AttentionMetadata.ragged(cu_q, cu_k.diff(), options["block_table"], max_q=max_q, max_kv=max_k)
    return TorchAttention().forward(q.float(), k.float(), v.float(), meta, options["softmax_scale"])


def kvcache(q: Tensor, k: Tensor, v: Tensor, cache_seqlens: Tensor, block_table: Tensor, **options: Any) -> Tensor:
    """flash-attn 2's uniform call."""
    num_requests, rows = q.shape[:2]
    cu_q = torch.arange(num_requests + 1, dtype=torch.int32) * rows
    cu_k = torch.nn.functional.pad(cache_seqlens.cumsum(0), (1, 0))
    options |= dict(block_table=block_table)
    return varlen(q.flatten(0, 1), k, v, cu_q, cu_k, rows, 10**6, **options).view(q.shape)


@pytest.mark.parametrize("lengths", [((3, 300), (3, 5)), ((3, 300), (0, 7), (5, 9))])
def test_flash_attention_2_by_request_and_ragged(lengths, monkeypatch):
    package = ModuleType("flash_attn")
    vars(package).update(flash_attn_varlen_func=varlen, flash_attn_with_kvcache=kvcache)
    monkeypatch.setitem(sys.modules, "flash_attn", package)
    monkeypatch.setattr(flash_libs, "_require_capability", lambda major: None)
    backend = FlashAttention(source=flash_libs.FlashAttention2())
    step = make_step(Case(lengths=lengths, page_size=256, **SMALL), CPU)
    step.check(step.run(backend))
