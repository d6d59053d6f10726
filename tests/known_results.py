"""Results of made-up runs, derived once for equal tables: hundreds of tests begin with the same few runs."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pyarrow as pa

from specbench.harness.metrics import run_results
from specbench.harness.store.results import Results
from specbench.harness.store.schema import TABLES, Frames

_KNOWN: dict[str, Results] = {}


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
