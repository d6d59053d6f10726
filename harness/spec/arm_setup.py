"""An arm's switches once they are resolved; engines say them, the run record holds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmSetup:
    """Every switch of an arm as resolved. None: not known, or without meaning for the arm. `options`: the strategy's
    own, as given; `acceptance`: real, or how it is forced."""

    graph: str | None = None
    sync: str | None = None
    attention: str | None = None
    attention_drafter: str | None = None
    drafter: str | None = None
    state_update: str | None = None
    status_lag: int | None = None
    num_drafts: int | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    acceptance: str | None = None
