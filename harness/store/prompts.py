"""`prompts.parquet`: what each prompt id of a run stands for, once for all its arms and repeats.

Directories of earlier versions have no such file; their workload's sha256 still tells whether other prompts are theirs.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from specbench.harness.store.files import write_parquet
from specbench.workloads.base import Prompt
from specbench.workloads.guarded import read_parquet

FILE = "prompts.parquet"
SCHEMA = pa.schema([("prompt_id", pa.string()), ("token_ids", pa.list_(pa.int32())), ("max_tokens", pa.int32())])


def write_prompts(directory: Path, prompts: Iterable[Prompt], *, has_ids: bool) -> None:
    """Unless they are there: a run that goes on sends the same prompts. `has_ids`: whether a tokenizer made their ids;
    else they are null."""
    if not (directory / FILE).is_file():
        rows = [
            {"prompt_id": p.id, "token_ids": p.token_ids if has_ids else None, "max_tokens": p.max_tokens}
            for p in prompts
        ]
        write_parquet(directory / FILE, pa.Table.from_pylist(rows, schema=SCHEMA))


def read_prompts(directory: Path) -> pa.Table:
    """In the order of submission; empty where none are stored. ValueError for a file of other columns."""
    if not (directory / FILE).is_file():
        return SCHEMA.empty_table()
    table = read_parquet(directory / FILE).replace_schema_metadata(None)
    if table.schema != SCHEMA:
        raise ValueError(f"{directory / FILE}: its columns are {table.schema.names}; allowed: {SCHEMA.names}")
    return table


def copy_prompts(source: Path, target: Path) -> None:
    """From a run to the experiment that it is a part of, unless they are there."""
    if (source / FILE).is_file() and not (target / FILE).is_file():
        write_parquet(target / FILE, read_prompts(source))
