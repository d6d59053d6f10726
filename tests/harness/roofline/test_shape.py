"""Sizes from configurations equal what the built models hold, matrix by matrix, and an engine records its own."""

from __future__ import annotations

from dataclasses import asdict, fields

import pytest
from toy.checkpoints import (
    eagle1_config,
    eagle3_config,
    llama_config,
    load_written,
    write_eagle1,
    write_eagle3,
    write_llama,
)
from toy.engines import deployed, make_engine, named_strategy, toy_target
from toy.plans import CPU_PLANS

from specbench.harness.engines.native.models.draft_models import make_draft_model
from specbench.harness.engines.native.models.heads import load_head, make_head
from specbench.harness.engines.native.models.linear import Linear
from specbench.harness.engines.native.models.shapes import published_shape
from specbench.harness.roofline.of_engine import forwards_of, shape_of
from specbench.harness.roofline.shape import model_shape
from specbench.harness.store.codec import from_document, to_document
from specbench.harness.store.roofline_record import Forwards, ForwardShape


def multiplied(*holders: object) -> int:
    """Numbers in all matrices that an object's own fields hold."""
    products = [getattr(h, f.name) for h in holders for f in fields(h)]  # type: ignore[arg-type]
    return sum(p.in_features * p.out_features for p in products if isinstance(p, Linear))


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
    assert shape.kv_bytes_per_token == 2 * 1 * 32 * 2


def test_an_eagle1_head(tmp_path, target):
    write_eagle1(tmp_path / "head", eagle1_config())
    head = load_head(tmp_path / "head", target)
    shape = shape_of(head, 2)
    assert shape.first_params == 0  # its `fc` is in every pass
    assert shape.layer_params + shape.head_params == multiplied(head.weights)
    assert shape.vocab_size == target.config.vocab_size
    assert shape_of(make_head("random-eagle1", target, "eagle"), 2).layer_params > 0


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
