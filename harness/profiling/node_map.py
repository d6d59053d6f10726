"""Which GPU operations of a captured graph belong to which phase, in a file: their numbers, in the order of capture.

A graph is launched by one call, so its operations cannot be told apart by launch. Captures of the engine are linear:
the k-th operation of a replay is the k-th captured node.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from specbench.harness.engines.traced import NodeMap

FILE = "nodes.json"


def write_node_maps(maps: Sequence[NodeMap], path: Path) -> None:
    path.write_text(json.dumps([asdict(item) for item in maps], indent=1), encoding="utf-8")


def read_node_maps(path: Path) -> tuple[NodeMap, ...]:
    """ValueError for what `write_node_maps` did not write."""
    try:
        return tuple(
            NodeMap(
                segment=item["segment"],
                batch_size=item["batch_size"],
                parts=tuple((phase, step, count) for phase, step, count in item["parts"]),
            )
            for item in json.loads(path.read_text(encoding="utf-8"))
        )
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"nodes: {path} cannot be read as node counts: {error}") from error
