"""What a run records of an arm's passes, under `forwards` in run.json: enough to know the ideal time of its rounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from specbench.workloads.json_values import Json, JsonObject

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

    def to_dict(self) -> JsonObject:
        return asdict(self)

    @staticmethod
    def from_dict(raw: Json) -> Forwards:
        """What `to_dict` made. ValueError for anything else."""
        plain = read_record(Forwards, raw, FORWARDS)
        assert isinstance(raw, Mapping)
        drafter = raw["drafter"] and ForwardShape.from_dict(raw["drafter"])
        return replace(plain, target=ForwardShape.from_dict(raw["target"]), drafter=drafter or None)
