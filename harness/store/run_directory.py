"""The run directory: raw tables, and `run.json` with the configuration, environment and results.

    runs/<UTC>-<label>-<8 hex>/
      run.json    the run record, results included; always rewritten atomically
      parts/      the tables of measured blocks (one arm, one repeat each), until the run is finished
      journal/    the rows of blocks that are being measured or were interrupted
      requests.parquet steps.parquet phases.parquet counters.parquet   all blocks, once the run is finished
      logprobs.parquet  if the run stores log-probabilities
      prompts.parquet   the token ids and the category of every prompt

How blocks are stored: block_store.py; how finished requests survive a kill: journal.py.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import ClassVar

from specbench.harness.spec.arm import ArmSetup
from specbench.harness.spec.conditions import RunConfig
from specbench.harness.store import prompts
from specbench.harness.store.arm_record import ArmRecord, EngineFacts, Fact
from specbench.harness.store.block_records import read_records
from specbench.harness.store.block_store import Block, BlockStore
from specbench.harness.store.codec import check_known, to_document
from specbench.harness.store.directories import RecordDirectory, directory_name, utc
from specbench.harness.store.environment import Environment, collect_environment, git_state
from specbench.harness.store.files import sha256_json
from specbench.harness.store.journal import OpenBlock, PartialBlock
from specbench.harness.store.masking import from_home, masked, plain_text
from specbench.harness.store.results import Results
from specbench.harness.store.row_checks import check_arms
from specbench.harness.store.run_file import read_run_record, stored_document
from specbench.harness.store.run_record import STATUSES, RunRecord
from specbench.harness.store.schema import FAILED_ARM_REQUEST_ID, TABLES, Frames, Rows, Value, build_table
from specbench.workloads.assets.cache import read_sha256

FILE = "run.json"


class RunDirectory(RecordDirectory[RunRecord]):
    """One run on disk."""

    FILE: ClassVar[str] = FILE

    def __init__(self, path: Path, record: RunRecord) -> None:
        super().__init__(path, record)
        self._store = BlockStore(path, record.files)

    @classmethod
    def create(cls, output_dir: str | os.PathLike[str], label: str, begun: RunRecord) -> RunDirectory:
        """Make `<output_dir>/<UTC>-<label>-<8 hex>/` with its first `run.json`.

        `begun`: what is known; its id, command, start and status are filled in, as are the environment and the code's
        commit if missing. Command and label are masked where they look secret. Raises ValueError for a repeated arm
        label.
        """
        labels = [arm.label for arm in begun.arms]
        if len(set(labels)) < len(labels):
            raise ValueError(f"arms: every arm needs a unique label, got {labels}")
        now, argv, label = datetime.now(timezone.utc), masked(begun.argv), plain_text(label)
        is_new = begun.environment == Environment() and not begun.is_imported
        run_id = directory_name(label, now)
        path = Path(output_dir).expanduser() / run_id
        path.mkdir(parents=True)
        run = cls(path, begun)
        run.put(
            replace(
                begun,
                run_id=run_id,
                label=label,
                argv=argv,
                command=shlex.join(argv),
                started_utc=begun.started_utc or utc(now),
                environment=collect_environment() if is_new else begun.environment,
                git=git_state() if is_new else begun.git,
            )
        )
        return run

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> RunDirectory:
        """Read an existing run directory; ValueError naming the path and what to do if that is impossible."""
        file = cls.find(path, "a run directory", "a run")
        return cls(file.parent, read_run_record(file))

    def put(self, record: RunRecord) -> None:
        results = record.results
        sha256 = None if results is None else sha256_json(to_document(results))
        super().put(replace(from_home(replace(record, results=None)), results=results, results_sha256=sha256))

    def resume(self, argv: Iterable[str] | None = None) -> None:
        """Set the status back to `running` and record when and by which command the run was resumed."""
        self._store.remove_leftovers()
        super().resume(sys.argv if argv is None else argv)

    def append(
        self,
        arm: str,
        repeat: int,
        requests: Rows,
        steps: Rows = (),
        phases: Rows = (),
        counters: Rows = (),
        logprobs: Rows = (),
    ) -> None:
        """Store one measured block, in place of its earlier rows. Columns: `schema.py`; ValueError for unfit rows."""
        self._record.arm(arm)
        given = {"requests": requests, "steps": steps, "phases": phases, "counters": counters, "logprobs": logprobs}
        tables = {name: build_table(name, arm, repeat, rows) for name, rows in given.items()}
        self._store.write(arm, repeat, tables, error=None)
        self._store.drop_journal(arm, repeat)
        self._update_arms()

    def config_to_go_on(self) -> RunConfig:
        """The configuration to resume a stored run. ValueError if it has none, or options that are unknown here."""
        file = self.path / FILE
        check_known(RunConfig, stored_document(file).get("config"), f"{file}: config")
        return self._record.measured_config

    def begin_block(self, arm: str, repeat: int, num_requests: int) -> OpenBlock:
        """Begin a block whose rows are written as they arrive; `finish_block` stores it as a whole."""
        self._record.arm(arm)
        return self._store.begin(arm, repeat, num_requests)

    def finish_block(self, arm: str, repeat: int, block: OpenBlock) -> None:
        """Like `append`, with the requests in order."""
        block.close()
        requests = sorted(block.requests, key=lambda row: row.request_id)
        self.append(arm, repeat, requests, block.steps, block.phases, block.counters, block.logprobs)

    def partial_blocks(self) -> list[PartialBlock]:
        """What remains of blocks that were interrupted or failed; no figure is derived from it."""
        return self._store.partial_blocks()

    def fail_blocks(self, blocks: Iterable[Block], error: BaseException | str) -> None:
        """Store that these blocks failed, each as one row of `requests` with the error."""
        text = (error if isinstance(error, str) else f"{type(error).__name__}: {error}") or "unknown error"
        times = ("t_submit_ns", "t_first_ns", "t_last_ns", "t_first_device_ns", "t_last_device_ns")
        row: dict[str, Value] = {
            "request_id": FAILED_ARM_REQUEST_ID,
            "prompt_id": "",
            "finish_reason": "error",
            "error": text,
            **dict.fromkeys(("num_prompt_tokens", "num_output_tokens", *times), 0),
            "output_token_ids": [],
        }
        for arm, repeat in blocks:
            self._record.arm(arm)
            tables = {name: build_table(name, arm, repeat, [row] if name == "requests" else []) for name in TABLES}
            self._store.write(arm, repeat, tables, error=text)
        self._update_arms()

    def describe_arm(
        self,
        label: str,
        *,
        config: ArmSetup | None = None,
        notes: Iterable[str] = (),
        warmup: str | None = None,
        engine: EngineFacts | None = None,
        unknown: Mapping[Fact, str] | None = None,
    ) -> None:
        """Record what is known only once the arm is built: its configuration, notes such as a downgrade, its warm-up,
        and facts about its engine. Omitted arguments keep their old value."""
        arm = self._record.arm(label)
        self.put_arm(
            replace(
                arm,
                config=config or arm.config,
                notes=tuple(dict.fromkeys((*arm.notes, *notes))),
                warmup=warmup or arm.warmup,
                engine=engine or arm.engine,
                unknown=arm.unknown if unknown is None else unknown,
            )
        )

    def put_arm(self, changed: ArmRecord) -> None:
        """Replaces the arm with that label."""
        arms = tuple(changed if arm.label == changed.label else arm for arm in self._record.arms)
        self.put(replace(self._record, arms=arms))

    def end_without_tables(self, status: str) -> None:
        """Close a run of profiles, which never provides speed figures."""
        self.put(replace(self._record, status=status, ended_utc=utc()))

    def check_has_tables(self) -> None:
        """ValueError for a run of profiles, which must not be read as measured or be measured into."""
        if self._record.profile is not None:
            show = f"specbench profile show {self.path}"
            raise ValueError(f"{self.path}: contains profiles and no figures; show them with: {show}")

    def check_tables(self) -> None:
        """ValueError for a missing or damaged table, so that a resumed run is refused before it measures."""
        self._store.tables()
        prompts.check_prompts(self.path)

    def done_blocks(self) -> set[Block]:
        """Blocks that were measured, without failed ones, so that a resumed run tries these again."""
        return {block for block, error in self._store.blocks().items() if error is None}

    def failed_blocks(self) -> dict[Block, str]:
        """Blocks that failed, with their errors."""
        return {block: error for block, error in self._store.blocks().items() if error is not None}

    def frames(self) -> Frames:
        """All rows so far, from parts and consolidated tables alike."""
        record, sampling, tables = self._record, self._record.sampling, self._store.tables()
        check_arms(tables, record.arms, self.path)
        frames = {name: table.to_pandas() for name, table in tables.items()}
        return Frames(
            **frames,
            arms=record.arms,
            partial=tuple(self._store.partial_blocks()),
            seen=read_records(self.path),
            temperature=sampling.temperature if sampling else None,
            categories=prompts.read_categories(self.path),
        )

    def columns(self, arm: str, repeat: int) -> dict[str, Mapping[str, Sequence[Value]]]:
        """The rows of a block by table and column, for `append` to another directory; None for unknown values."""
        return {
            name: {c: table[c].to_pylist() for c in table.column_names if c not in ("arm", "repeat")}
            for name, table in self._store.tables_of(arm, repeat).items()
        }

    def finish(self, results: Results | None, status: str | None = None) -> None:
        """Consolidate the parts, store `results` and the hashes of the files, and close the run. `status` is by default
        `failed` when no block was measured and `complete` otherwise."""
        status = status or ("complete" if self.done_blocks() else "failed")
        if status not in STATUSES[1:]:
            raise ValueError(f"status: {status!r} not allowed; allowed: {list(STATUSES[1:])}")
        names = [*self._store.consolidate(), *([prompts.FILE] if (self.path / prompts.FILE).is_file() else [])]
        files = {name: read_sha256(self.path / name) for name in names}
        self.put(replace(self._record, status=status, ended_utc=utc(), results=results, files=files))
        self._store.drop_parts()

    def _update_arms(self) -> None:
        blocks = self._store.blocks()
        arms = []
        for arm in self._record.arms:
            errors = [error for (label, _), error in blocks.items() if label == arm.label]
            failures = [error for error in errors if error is not None]
            status = _arm_status(len(errors), len(failures))
            arms.append(replace(arm, status=status, error=failures[-1] if failures else ""))
        self.put(replace(self._record, arms=tuple(arms)))


def _arm_status(num_blocks: int, num_failed: int) -> str:
    if num_blocks == 0:
        return "pending"
    if num_failed == 0:
        return "ok"
    return "failed" if num_failed == num_blocks else "partial"
