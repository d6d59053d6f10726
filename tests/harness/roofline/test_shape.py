"""Sizes from configurations equal what the built models hold, matrix by matrix, and an engine records its own."""

from __future__ import annotations

from dataclasses import asdict, fields, replace

import pytest
import torch
from toy.checkpoints import (
    eagle1_config,
    eagle3_config,
    llama_config,
    load_written,
    write_eagle1,
    write_eagle3,
    write_llama,
)
from toy.compare import dense_pass
from toy.engines import deployed, make_engine, named_strategy, toy_target
from toy.plans import CPU_PLANS
from toy.ranks import on_ranks

from specbench.harness.engines.native.models import expert_weights, fp8_linear
from specbench.harness.engines.native.models.config import ModelConfig
from specbench.harness.engines.native.models.draft_models import make_draft_model
from specbench.harness.engines.native.models.experts_config import ExpertsConfig
from specbench.harness.engines.native.models.group import Group
from specbench.harness.engines.native.models.heads import load_head, make_head
from specbench.harness.engines.native.models.linear import Linear
from specbench.harness.engines.native.models.loader import dummy_target, load_target
from specbench.harness.engines.native.models.mlp import DenseMlp
from specbench.harness.engines.native.models.quantization import Fp8Format
from specbench.harness.engines.native.models.shapes import SHAPES, published_shape
from specbench.harness.roofline.of_engine import forwards_of, shape_of
from specbench.harness.roofline.shape import model_shape
from specbench.harness.store.codec import from_document, to_document
from specbench.harness.store.roofline_record import ExpertsShape, Forwards, ForwardShape


def multiplied(*holders: object) -> int:
    """Numbers in all matrices that an object's own fields hold."""
    products = [getattr(h, f.name) for h in holders for f in fields(h)]  # type: ignore[arg-type]
    inner = sum(multiplied(p) for p in products if isinstance(p, DenseMlp))
    return inner + sum(p.in_features * p.out_features for p in products if isinstance(p, Linear))


def lm_head_size(head: Linear) -> int:
    return head.in_features * head.out_features


@pytest.fixture
def target(tmp_path):
    write_llama(tmp_path / "target", llama_config())
    return load_written(tmp_path / "target")


def test_a_target_and_its_first_layers(target):
    shape = shape_of(target, 4)
    assert shape == model_shape(target.config, 4)
    assert shape.layer_params == multiplied(*target.layers)
    assert shape.head_params == lm_head_size(target.lm_head) == 128 * 64
    assert shape.kv_bytes_per_token == 2 * 6 * 2 * 16 * 4
    assert shape.number_bytes == 4
    short = make_draft_model("self:2", target)
    assert shape_of(short, 4).layer_params == multiplied(*target.layers[:2])


@pytest.mark.parametrize("draft_vocab", [48, 128])
def test_an_eagle3_head(tmp_path, target, draft_vocab):
    """`fc` takes target features: in the first pass only. The vocabulary may be reduced."""
    write_eagle3(tmp_path / "head", eagle3_config(draft_vocab_size=draft_vocab), llama_config())
    head = load_head(tmp_path / "head", target)
    shape = shape_of(head, 2)
    assert shape.first_params == lm_head_size(head.weights.fc) == 3 * 64 * 64
    assert shape.head_params == lm_head_size(head.weights.lm_head) == draft_vocab * 64
    assert shape.layer_params + shape.first_params + shape.head_params == multiplied(head.weights)
    assert shape.vocab_size == draft_vocab and shape.num_layers == 1
    w = head.weights
    assert shape.last_params == sum(each.in_features * each.out_features for each in (w.o, w.gate_up, w.down))
    assert shape.kv_bytes_per_token == 2 * 1 * 32 * 2


def test_an_eagle1_head(tmp_path, target):
    write_eagle1(tmp_path / "head", eagle1_config())
    head = load_head(tmp_path / "head", target)
    shape = shape_of(head, 2)
    assert shape.first_params == 0  # its `fc` is in every pass
    w = head.weights
    assert shape.last_params == sum(each.in_features * each.out_features for each in (w.o, w.gate_up, w.down))
    assert shape.layer_params + shape.head_params == multiplied(head.weights)
    assert shape.vocab_size == target.config.vocab_size
    assert shape_of(make_head("random-eagle1", target, "eagle"), 2).layer_params > 0


@pytest.mark.parametrize(("keeps_fp8", "width"), [(False, 2), (True, 1)])
def test_a_mixture_and_fp8(tmp_path, monkeypatch, keeps_fp8, width):
    """Experts apart; E4M3 as it is multiplied: a byte a number where it is kept, else dequantised."""
    for module in (fp8_linear, expert_weights):
        monkeypatch.setattr(module, "multiplies_fp8", lambda device, dtype: keeps_fp8)
    wide = ModelConfig(
        hidden_size=256, intermediate_size=384, num_layers=4, num_q_heads=4, num_kv_heads=2, head_dim=64,
        vocab_size=128, fp8=Fp8Format(scales="block", unquantized=("lm_head", "mlp.gate")),
        experts=ExpertsConfig(num_experts=6, per_token=2, intermediate_size=128, normalised=True, step=2),
    )  # fmt: skip
    monkeypatch.setitem(SHAPES, "wide", replace(SHAPES["toy"], config=wide))
    target = dummy_target("wide", torch.bfloat16, torch.device("cpu"))
    shape, attention, router, expert = shape_of(target, 2), 256 * (256 + 2 * 128) + 256 * 256, 256 * 6, 3 * 256 * 128
    dense = 4 * attention + 2 * 3 * 256 * 384
    assert shape.layer_params == dense + 2 * (router + 2 * expert)
    assert shape.layer_bytes == width * dense + 2 * 2 * router
    assert shape.experts == ExpertsShape(num_layers=2, num_experts=6, expert_bytes=width * expert)
    assert shape.fast_params == (dense + 2 * 2 * expert if keeps_fp8 else 0)
    assert shape.read_bytes(3.5) == shape.layer_bytes + 3.5 * 2 * width * expert
    assert shape.head_params == 256 * 128 and shape.num_kernels == 2 + 9 * 4 + 3 * 2
    assert from_document(ForwardShape, to_document(shape), "shape") == shape


def test_a_drafter_with_experts_is_not_told_apart_from_its_target(monkeypatch):
    experts = ExpertsConfig(num_experts=6, per_token=2, intermediate_size=32, normalised=True)
    config = replace(SHAPES["toy"].config, experts=experts)
    monkeypatch.setitem(SHAPES, "mixed", replace(SHAPES["toy"], config=config))
    target = dummy_target("mixed", torch.float32, torch.device("cpu"))

    def recorded(strategy):
        return forwards_of(deployed(make_engine(CPU_PLANS[0], strategy, target=target)))

    assert recorded(named_strategy("eagle", k=2, head="random")).target.experts.num_layers == 2
    assert recorded(named_strategy("draft-model", k=2, draft="shape:toy")).drafter.experts is None
    assert recorded(named_strategy("draft-model", k=2, draft="self:1")) is None


def test_bytes_of_the_published_shape():
    """The size that the floors of Llama-3.1-8B are measured with: 15.01 GB without the embedding."""
    shape = model_shape(published_shape("llama-3.1-8b").config, 2)
    assert round((shape.layer_params + shape.head_params) * shape.number_bytes / 1e9, 2) == 15.01
    assert shape.kv_bytes_per_token == 131072


@pytest.mark.parametrize(
    ("strategy", "drafts", "levels", "width", "drafter"),
    [
        (named_strategy("no-spec"), 0, 0, 1, None),
        (named_strategy("ngram", k=3), 3, 3, 1, None),
        (named_strategy("eagle", k=3, head="random"), 3, 3, 1, 1),
        (named_strategy("naive-eagle", k=1, head="random-eagle1"), 1, 1, 1, 1),
        (named_strategy("parallel-eagle", k=3, head="random"), 3, 1, 1, 1),
        (named_strategy("draft-model", k=2, draft="self:2"), 2, 2, 1, 2),
        (named_strategy("eagle-topk", num_steps=3, topk=2, num_draft_tokens=8, head="random"), 7, 3, 2, 1),
    ],
)
def test_what_an_engine_records(strategy, drafts, levels, width, drafter):
    forwards = forwards_of(deployed(make_engine(CPU_PLANS[0], strategy)))
    assert forwards.dtype == "float32" and forwards.target == model_shape(toy_target().config, 4)
    assert (forwards.num_drafts, forwards.depth, forwards.topk) == (drafts, levels, width)
    assert drafter == (forwards.drafter and forwards.drafter.num_layers)
    assert from_document(Forwards, to_document(forwards), "forwards") == forwards


def test_a_rank_has_its_part_and_sums_as_often_as_it_does(tmp_path):
    write_llama(tmp_path / "target", llama_config())
    write_eagle3(tmp_path / "head", eagle3_config(num_key_value_heads=2), llama_config())

    def shapes(group: Group) -> tuple[ForwardShape, ForwardShape, int]:
        target = load_target(tmp_path / "target", torch.float32, torch.device("cpu"), group)
        dense_pass(target, [5, 100, 31])
        return shape_of(target, 4), shape_of(load_head(tmp_path / "head", target), 4), group.num_sums

    ((whole, whole_head, _),) = on_ranks(1, shapes)
    for of_target, of_head, num_sums in on_ranks(2, shapes):
        for shape, all_of_it in ((of_target, whole), (of_head, whole_head)):
            assert (2 * shape.layer_params, 2 * shape.head_params) == (all_of_it.layer_params, all_of_it.head_params)
            assert 2 * shape.num_kv_heads == all_of_it.num_kv_heads and shape.first_params == all_of_it.first_params
            assert (shape.num_ranks, shape.sum_bytes) == (2, 64 * 4)
        assert of_target.num_sums == num_sums == 2 * 6 + 1 and of_head.num_sums == 3
    for _, of_head, _ in on_ranks(2, shapes, splits_drafter=False):
        assert of_head.layer_params == whole_head.layer_params and of_head.num_sums == 1, "the target's embedding"


@pytest.mark.parametrize("change", [{"head_params": 0}, {"num_layers": 1.5}])
def test_a_record_is_checked(change):
    shape = model_shape(toy_target().config, 4)
    raw = asdict(shape)
    assert from_document(ForwardShape, raw, "shape") == shape
    with pytest.raises(ValueError, match=next(iter(change))):
        from_document(ForwardShape, {**raw, **change}, "shape")
    with pytest.raises(ValueError, match="shape: .*vocab_size"):
        from_document(ForwardShape, {k: v for k, v in raw.items() if k != "vocab_size"}, "shape")
    with pytest.raises(ValueError, match="forwards: "):
        from_document(Forwards, None, "forwards")
