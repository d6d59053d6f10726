"""The parts of an engine's rounds: caches, drafter and phases, from its configuration."""

from __future__ import annotations

from torch import Tensor

from specbench.harness.engines.native.core.config import EngineConfig
from specbench.harness.engines.native.core.multi_sync import MultiSync, read_max_query_len
from specbench.harness.engines.native.core.round import RoundBuilder
from specbench.harness.engines.native.core.sampled_drafts import SampledDrafts
from specbench.harness.engines.native.core.state import RoundState
from specbench.harness.engines.native.core.strategy import DraftHead, EngineResources, Strategy
from specbench.harness.engines.native.core.target_cache import CacheMemory, TargetCache
from specbench.harness.engines.native.models.draft_models import make_draft_model
from specbench.harness.engines.native.models.eagle3 import Eagle3Head
from specbench.harness.engines.native.models.heads import make_head
from specbench.harness.engines.native.models.llama import LlamaModel
from specbench.kernels.attention.base import AttentionBackend
from specbench.kernels.state_update import StateUpdate


def make_builder(
    config: EngineConfig,
    target: LlamaModel,
    state: RoundState,
    strategy: Strategy,
    *,
    backend: AttentionBackend,
    drafter_backend: AttentionBackend,
    update: StateUpdate,
    num_pages: int,
    memory: CacheMemory,
    forced_SL: Tensor | None,
) -> RoundBuilder:
    """First the target's cache, then the drafter with its own: both from `memory`, in this order."""

    def new_cache(num_layers: int, num_kv_heads: int, head_dim: int) -> TargetCache:
        return TargetCache(
            num_layers=num_layers,
            num_pages=num_pages,
            page_size=config.page_size,
            num_kv_heads=num_kv_heads,
            head_dim=head_dim,
            dtype=target.dtype,
            device=target.device,
            memory=memory,
        )

    def sampled_drafts(model: DraftHead | LlamaModel) -> SampledDrafts | None:
        if not strategy.samples_drafts:
            return None
        return SampledDrafts(state, target.config.vocab_size, getattr(model, "d2t", None))

    is_multi, shape = config.sync == "multi", target.config
    cache = new_cache(len(target.layers), shape.num_kv_heads, shape.head_dim)
    drafter = strategy.make_drafter(
        EngineResources(
            target=target,
            state=state,
            update=update,
            load_head=lambda head, name: make_head(head, target, name, strategy.one_pass, strategy.samples_drafts),
            load_draft_model=lambda name: make_draft_model(name, target),
            new_kv_cache=lambda num_kv_heads, head_dim: new_cache(1, num_kv_heads, head_dim).layers[0],
            new_attention=lambda drafter: drafter.attention(drafter_backend, state.max_kv),  # type: ignore[attr-defined]
            drafter_rows=config.drafter,
            sampled_drafts=sampled_drafts,
            max_query_len=read_max_query_len if is_multi else lambda host, q_lens, cu_q_B1: max(q_lens),
        )
    )
    if drafter is not None and isinstance(drafter.model, Eagle3Head):
        target = target.with_aux_layers(drafter.model.aux_layers)
    captured = {part for part in ("first", "later") if getattr(config.graph, part) == "full"}
    bounded = drafter.bounded_parts if drafter else frozenset[str]()
    return RoundBuilder(
        target=target,
        attention=target.attention(backend, state.max_kv),
        cache=cache,
        state=state,
        update=update,
        drafter=drafter,
        forced_SL=forced_SL,
        multi_sync=MultiSync(state, bounded, captured) if is_multi else None,
        sampled=drafter.sampled if drafter else None,
    )
