"""Responses on disk: parquet shards written whole or not at all, read back one shard after the other."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as arrow
import pyarrow.parquet as parquet

from specbench.workloads.assets.cache import atomic_file

from .dialogue import ResponseSequence

SCHEMA = arrow.schema(
    [
        ("id", arrow.string()),
        ("temperature", arrow.float32()),
        ("token_ids", arrow.list_(arrow.int32())),
        ("span_starts", arrow.list_(arrow.int32())),
        ("span_ends", arrow.list_(arrow.int32())),
        ("looped", arrow.bool_()),
        ("num_cut_tokens", arrow.int32()),
    ]
)


class ShardWriter:
    """Collects sequences and writes a shard whenever `rows_per_shard` are there. `close` writes the rest."""

    def __init__(self, folder: Path, rows_per_shard: int):
        self.folder = folder
        self._rows_per_shard = rows_per_shard
        self._rows: list[ResponseSequence] = []
        self._next = len(shard_paths(folder))

    def add(self, sequence: ResponseSequence) -> None:
        self._rows.append(sequence)
        if len(self._rows) >= self._rows_per_shard:
            self._flush()

    def close(self) -> None:
        if self._rows:
            self._flush()

    def _flush(self) -> None:
        columns = [_column([getattr(row, field.name) for row in self._rows], field.type) for field in SCHEMA]
        table = arrow.Table.from_arrays(columns, schema=SCHEMA)
        with atomic_file(self.folder / f"responses-{self._next:05d}.parquet") as file:
            parquet.write_table(table, file, compression="zstd")
        self._rows, self._next = [], self._next + 1


def _column(values: list, kind: arrow.DataType) -> arrow.Array:
    """Lists of numbers go through one flat array: several times as fast as number by number."""
    if not arrow.types.is_list(kind):
        return arrow.array(values, kind)
    offsets = np.concatenate([[0], np.cumsum([len(v) for v in values])]).astype(np.int32)
    flat = np.concatenate([np.asarray(v, dtype=np.int32) for v in values])
    return arrow.ListArray.from_arrays(offsets, flat)


def shard_paths(folder: Path) -> list[Path]:
    return sorted(folder.glob("responses-*.parquet"))


def _tables(folder: Path, columns: list[str]) -> Iterator[arrow.Table]:
    for path in shard_paths(folder):
        try:
            yield parquet.read_table(path, columns=columns)
        except arrow.ArrowInvalid as error:
            raise ValueError(f"{path}: not a readable shard ({error}); delete it and generate again") from error


def finished_samples(folder: Path) -> set[str]:
    """Samples (without the number of the sequence) that some shard holds."""
    ids = (name for table in _tables(folder, ["id"]) for name in table["id"].to_pylist())
    return {name.rpartition(".")[0] for name in ids}


@dataclasses.dataclass(frozen=True, slots=True)
class Sequences:
    """All sequences as flat arrays, in order of their ids: sequence i is `[offset_N1[i], offset_N1[i + 1])`."""

    token_T: np.ndarray  # int32
    is_response_T: np.ndarray  # bool
    offset_N1: np.ndarray  # int64
    looped_N: np.ndarray  # bool
    greedy_N: np.ndarray  # bool
    num_cut_tokens: int

    def __len__(self) -> int:
        return len(self.offset_N1) - 1

    def lengths(self, most: int) -> np.ndarray:
        return np.minimum(np.diff(self.offset_N1), most)


def read_sequences(folder: Path) -> Sequences:
    """Every shard of a folder; 5 bytes a token of memory. Raises ValueError where there is nothing to train on."""
    rows: list[tuple[str, np.ndarray, np.ndarray, bool, bool]] = []
    num_cut = 0
    for table in _tables(folder, SCHEMA.names):
        flat = table["token_ids"].combine_chunks()
        tokens, offsets = flat.values.to_numpy(), flat.offsets.to_numpy()
        spans = zip(table["span_starts"].to_pylist(), table["span_ends"].to_pylist(), strict=True)
        looped, heat = table["looped"].to_pylist(), table["temperature"].to_pylist()
        num_cut += sum(table["num_cut_tokens"].to_pylist())
        for i, (name, (starts, ends)) in enumerate(zip(table["id"].to_pylist(), spans, strict=True)):
            ids = tokens[offsets[i] : offsets[i + 1]]
            rows.append((name, ids, _mask(len(ids), starts, ends), looped[i], heat[i] == 0))
    if not rows:
        raise ValueError(f"{folder}: holds no responses to train on")
    rows.sort(key=lambda row: row[0])  # shards follow the clock, training must not
    return Sequences(
        token_T=np.concatenate([row[1] for row in rows]),
        is_response_T=np.concatenate([row[2] for row in rows]),
        offset_N1=np.concatenate([[0], np.cumsum([len(row[1]) for row in rows])]),
        looped_N=np.array([row[3] for row in rows]),
        greedy_N=np.array([row[4] for row in rows]),
        num_cut_tokens=num_cut,
    )


def _mask(num_tokens: int, starts: list[int], ends: list[int]) -> np.ndarray:
    mask = np.zeros(num_tokens, dtype=bool)
    for start, end in zip(starts, ends, strict=True):
        mask[start:end] = True
    return mask
