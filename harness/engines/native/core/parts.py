"""What the rounds of an engine are made of: caches, drafter and phases, from its configuration."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from specbench.harness.engines.native.core.config import EngineConfig
from specbench.harness.engines.native.core.round import RoundBuilder
from specbench.harness.engines.native.core.state import RoundState
from specbench.harness.engines.native.core.strategy import Drafter, EngineResources, Strategy
from specbench.harness.engines.native.core.sync_policy import DeviceSizes, HostSizes, MultiSync
from specbench.harness.engines.native.core.target_cache import CacheMemory, TargetCache
from specbench.harness.engines.native.models.draft_models import make_draft_model
from specbench.harness.engines.native.models.forward import KVCache
from specbench.harness.engines.native.models.heads import make_head
from specbench.harness.engines.native.models.llama import LlamaModel
from specbench.kernels.attention.base import AttentionBackend
from specbench.kernels.state_update import StateUpdate


@dataclass(frozen=True, kw_only=True, slots=True)
class RoundParts:
    """Makes one engine's parts, each from those before it."""

    config: EngineConfig
    target: LlamaModel
    state: RoundState
    update: StateUpdate
    num_pages: int
    memory: CacheMemory

    def make_drafter(self, strategy: Strategy, backend: AttentionBackend) -> Drafter | None:
        resources = EngineResources(
            target=self.target,
            state=self.state,
            update=self.update,
            load_head=lambda head, name: make_head(head, self.target, name),
            load_draft_model=lambda name: make_draft_model(name, self.target),
            new_kv_cache=self._new_kv_cache,
            new_attention=lambda drafter: drafter.attention(backend, self.state.max_kv),  # type: ignore[attr-defined]
            drafter_rows=self.config.drafter,
            sizes=DeviceSizes() if self.config.sync == "multi" else HostSizes(),
        )
        return strategy.make_drafter(resources)

    def make_builder(
        self, backend: AttentionBackend, cache: TargetCache, drafter: Drafter | None, forced_SL: Tensor | None
    ) -> RoundBuilder:
        return RoundBuilder(
            target=self.target,
            attention=self.target.attention(backend, self.state.max_kv),
            cache=cache,
            state=self.state,
            update=self.update,
            drafter=drafter,
            forced_SL=forced_SL,
            multi_sync=self._multi_sync(drafter) if self.config.sync == "multi" else None,
        )

    def target_cache(self) -> TargetCache:
        model = self.target.config
        return self._cache(len(self.target.layers), model.num_kv_heads, model.head_dim)

    def _new_kv_cache(self, num_kv_heads: int, head_dim: int) -> KVCache:
        return self._cache(1, num_kv_heads, head_dim).layers[0]

    def _cache(self, num_layers: int, num_kv_heads: int, head_dim: int) -> TargetCache:
        return TargetCache(
            num_layers=num_layers,
            num_pages=self.num_pages,
            page_size=self.config.page_size,
            num_kv_heads=num_kv_heads,
            head_dim=head_dim,
            dtype=self.target.dtype,
            device=self.target.device,
            memory=self.memory,
        )

    def _multi_sync(self, drafter: Drafter | None) -> MultiSync:
        bounded = drafter.bounded_parts if drafter else frozenset[str]()
        return MultiSync(
            self.state, bounded, {p for p in ("first", "later") if getattr(self.config.graph, p) == "full"}
        )
