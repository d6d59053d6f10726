"""What a strategy module gives the engine. A strategy fills device buffers; it never times or loops itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from torch import Tensor

from specbench.harness.engines.native.core.batch import StepBatch
from specbench.harness.engines.native.core.draft_counts import DraftCounts, FixedDrafts
from specbench.harness.engines.native.core.host_view import HostView
from specbench.harness.engines.native.core.lookahead import Lookahead
from specbench.harness.engines.native.core.sampled_drafts import SampledDrafts
from specbench.harness.engines.native.core.state import RoundState
from specbench.harness.engines.native.models.config import ModelConfig
from specbench.harness.engines.native.models.eagle_head import Placeholder
from specbench.harness.engines.native.models.features import Features
from specbench.harness.engines.native.models.forward import Attention, KVCache, Pieces
from specbench.harness.engines.native.models.llama import LlamaModel
from specbench.harness.registry import StrategyKind
from specbench.kernels.attention.base import AttentionBackend
from specbench.kernels.state_update import StateUpdate

if TYPE_CHECKING:
    from specbench.harness.engines.native.core.tree import TreeShape


GREEDY_DRAFTS = "greedy"
DRAFT_SAMPLE_METHODS = (GREEDY_DRAFTS, "probabilistic")


@dataclass(frozen=True, slots=True)
class Phase:
    """A named part of a step. `run` launches device work on the step's buffers and reads nothing back. `prepare` is the
    host's work before the launch that contains the phase, outside any graph; it requests anything it must wait for from
    the HostView, which counts it."""

    name: str
    run: Callable[[StepBatch], None]
    prepare: Callable[[StepBatch, HostView], None] | None = None


class DraftHead(Protocol):
    """A drafter layer that continues the target's features (see models/eagle3.py and eagle1.py for the shapes)."""

    config: ModelConfig
    features: Features
    placeholder: Placeholder | None  # what drafts all tokens in one pass has one

    @property
    def d2t(self) -> Tensor | None: ...

    def attention(self, backend: AttentionBackend, num_positions: int) -> Attention: ...

    def project(self, features_TF: Tensor) -> Tensor: ...

    def pieces(self, ids_T: Tensor, hidden_TH: Tensor, wanted_R: Tensor | None = None) -> Pieces: ...

    def logits_and_state(self, output_RH: Tensor) -> tuple[Tensor, Tensor]: ...


@dataclass(slots=True)
class EngineResources:
    """What an engine provides to its drafter: the target, the round state, and KV caches over the same pages."""

    target: LlamaModel
    state: RoundState
    update: StateUpdate
    load_head: Callable[[str, str], DraftHead]  # (directory or "random", strategy name)
    load_draft_model: Callable[[str], LlamaModel]
    new_kv_cache: Callable[[int, int], KVCache]  # (num_kv_heads, head_dim) -> one layer's cache
    new_attention: Callable[[object], Attention]  # a model with .attention(backend, num_positions)
    drafter_rows: str  # "padded": K+1 rows a request in the first pass; "unpadded": the accepted ones only
    sampled_drafts: Callable[[DraftHead | LlamaModel], SampledDrafts | None]  # where drafts are drawn from the model
    max_query_len: Callable[[HostView, list[int], Tensor], int]  # for an unpadded pass, from its q_lens or cu_q_B1


class Drafter:
    """The drafting half of a round, bound to one engine's buffers. The defaults are those of a drafter without a
    model."""

    model: LlamaModel | DraftHead | None = None
    """The model that it executes."""
    features: Features = Features.NONE
    """What the target's pass must leave in `batch.features_TF`."""
    bounded_parts: frozenset[str] = frozenset()
    """Parts (first, later) that run over the layout's own forwards, whose launches a known length may bound."""
    sampled: SampledDrafts | None = None
    """Where it draws drafts; None: it always chooses the best."""

    def first_rows(self, num_drafts: int) -> int:
        """Rows of a request in its first pass of a decode round with so many drafts; at most these, if unpadded."""
        return num_drafts + 1

    def num_left(self, num_drafts: int) -> int:
        """Most drafts of a request behind a step with so many; a later step that verifies more finds them."""
        return num_drafts

    def phases(self, batch: StepBatch) -> list[Phase]:
        """Phases after acceptance that write drafts of every request to `state.drafts_SK`: as many as
        `num_left` says, then -1. A layout without drafts still keeps a model's keys complete.

        Called once for each layout; in a mixed step the layout is ragged and the phases also ingest prompt rows.
        """
        raise NotImplementedError


class Strategy(StrategyKind):
    """One way of speculating, as named on the command line, with its options resolved."""

    draft_sample_method: str = GREEDY_DRAFTS
    """An option of strategies whose drafts come from a model; spelled as in vLLM."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.draft_sample_method not in DRAFT_SAMPLE_METHODS:
            raise ValueError(
                f"{self.name}: draft_sample_method={self.draft_sample_method!r} is not known; allowed: "
                f"{', '.join(DRAFT_SAMPLE_METHODS)}"
            )

    @property
    def samples_drafts(self) -> bool:
        return self.draft_sample_method != GREEDY_DRAFTS

    @property
    def tree(self) -> TreeShape | None:
        """None: drafts are a chain."""
        return None

    @property
    def lookahead(self) -> Lookahead:
        return Lookahead.of_one_pass(self.num_drafts) if self.one_pass else Lookahead.of(self.num_drafts, self.tree)

    def draft_counts(self) -> DraftCounts:
        """The number of drafts in each round; without special options, always the same."""
        return FixedDrafts(self.num_drafts)

    def make_drafter(self, resources: EngineResources) -> Drafter | None:
        raise NotImplementedError


class AcceptanceOverride(Protocol):
    """Forces the number of accepted drafts (synthetic acceptance); None in its place means real acceptance."""

    def table(self, seeds: Sequence[int], num_positions: int) -> Tensor:
        """int32 [len(seeds), num_positions]: drafts of each request that a round accepts whose pending token is at
        that position."""
        ...
