"""The passes of a deployment of the native engine, recorded before a run measures."""

from __future__ import annotations

from dataclasses import replace

from specbench.harness.engines.base import Deployment
from specbench.harness.engines.native.core.strategy import DraftHead
from specbench.harness.engines.native.deployment import NativeDeployment
from specbench.harness.engines.native.models.eagle1 import Eagle1Head
from specbench.harness.engines.native.models.eagle3 import Eagle3Head
from specbench.harness.engines.native.models.fp8_linear import Product
from specbench.harness.engines.native.models.llama import LlamaModel
from specbench.harness.engines.native.models.split_linear import GatheredLinear, RowParallel
from specbench.harness.engines.native.ranks.deployment import RankedDeployment
from specbench.harness.store.roofline_record import Forwards, ForwardShape

from .shape import after_attention_params, eagle1_shape, eagle3_shape, model_shape, stored_of


def forwards_of(deployment: Deployment) -> Forwards | None:
    """None for an engine that does not expose its passes, and for a drafter with experts, whose expert reads are not
    counted separately from the target's."""
    if isinstance(deployment, RankedDeployment):
        return deployment.look(forwards_of)
    if not isinstance(deployment, NativeDeployment):
        return None
    engine = deployment.engine
    dtype, strategy = engine.target.dtype, engine.strategy
    drafting = engine.drafter.model if engine.drafter else None
    if isinstance(drafting, LlamaModel) and drafting.config.experts is not None:
        return None
    return Forwards(
        dtype=str(dtype).removeprefix("torch."),
        target=shape_of(engine.target, dtype.itemsize),
        drafter=None if drafting is None else shape_of(drafting, dtype.itemsize),
        num_drafts=strategy.num_drafts,
        depth=1 if strategy.one_pass else strategy.tree.depth if strategy.tree else strategy.num_drafts,
        topk=strategy.tree.topk if strategy.tree else 1,
    )


def shape_of(model: LlamaModel | DraftHead, number_bytes: int) -> ForwardShape:
    """Sizes of a target's or drafter's pass on this rank; a head's vocabulary may be smaller than the target's."""
    if isinstance(model, LlamaModel):
        c, size = model.config, model.group.size
        is_plain = c.fp8 is None and c.experts is None
        whole = model_shape(c, number_bytes, None if is_plain else stored_of(model.layers, number_bytes))
        num_sums = 2 * len(model.layers)
        return _on_a_rank(whole, model.lm_head, c.hidden_size, size, num_sums, num_sums)
    assert isinstance(model, Eagle1Head | Eagle3Head)
    w, c, draft_vocab_size = model.weights, model.config, model.weights.lm_head.out_features
    if isinstance(model, Eagle3Head):
        whole = eagle3_shape(c, draft_vocab_size, model.feature_size, number_bytes)
    else:
        whole = eagle1_shape(c, draft_vocab_size, number_bytes)
    whole = replace(whole, last_params=after_attention_params(c))
    num_sums = sum(isinstance(product, RowParallel) for product in (w.o, w.down))
    num_norms = int(isinstance(w.o, RowParallel))
    return _on_a_rank(whole, w.lm_head, c.hidden_size, w.embed_group.size, num_sums, num_norms)


def _on_a_rank(
    shape: ForwardShape, lm_head: Product, hidden_size: int, num_ranks: int, num_sums: int, num_norms: int
) -> ForwardShape:
    """`shape`: of the layers as split, with the whole lm_head; `num_sums`: without the embedding's; `num_norms`: those
    that a sum's own kernel can do."""
    if num_ranks == 1:
        return shape
    return replace(
        shape,
        num_kernels=shape.num_kernels - num_norms,
        head_params=shape.head_params // (num_ranks if isinstance(lm_head, GatheredLinear) else 1),
        num_ranks=num_ranks,
        num_sums=num_sums + 1,
        sum_bytes=hidden_size * shape.number_bytes,
    )
