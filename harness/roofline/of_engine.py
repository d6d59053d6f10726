"""The passes of a deployment of the native engine, recorded before a run measures."""

from __future__ import annotations

from specbench.harness.engines.base import Deployment
from specbench.harness.engines.native.core.strategy import DraftHead
from specbench.harness.engines.native.deployment import NativeDeployment
from specbench.harness.engines.native.models.eagle1 import Eagle1Head
from specbench.harness.engines.native.models.eagle3 import Eagle3Head
from specbench.harness.engines.native.models.llama import LlamaModel
from specbench.harness.store.roofline_record import Forwards, ForwardShape

from .shape import eagle1_shape, eagle3_shape, model_shape


def forwards_of(deployment: Deployment) -> Forwards | None:
    """None for an engine that does not show what it runs."""
    if not isinstance(deployment, NativeDeployment):
        return None
    engine = deployment.engine
    dtype, strategy = engine.target.dtype, engine.strategy
    drafting = engine.drafter.model if engine.drafter else None
    return Forwards(
        dtype=str(dtype).removeprefix("torch."),
        target=model_shape(engine.target.config, dtype.itemsize),
        drafter=None if drafting is None else shape_of(drafting, dtype.itemsize),
        num_drafts=strategy.num_drafts,
        depth=strategy.tree.depth if strategy.tree else strategy.num_drafts,
        topk=strategy.tree.topk if strategy.tree else 1,
    )


def shape_of(model: LlamaModel | DraftHead, number_bytes: int) -> ForwardShape:
    """Sizes of what a drafter runs; a head's vocabulary may be smaller than the target's."""
    if isinstance(model, LlamaModel):
        return model_shape(model.config, number_bytes)
    assert isinstance(model, Eagle1Head | Eagle3Head)
    draft_vocab_size = model.weights.lm_head.out_features
    if isinstance(model, Eagle3Head):
        return eagle3_shape(model.config, draft_vocab_size, model.feature_size, number_bytes)
    return eagle1_shape(model.config, draft_vocab_size, number_bytes)
