"""FP8 matrices and experts split among ranks: logits of every rank equal those of the whole model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from toy.checkpoints import llama_config, write_llama
from toy.compare import dense_pass
from toy.expert_checkpoints import write_experts
from toy.fp8_checkpoints import FORMS, write_fp8
from toy.ranks import on_ranks

from specbench.harness.engines.native.models import expert_weights, fp8_linear
from specbench.harness.engines.native.models.all_reduce import Sum
from specbench.harness.engines.native.models.fp8_weights import Fp8Random
from specbench.harness.engines.native.models.group import ALONE, Group
from specbench.harness.engines.native.models.llama import LlamaModel
from specbench.harness.engines.native.models.loader import load_target
from specbench.harness.engines.native.models.mlp import Experts
from specbench.harness.engines.native.models.quantization import Fp8Format
from specbench.harness.engines.native.models.split_linear import RowParallel
from specbench.harness.quality.certificate.scores import fp32_twin
from specbench.harness.roofline.of_engine import shape_of

CPU, IDS = torch.device("cpu"), [5, 100, 31, 64, 127, 0, 77]
DENSE = llama_config(
    hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_key_value_heads=4, head_dim=64,
    attention_bias=True,
)  # fmt: skip
EXPERTS = dict(hidden_size=256, moe_intermediate_size=256, head_dim=64, num_hidden_layers=2, num_key_value_heads=4)


def _add_biases(tensors: dict[str, torch.Tensor]) -> None:
    for name in [n for n in tensors if ".self_attn." in n]:
        tensors[name.replace("weight", "bias")] = torch.linspace(-1, 1, tensors[name].shape[0])


@pytest.fixture(scope="module")
def dense(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("dense")
    write_llama(folder, DENSE, change=_add_biases)
    return folder


@pytest.fixture(scope="module")
def experts(tmp_path_factory) -> Path:
    return write_experts(tmp_path_factory.mktemp("experts"), **EXPERTS)


def _load(folder: Path, group: Group = ALONE) -> LlamaModel:
    return load_target(folder, torch.float32, CPU, group)


def _assert_each_rank_says_the_same(folder: Path) -> None:
    whole = _load(folder)
    logits_TV = dense_pass(whole, IDS)[0]

    def told(group: Group) -> tuple[torch.Tensor, str]:
        target = _load(folder, group)
        return dense_pass(target, IDS)[0], target.arithmetic

    for its_logits_TV, arithmetic in on_ranks(2, told):
        torch.testing.assert_close(its_logits_TV, logits_TV, atol=2e-4, rtol=1e-4)
        assert arithmetic == whole.arithmetic


@pytest.mark.parametrize("form", FORMS)
def test_fp8_of_every_form(dense, tmp_path, form):
    _assert_each_rank_says_the_same(write_fp8(dense, tmp_path, FORMS[form]) / "fp8")


def test_experts(experts):
    _assert_each_rank_says_the_same(experts)


@pytest.mark.parametrize("size", [2, 4])
def test_experts_of_which_a_rank_has_a_few_columns(tmp_path, size):
    folder = write_experts(tmp_path, num_key_value_heads=4)
    logits_TV = dense_pass(_load(folder), IDS)[0]
    for its_logits_TV in on_ranks(size, lambda group: dense_pass(_load(folder, group), IDS)[0]):
        torch.testing.assert_close(its_logits_TV, logits_TV, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("form", ["qwen-block", "compressed-channel", "fp8-tensor-static"])
def test_fp8_experts(experts, tmp_path, form):
    _assert_each_rank_says_the_same(write_fp8(experts, tmp_path, FORMS[form], ("mlp.gate",)) / "fp8")


@pytest.mark.parametrize("form", ["qwen-block", "compressed-channel", "compressed-tensor-static"])
@torch.inference_mode()
def test_what_stays_fp8_has_the_scales_of_its_part(dense, experts, tmp_path, form, monkeypatch):
    """Kept as on a GPU: the parts of all ranks, widened, are the whole matrices, widened."""
    for module in (fp8_linear, expert_weights):
        monkeypatch.setattr(module, "multiplies_fp8", lambda device, dtype: dtype == torch.bfloat16)

    def load(folder: Path, group: Group) -> LlamaModel:
        return load_target(folder, torch.bfloat16, CPU, group)

    ranks = [ALONE, *(Group(rank, 2, Sum()) for rank in range(2))]
    folder = write_fp8(dense, tmp_path / "dense", FORMS[form]) / "fp8"
    whole, *parts = (load(folder, group).layers[1] for group in ranks)
    assert all(isinstance(part.o, RowParallel) and "dequantised" not in part.o.arithmetic for part in parts)
    q, k, v = whole.qkv.widened().split(256)
    for rank, part in enumerate(parts):
        mine = slice(rank * 128, (rank + 1) * 128)
        assert torch.equal(part.qkv.widened(), torch.cat([q[mine], k[mine], v[mine]]))
        assert (part.o.bias is None) == (rank == 1), "a bias is added once"
    assert torch.equal(torch.cat([part.o.own.widened() for part in parts], 1), whole.o.widened())
    assert torch.equal(torch.cat([part.mlp.down.own.widened() for part in parts], 1), whole.mlp.down.widened())
    if form == "compressed-tensor-static":  # experts are dequantised there
        return
    folder = write_fp8(experts, tmp_path / "experts", FORMS[form], ("mlp.gate",)) / "fp8"
    whole, *parts = (fp32_twin(load(folder, group)).layers[0].mlp.weights for group in ranks[:1])
    halves = [_widened(load(folder, group).layers[0].mlp) for group in ranks[1:]]
    gate, up = whole.gate_up_EXH.split(256, 1)
    assert torch.equal(torch.cat([half[0].split(128, 1)[0] for half in halves], 1), gate)
    assert torch.equal(torch.cat([half[0].split(128, 1)[1] for half in halves], 1), up)
    assert torch.equal(torch.cat([half[1] for half in halves], 2), whole.down_EHI)


def _widened(mlp: Experts) -> tuple[torch.Tensor, torch.Tensor]:
    wide = mlp.in_fp32(mlp.router).weights
    return wide.gate_up_EXH, wide.down_EHI


def test_random_fp8_matrices_are_the_same_whatever_the_group():
    sources = [
        Fp8Random(5, torch.float32, CPU, Fp8Format(scales="block"), group)
        for group in (ALONE, *(Group(rank, 2, Sum()) for rank in range(2)))
    ]
    for split in (0, 1):
        whole, *parts = (source.fp8("layer.o_proj", (256, 512), split).widened() for source in sources)
        assert torch.equal(torch.cat(parts, split), whole)


def test_a_rank_s_roofline_has_its_part_of_the_stored_bytes(experts, tmp_path, monkeypatch):
    for module in (fp8_linear, expert_weights):
        monkeypatch.setattr(module, "multiplies_fp8", lambda device, dtype: dtype == torch.bfloat16)
    folder = write_fp8(experts, tmp_path, FORMS["qwen-block"], ("mlp.gate",)) / "fp8"
    whole, part = (
        shape_of(load_target(folder, torch.bfloat16, CPU, group), 2) for group in (ALONE, Group(1, 2, Sum()))
    )
    router_bytes = 2 * 2 * 256 * 6  # two layers, bf16, on every rank
    assert part.layer_bytes - router_bytes == (whole.layer_bytes - router_bytes) // 2
    assert part.fast_params * 2 == whole.fast_params
    assert part.experts.expert_bytes * 2 == whole.experts.expert_bytes == 3 * 256 * 256
    assert part.num_sums == 2 * 2 + 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (dict(num_key_value_heads=2), "num_key_value_heads times head_dim is 128"),
        (dict(intermediate_size=384), "intermediate_size is 384"),
    ],
)
def test_parts_that_cut_a_block_are_refused_by_their_key(tmp_path, changes, said):
    write_llama(tmp_path, {**DENSE, **changes}, change=_add_biases)
    folder = write_fp8(tmp_path, tmp_path, FORMS["qwen-block"]) / "fp8"
    with pytest.raises(ValueError, match=f"tensor_parallel_size: 2 is not allowed; {said}.* whole blocks of 128"):
        _load(folder, Group(0, 2, Sum()))


def test_experts_that_do_not_divide_or_cut_a_block(experts, tmp_path):
    group = Group(0, 4, Sum())
    with pytest.raises(ValueError, match="4 is not allowed; moe_intermediate_size is 50; allowed: a divisor"):
        _load(write_experts(tmp_path / "odd", num_key_value_heads=4, moe_intermediate_size=50), group)
    folder = write_fp8(experts, tmp_path, FORMS["qwen-block"], ("mlp.gate",)) / "fp8"
    with pytest.raises(ValueError, match="num_attention_heads times head_dim is 256"):
        _load(folder, group)
