"""Draft heads that come with the package (`workloads/assets/heads/NAME/`), found by the target they are for."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

PREFIX = "shipped:"
HEADS = Path(__file__).resolve().parent / "heads"


@dataclass(frozen=True, kw_only=True, slots=True)
class ShippedHead:
    """A head and what its training.json says: the target it was trained for, and the data sets it saw."""

    name: str
    target_hub_name: str
    target_source: str
    target_sha256: str
    trained_on: frozenset[str]

    @property
    def option(self) -> str:
        """The value of `head=` that names it."""
        return f"{PREFIX}{self.name}"

    def is_for(self, sha256: str, source: str) -> bool:
        """Whether a target is the one it was trained for: the same bytes, or the hub's copy of the same model."""
        return sha256 == self.target_sha256 or source.partition("@")[0] == f"hub:{self.target_hub_name}"

    def notes(self, target_sha256: str, workloads: Collection[str]) -> list[str]:
        """Notes for the reader of a row in which this head drafts for that target on those workloads."""
        notes = [
            f"head trained on {workload}: acceptance is inflated; sharegpt-held-out is not in its training data"
            for workload in workloads
            if workload in self.trained_on
        ]
        if target_sha256 != self.target_sha256:
            notes.append(f"head trained for other weights, {self.target_source}: acceptance may be lower")
        return notes


def shipped_names() -> list[str]:
    return sorted(path.parent.name for path in HEADS.glob("*/training.json"))


def shipped_head(option: str) -> ShippedHead:
    """The head that `shipped:NAME` names. ValueError with the known names for another."""
    record = json.loads((shipped_folder(option) / "training.json").read_text())
    target = record["target"]
    return ShippedHead(
        name=option.removeprefix(PREFIX),
        target_hub_name=target["hub_name"],
        target_source=target["source"],
        target_sha256=target["sha256"],
        trained_on=frozenset(data["name"] for data in record["data"]),
    )


def shipped_head_for(target_sha256: str, target_source: str) -> ShippedHead | None:
    """The head for a target, whose `source` is `hub:ORG/NAME@COMMIT` where the hub had it; None where there is none."""
    heads = [shipped_head(PREFIX + name) for name in shipped_names()]
    return next((head for head in heads if head.is_for(target_sha256, target_source)), None)


def shipped_folder(option: str) -> Path:
    """The folder of `shipped:NAME`. ValueError with the known names for another."""
    name = option.removeprefix(PREFIX)
    if name not in shipped_names():
        known = ", ".join(f"{PREFIX}{known}" for known in shipped_names()) or "none"
        raise ValueError(f"head: {option!r} is not known; shipped heads: {known}")
    return HEADS / name
