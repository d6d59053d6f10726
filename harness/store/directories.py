"""Shared by all result directories: their names and times, and the record in each."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from specbench.harness.store.codec import write_document
from specbench.harness.store.files import remove_leftovers
from specbench.harness.store.lock_file import actual_status
from specbench.harness.store.masking import masked
from specbench.harness.store.run_record import Resume, RunRecord, SweepRecord
from specbench.harness.store.safe_paths import refuse_links
from specbench.harness.text import slug

AnyRecord = TypeVar("AnyRecord", RunRecord, SweepRecord)


class RecordDirectory(Generic[AnyRecord]):
    """A directory and its record. The process that measures is the only writer. Made by `create` or `open`."""

    FILE: ClassVar[str]

    def __init__(self, path: Path, record: AnyRecord) -> None:
        self.path = path
        self._record: AnyRecord = record

    @property
    def record(self) -> AnyRecord:
        return self._record

    @property
    def status(self) -> str:
        return actual_status(self.path, self._record.status)

    @classmethod
    def find(cls, path: str | os.PathLike[str], what: str, maker: str) -> Path:
        """The file of the record, from the path of the file or its directory; ValueError with what to do if there is
        none."""
        directory = Path(path).expanduser()
        directory = directory.parent if directory.name == cls.FILE else directory
        if not (directory / cls.FILE).is_file():
            raise ValueError(f"{directory}: not {what} (no {cls.FILE}); give the directory {maker} printed")
        refuse_links(directory)
        return directory / cls.FILE

    def put(self, record: AnyRecord) -> None:
        """Replaces the record, in memory and on disk."""
        self._record = record
        write_document(self.path / self.FILE, record)

    def resume(self, argv: Iterable[str]) -> None:
        """Sets the status back to `running` and records when and by which command it was resumed. The caller must be
        the only writer."""
        remove_leftovers(self.path)
        resumes = (*self._record.resumes, Resume(resumed_utc=utc(), argv=masked(tuple(argv))))
        self.put(replace(self._record, resumes=resumes, status="running", ended_utc=None))


def utc(now: datetime | None = None) -> str:
    """The time in the format of records, to the second; `now`: a time in UTC, by default the current one."""
    return (now or datetime.now(timezone.utc)).strftime("%Y-%m-%dT%H:%M:%SZ")


def directory_name(label: str, now: datetime) -> str:
    """`<UTC>-<label>-<8 hex>`, unique for every call."""
    return f"{now:%Y%m%dT%H%M%SZ}-{slug(label)}-{secrets.token_hex(4)}"
