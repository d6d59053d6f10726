"""`nodes.json`: how many GPU operations of a captured graph belong to each phase, in capture order.

One call launches a graph, so launches cannot distinguish its operations. The engine's captures are linear: the k-th
operation of a replay is the k-th captured node.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from specbench.harness.engines.traced import NodeMap
from specbench.workloads.guarded import read_bytes

FILE = "nodes.json"


def write_node_maps(maps: Sequence[NodeMap], path: Path) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(maps), indent=1))


def read_node_maps(path: Path) -> tuple[NodeMap, ...]:
    """ValueError for a file that `write_node_maps` did not write."""
    try:
        return msgspec.json.decode(read_bytes(path), type=tuple[NodeMap, ...])
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"nodes: {path} cannot be read as node counts: {error}") from error
