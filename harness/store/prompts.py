"""`prompts.parquet`: the prompt behind each prompt id of a run, stored once for all arms and repeats.

Directories of earlier versions have no such file, or one without categories; their workload's sha256 still shows
whether prompts are the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from specbench.harness.store.files import write_parquet
from specbench.workloads.base import Prompt
from specbench.workloads.guarded import read_parquet

FILE = "prompts.parquet"
_CATEGORY = pa.field("category", pa.string())  # empty: none
_BEFORE = pa.schema([("prompt_id", pa.string()), ("token_ids", pa.list_(pa.int32())), ("max_tokens", pa.int32())])
SCHEMA = _BEFORE.append(_CATEGORY)


def write_prompts(directory: Path, prompts: Iterable[Prompt], *, has_ids: bool) -> None:
    """Writes the prompts unless they exist: a resumed run sends the same prompts. `has_ids`: whether a tokenizer made
    their ids; otherwise they are null."""
    if not (directory / FILE).is_file():
        rows = [
            {
                "prompt_id": p.id,
                "token_ids": p.token_ids if has_ids else None,
                "max_tokens": p.max_tokens,
                "category": p.category,
            }
            for p in prompts
        ]
        write_parquet(directory / FILE, pa.Table.from_pylist(rows, schema=SCHEMA))


def read_prompts(directory: Path) -> pa.Table:
    """The prompts in the order of submission; empty if none are stored. ValueError for a file with other columns."""
    if not (directory / FILE).is_file():
        return SCHEMA.empty_table()
    table = read_parquet(directory / FILE).replace_schema_metadata(None)
    if table.schema == _BEFORE:
        table = table.append_column(_CATEGORY, pa.array([""] * len(table), pa.string()))
    if table.schema != SCHEMA:
        raise ValueError(f"{directory / FILE}: its columns are {table.schema.names}; allowed: {SCHEMA.names}")
    return table


def check_prompts(directory: Path) -> None:
    """ValueError as for `read_prompts`, and how a run goes on without them."""
    try:
        read_prompts(directory)
    except ValueError as error:
        raise ValueError(
            f"{error}; restore it from a copy, or remove it and resume the run, which then writes it again"
        ) from error


def read_categories(directory: Path) -> dict[str, str]:
    """The category of each prompt that has one, by prompt id. ValueError as for `read_prompts`."""
    table = read_prompts(directory)
    pairs = zip(table["prompt_id"].to_pylist(), table["category"].to_pylist(), strict=True)
    return {prompt_id: category for prompt_id, category in pairs if category}


def copy_prompts(source: Path, target: Path) -> None:
    """Copies the prompts of a run to the experiment that it is part of, unless they exist."""
    if (source / FILE).is_file() and not (target / FILE).is_file():
        write_parquet(target / FILE, read_prompts(source))
