"""What a strategy module gives the engine. A strategy fills device buffers; it never times or loops itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from specbench.harness.models.config import ModelConfig
from specbench.harness.models.llama import Attention, ForwardBatch, KVCache, LlamaModel
from specbench.kernels.attention.base import AttentionBackend

from .batch import StepBatch
from .state import RoundState


@dataclass(frozen=True, slots=True)
class Phase:
    """A named part of a step. `run` launches device work on the step's buffers and reads nothing back."""

    name: str
    run: Callable[[StepBatch], None]


class DraftHead(Protocol):
    """A drafter layer that continues the target's features (EAGLE-3; see models/eagle3.py for the shapes)."""

    config: ModelConfig

    @property
    def d2t(self) -> Tensor | None: ...

    def attention(self, backend: AttentionBackend, num_positions: int) -> Attention: ...

    def project(self, features_TF: Tensor) -> Tensor: ...

    def forward(self, batch: ForwardBatch, hidden_TH: Tensor, attention: Attention, cache: KVCache) -> Tensor: ...

    def logits_and_state(self, output_RH: Tensor) -> tuple[Tensor, Tensor]: ...


@dataclass(slots=True)
class EngineResources:
    """What an engine lends its drafter: the target, the round state, and KV caches over the same pages."""

    target: LlamaModel
    state: RoundState
    load_head: Callable[[str, str], DraftHead]  # (directory or "random", strategy name)
    new_kv_cache: Callable[[int, int], KVCache]  # (num_kv_heads, head_dim) -> one layer's cache
    new_attention: Callable[[object], Attention]  # a model with .attention(backend, num_positions)


class Drafter(Protocol):
    """The drafting half of a round, bound to one engine's buffers."""

    num_drafts: int

    @property
    def needs_features(self) -> bool:
        """Whether the target's pass must leave its aux features in `batch.work.features_TF`."""
        ...

    def phases(self, batch: StepBatch) -> list[Phase]:
        """Phases after acceptance that leave `num_drafts` drafts of every request in `state.drafts_SK`.

        Called once for each layout; in a mixed step the layout is ragged and the phases also ingest prompt rows.
        """
        ...


class Strategy(Protocol):
    """One way of speculating, as named on the command line, with its options resolved."""

    name: str
    num_drafts: int
    graph: str  # the graph plan it asks for where nothing else is said: "full" or "one"

    def make_drafter(self, resources: EngineResources) -> Drafter | None: ...


class AcceptanceOverride(Protocol):
    """Forces the number of accepted drafts (synthetic acceptance); None at its place means real acceptance."""

    def table_row(self, seed: int, num_positions: int) -> Tensor:
        """int32 [num_positions]: drafts accepted by a round whose pending token stands at that position."""
        ...
