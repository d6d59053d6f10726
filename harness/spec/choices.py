"""The switches of one arm: the values they may have, and what follows from their combination."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from specbench.harness.registry import ATTENTION_BACKENDS, STATE_UPDATES, lookup

from .plans import MODES, PARTS, PLANS, GraphPlan

_ATTENTION = tuple(ATTENTION_BACKENDS.built_in)
# What our own backends declare (AttentionBackend), known without importing them; other backends are imported.
_OWN = {"is_planned": frozenset({"flashinfer"}), "reads_lengths": frozenset({"torch"})}


@dataclass(frozen=True, kw_only=True, slots=True)
class Choices:
    """The switches of one arm, as requested; `plan` and `status_lag` are known once resolved."""

    device: str  # "cpu" or "cuda"
    graph: str = "auto"
    graph_parts: dict[str, str] = field(default_factory=dict)  # part (plans.PARTS) -> mode that replaces the plan's
    sync: str = "auto"
    attention: str = "auto"
    attention_drafter: str = "same"
    drafter: str = "padded"
    state_update: str = "fused"
    status_lag: int | None = None
    # Properties of the strategy:
    default_graph: str = "full"  # its preferred plan for graph=auto
    num_drafts: int = 1
    has_tree: bool = False
    can_unpad: bool = True  # its first drafter pass runs over the verified rows
    # Resolved:
    plan: GraphPlan = PLANS["none"]

    @property
    def drafter_backend(self) -> str:
        return self.attention if self.attention_drafter == "same" else self.attention_drafter

    @property
    def backends(self) -> set[str]:
        return {self.attention, self.drafter_backend} if self.num_drafts else {self.attention}

    @property
    def is_planned(self) -> bool:
        return declares("is_planned", self.backends)

    @property
    def reads_lengths(self) -> bool:
        return declares("reads_lengths", self.backends)

    @property
    def modes(self) -> set[str]:
        """Modes of all parts."""
        return {getattr(self.plan, part) for part in PARTS}

    def described(self) -> dict[str, str | int | None]:
        return dict(
            graph=self.plan.described(),
            sync=self.sync,
            attention=self.attention,
            attention_drafter=self.drafter_backend if self.num_drafts else None,
            drafter=self.drafter if self.num_drafts else None,
            state_update=self.state_update,
        )


ALLOWED: dict[str, tuple[str, ...]] = {
    "graph": ("auto", *PLANS),
    "sync": ("auto", "multi", "single", "none"),
    "attention": ("auto", *_ATTENTION),
    "attention_drafter": ("same", *_ATTENTION),
    "drafter": ("padded", "unpadded"),
    "state_update": tuple(STATE_UPDATES.built_in),
}
PART_MODES: dict[str, tuple[str, ...]] = {part: MODES if part != "mixed" else MODES[:-1] for part in PARTS}


def allowed(switch: str) -> tuple[str, ...]:
    """The values of a switch: ours, then those of other packages."""
    tables = {"attention": ATTENTION_BACKENDS, "attention_drafter": ATTENTION_BACKENDS, "state_update": STATE_UPDATES}
    return tuple(dict.fromkeys((*ALLOWED[switch], *tables.get(switch, ()))))


def declares(what: str, backends: Collection[str]) -> bool:
    """Whether any of the backends declares `what`, a key of _OWN."""
    return any(
        b in _OWN[what] if b in _ATTENTION else getattr(lookup(ATTENTION_BACKENDS, b, "attention"), what, False)
        for b in backends
    )
