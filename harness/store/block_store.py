"""Raw tables on disk, block by block. What a block had measured before a kill: journal.py.

    parts/{requests,steps,phases,counters}-<arm>-<n>.parquet      a set per measured block, until they are consolidated
    requests.parquet steps.parquet phases.parquet counters.parquet   all blocks
    logprobs.parquet and its parts                    if the run stores log-probabilities
    journal/<arm>-<n>.jsonl                           blocks without an end

A block (one arm, one repeat) is committed by its requests part, which is written last. An existing part supersedes
the same block of the consolidated tables. Without requests, no other rows count: a run
resumed after a file of requests was removed measures its blocks again.
"""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from specbench.harness.store.files import remove_leftovers, write_parquet
from specbench.harness.store.journal import OpenBlock, PartialBlock, read_journal
from specbench.harness.store.row_checks import check_rows
from specbench.harness.store.schema import FAILED_ARM_REQUEST_ID, TABLES, arrow_schema
from specbench.harness.text import distinct_slug
from specbench.workloads.guarded import read_parquet, read_parquet_schema

Block = tuple[str, int]
_REQUESTS_LAST = ("logprobs", "counters", "steps", "phases", "requests")
_OPTIONAL = frozenset({"logprobs"})
_MAY_LACK = _OPTIONAL | {"counters"}  # older blocks have no counters


class BlockStore:
    """The tables of one run directory. `recorded`: the files that its record lists, which are the tables it must have.
    If it lists none: all but those that older runs lack. A ValueError names a damaged or missing file, and what to
    do."""

    def __init__(self, path: Path, recorded: Collection[str] = ()) -> None:
        self._path, self._recorded = path, recorded
        self._parts = path / "parts"
        self._journals = path / "journal"
        self._read: dict[str, pa.Table] = {}  # all rows, once read

    def write(self, arm: str, repeat: int, tables: Mapping[str, pa.Table], error: str | None) -> None:
        """Stores one block as parts; `error`: why it failed."""
        self._parts.mkdir(exist_ok=True)
        self._read = {}
        tag = json.dumps({"arm": arm, "repeat": repeat, "error": error})
        for name in _REQUESTS_LAST:
            _write(name, self._part(name, arm, repeat), tables[name].replace_schema_metadata({"specbench.block": tag}))

    def remove_leftovers(self) -> None:
        """Removes what a kill left between the writing of a part and its rename."""
        if self._parts.is_dir():
            remove_leftovers(self._parts)

    def begin(self, arm: str, repeat: int, num_requests: int) -> OpenBlock:
        """Begins a block whose rows arrive one by one."""
        return OpenBlock(self._journal(arm, repeat), arm, repeat, num_requests)

    def drop_journal(self, arm: str, repeat: int) -> None:
        """Removes what an earlier attempt at a block left, once the block is complete."""
        self._journal(arm, repeat).unlink(missing_ok=True)
        if self._journals.is_dir() and not any(self._journals.iterdir()):
            self._journals.rmdir()

    def partial_blocks(self) -> list[PartialBlock]:
        """Blocks of which only some requests ended."""
        found = (read_journal(path) for path in sorted(self._journals.glob("*.jsonl")))
        whole = {block for block, error in self.blocks().items() if error is None}
        return [block for block in found if block and block.requests and (block.arm, block.repeat) not in whole]

    def blocks(self) -> dict[Block, str | None]:
        """The error, or None, of every stored block."""
        return self._whole_blocks() | self._part_blocks()

    def _whole_blocks(self) -> dict[Block, str | None]:
        blocks: dict[Block, str | None] = {}
        path = self._whole("requests")
        if path.exists():
            table = self._read["requests"] if self._read else _table_of("requests", path, path)
            table = table.select(["arm", "repeat", "request_id", "error"])
            for row in table.group_by(["arm", "repeat", "request_id"]).aggregate([("error", "max")]).to_pylist():
                failed = row["request_id"] == FAILED_ARM_REQUEST_ID
                blocks[row["arm"], row["repeat"]] = row["error_max"] if failed else None
        return blocks

    def tables(self) -> dict[str, pa.Table]:
        """All rows so far, from parts and consolidated tables alike. ValueError: see row_checks.py."""
        if not self._read:
            parts = sorted(self._part_blocks())
            tables = {name: self._table(name, parts) for name in TABLES}
            check_rows(tables, self._path)
            self._read = tables
        return self._read

    def tables_of(self, arm: str, repeat: int) -> dict[str, pa.Table]:
        """The rows of one block."""
        return {name: table.filter(_is_of(table, arm, repeat)) for name, table in self.tables().items()}

    def consolidate(self) -> list[str]:
        """Writes the tables of all blocks; returns the names of the files. The parts are kept until `drop_parts`."""
        files = {name: self._whole(name) for name in TABLES}
        for name, table in self.tables().items():
            _write(name, files[name], table)
        return [path.name for path in files.values() if path.exists()]

    def drop_parts(self) -> None:
        """Renames first: a kill in the middle of the deletion must not leave a block without its steps."""
        if self._parts.exists():
            trash = self._path / f".parts-{secrets.token_hex(4)}"
            self._parts.rename(trash)
            shutil.rmtree(trash)

    def _whole(self, name: str) -> Path:
        return self._path / f"{name}.parquet"

    def _part(self, name: str, arm: str, repeat: int) -> Path:
        return self._parts / f"{name}-{_file_name(arm, repeat)}.parquet"

    def _journal(self, arm: str, repeat: int) -> Path:
        return self._journals / f"{_file_name(arm, repeat)}.jsonl"

    def _part_blocks(self) -> dict[Block, str | None]:
        blocks: dict[Block, str | None] = {}
        for path in sorted(self._parts.glob("requests-*.parquet")):
            tag = _tag(path)
            blocks[tag.arm, tag.repeat] = tag.error
        return blocks

    def _table(self, name: str, parts: list[Block]) -> pa.Table:
        tables = [arrow_schema(name).empty_table()]
        path, requests = self._whole(name), self._whole("requests")
        if requests.exists() and (path.exists() or self._is_needed(name, parts)):
            whole = _table_of(name, path, requests)
            for arm, repeat in parts:
                whole = whole.filter(pc.invert(_is_of(whole, arm, repeat)))
            tables.append(whole)
        for arm, repeat in parts:
            path = self._part(name, arm, repeat)
            if name not in _MAY_LACK or path.exists():
                tables.append(_table_of(name, path, self._part("requests", arm, repeat)))
        return pa.concat_tables([table.replace_schema_metadata(None) for table in tables])

    def _is_needed(self, name: str, parts: list[Block]) -> bool:
        """A kill while tables are consolidated leaves requests without other tables, and parts of all these blocks."""
        is_listed = self._whole(name).name in self._recorded if self._recorded else name not in _MAY_LACK
        return is_listed and bool(self._whole_blocks().keys() - set(parts))


def _is_of(table: pa.Table, arm: str, repeat: int) -> pa.ChunkedArray:
    return pc.and_(pc.equal(table["arm"], arm), pc.equal(table["repeat"], repeat))


def _write(name: str, path: Path, table: pa.Table) -> None:
    if name in _OPTIONAL and not len(table):
        path.unlink(missing_ok=True)
    else:
        write_parquet(path, table)


def _as_now(name: str, table: pa.Table, path: Path) -> pa.Table:
    """Adds the columns that files of earlier versions lack. ValueError for any other missing or additional column: what
    an engine does not know is null in its column; the column itself is never missing."""
    types = {column.name: column.type for column in TABLES[name]}
    stored = {field.name: field.type for field in table.schema}
    wrong = [f"no column {c.name}" for c in TABLES[name] if not c.is_newer and c.name not in stored]
    wrong += [f"a column {c} of {kind}" for c, kind in stored.items() if types.get(c) != kind]
    if wrong:
        raise ValueError(f"{path}: has {', '.join(wrong)}; restore it, or use the specbench that wrote it")
    for column in TABLES[name]:
        if column.name not in stored:
            table = table.append_column(arrow_schema(name).field(column.name), pa.nulls(len(table), column.type))
    return table.select(list(types))


def _file_name(arm: str, repeat: int) -> str:
    """A file name for any label."""
    return f"{distinct_slug(arm)}-{repeat}"


@dataclass(frozen=True, slots=True)
class _Tag:
    """The block that a part belongs to, and why it failed. `repeat` becomes part of a path."""

    arm: str
    repeat: int
    error: str | None


def _tag(path: Path) -> _Tag:
    with _advising(path, path):
        raw = (read_parquet_schema(path).metadata or {}).get(b"specbench.block", b"")
    try:
        tag = msgspec.json.decode(raw, type=dict[str, Any])
        if not isinstance(tag.get("repeat"), int):
            raise ValueError(f"{path}: its repeat is {tag.get('repeat')!r}; allowed: a whole number")
        return msgspec.convert(tag, _Tag)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(
            f"{path}: does not say which block it belongs to ({error}); remove the file and resume"
        ) from error


def _table_of(name: str, path: Path, requests: Path) -> pa.Table:
    with _advising(path, requests):
        table = read_parquet(path)
    return _as_now(name, table, path)


@contextmanager
def _advising(path: Path, requests: Path) -> Iterator[None]:
    """Adds to an error of reading `path` what to do. `requests`: the file that commits its blocks."""
    removed = "it" if path == requests else str(requests)
    advice = f"restore it from a copy, or remove {removed} and resume the run, which then measures its blocks again"
    try:
        yield
    except FileNotFoundError as error:
        raise ValueError(f"{path}: missing; {advice}") from error
    except ValueError as error:
        raise ValueError(f"{path}: damaged ({str(error).removeprefix(f'{path}: ')}); {advice}") from error
