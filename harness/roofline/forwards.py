"""What a run records of an arm's passes, under `forwards` in run.json: enough to know the ideal time of its rounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from .ideal import Round
from .machine import read_record
from .shape import ForwardShape

FORWARDS = "forwards"


@dataclass(frozen=True, kw_only=True, slots=True)
class Forwards:
    """The passes of a round: of the target over num_drafts + 1 rows, and of a drafter (None: drafts cost no pass) over
    `depth` levels of `topk` rows; a chain of K drafts has K levels of one."""

    dtype: str
    target: ForwardShape
    drafter: ForwardShape | None
    num_drafts: int
    depth: int
    topk: int

    def round(self, batch: float, context: float, first_rows: float | None) -> Round:
        nodes = self.num_drafts + 1
        return Round.tree(batch, context, num_nodes=nodes, depth=self.depth, topk=self.topk, first_rows=first_rows)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_dict(raw: Any) -> Forwards:
        """What `to_dict` made. ValueError for anything else."""
        shapes = {}
        if isinstance(raw, Mapping):
            shapes = {k: ForwardShape.from_dict(raw[k]) for k in ("target", "drafter") if raw.get(k) is not None}
        return read_record(Forwards, {**raw, **shapes} if shapes else raw, FORWARDS)
