"""Results of made-up runs, derived once for equal tables: hundreds of tests begin with the same few runs.

Figures of equal blocks are derived once, too, in whatever run they are (`remember_blocks`): a test judges, compares and
shows one run, and each derives them again, 30 ms a block.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

import pyarrow as pa

from specbench.harness.metrics import metrics, run_results
from specbench.harness.metrics.registered import foreign_figures
from specbench.harness.store.results import BlockFigures, Results
from specbench.harness.store.schema import TABLES, Frames

_KNOWN: dict[str, Results] = {}
_MOST_BLOCKS = 1000  # of 10 kB


def results(frames: Frames) -> Results:
    """As the product's own, which it calls for tables that are new."""
    if frames.partial:  # rows that a digest of the tables does not see
        return run_results.results(frames)
    key = _digest(frames)
    if key not in _KNOWN:
        _KNOWN[key] = run_results.results(frames)
    return replace(_KNOWN[key])


def _digest(frames: Frames) -> str:
    digest = hashlib.sha256(repr((frames.arms, frames.seen, frames.temperature)).encode())
    for name in TABLES:
        table = pa.Table.from_pandas(getattr(frames, name), preserve_index=False)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        digest.update(sink.getvalue())
    return digest.hexdigest()


def remember_blocks() -> None:
    """From now on, in this process, for figures that results are made of."""
    measure, remembering = run_results.measure_blocks, _remembering(metrics.block_metrics)

    def measure_blocks(frames: Frames) -> dict[metrics.Block, BlockFigures]:
        if any(own.of_block for own in foreign_figures()):  # of other packages, which may ask anything
            return measure(frames)
        with mock.patch.object(metrics, "block_metrics", remembering):
            return measure(frames)

    run_results.measure_blocks = measure_blocks  # type: ignore[attr-defined]


def _remembering(derive: Callable[..., BlockFigures]) -> Callable[..., BlockFigures]:
    known: dict[bytes, BlockFigures] = {}

    def block_metrics(*tables: Any) -> BlockFigures:
        key = hashlib.sha256(pickle.dumps(tables)).digest()
        if key not in known:
            if len(known) == _MOST_BLOCKS:
                known.clear()
            known[key] = derive(*tables)
        return replace(known[key], values=dict(known[key].values))

    return block_metrics
