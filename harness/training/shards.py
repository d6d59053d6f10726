"""Responses on disk: parquet shards, written atomically, read back as flat arrays."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as arrow
import pyarrow.dataset

from specbench.harness.store.files import write_parquet
from specbench.workloads.json_values import JsonObject

from .dialogue import ResponseSequence

_SCHEMA = arrow.schema(
    {
        "id": arrow.string(),
        "temperature": arrow.float32(),
        "token_ids": arrow.list_(arrow.int32()),
        "span_starts": arrow.list_(arrow.int32()),
        "span_ends": arrow.list_(arrow.int32()),
        "looped": arrow.bool_(),
        "num_cut_tokens": arrow.int32(),
    }
)


def shard_paths(folder: Path) -> list[Path]:
    return sorted(folder.glob("responses-*.parquet"))


def write_shard(folder: Path, rows: Sequence[ResponseSequence]) -> None:
    """Writes another shard of `folder`."""
    columns = {name: [getattr(row, name) for row in rows] for name in _SCHEMA.names}
    name = f"responses-{len(shard_paths(folder)):05d}.parquet"
    write_parquet(folder / name, arrow.Table.from_pydict(columns, schema=_SCHEMA))


def finished_samples(folder: Path) -> set[str]:
    """Ids of the samples (without the number of the sequence) in the shards."""
    ids = _read(folder, ["id"])["id"].to_pylist()
    return {name.rpartition(".")[0] for name in ids}


def _read(folder: Path, columns: list[str]) -> arrow.Table:
    return arrow.dataset.dataset(shard_paths(folder), schema=_SCHEMA, format="parquet").to_table(columns=columns)


@dataclasses.dataclass(frozen=True, slots=True)
class Sequences:
    """All sequences as flat arrays, ordered by id: sequence i is `[offset_N1[i], offset_N1[i + 1])`."""

    token_T: np.ndarray  # int32
    is_response_T: np.ndarray  # bool
    offset_N1: np.ndarray  # int64
    looped_N: np.ndarray  # bool
    greedy_N: np.ndarray  # bool
    num_cut_tokens: int

    def __len__(self) -> int:
        return len(self.offset_N1) - 1

    def lengths(self, max_tokens: int) -> np.ndarray:
        return np.minimum(np.diff(self.offset_N1), max_tokens)

    def summary(self) -> JsonObject:
        """The responses' entry in training.json."""
        return {
            "num_sequences": len(self),
            "num_tokens": len(self.token_T),
            "num_response_tokens": int(self.is_response_T.sum()),
            "looped_share": float(self.looped_N.mean()),
            "greedy_share": float(self.greedy_N.mean()),
            "num_cut_tokens": self.num_cut_tokens,
        }


def read_sequences(folder: Path) -> Sequences:
    """Every shard of a folder. Raises ValueError if there is nothing to train on."""
    # Shards are in order of time, which training must not depend on.
    rows = _read(folder, _SCHEMA.names).to_pandas().sort_values("id", kind="stable")
    if rows.empty:
        raise ValueError(f"{folder}: has no responses to train on")
    offset_N1 = np.concatenate([[0], np.cumsum(rows["token_ids"].map(len))])
    is_response_T = np.zeros(offset_N1[-1], dtype=bool)
    for offset, starts, ends in zip(offset_N1, rows["span_starts"], rows["span_ends"], strict=False):
        for start, end in zip(starts, ends, strict=True):
            is_response_T[offset + start : offset + end] = True
    return Sequences(
        token_T=np.concatenate(rows["token_ids"].to_list()),
        is_response_T=is_response_T,
        offset_N1=offset_N1,
        looped_N=rows["looped"].to_numpy(),
        greedy_N=rows["temperature"].to_numpy() == 0,
        num_cut_tokens=int(rows["num_cut_tokens"].sum()),
    )
