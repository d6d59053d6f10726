"""The run directory: raw tables, and `run.json` that says what was run, where and on what.

    runs/<UTC>-<label>-<8 hex>/
      run.json    manifest and results, always rewritten atomically
      parts/      the tables of measured blocks (one arm, one repeat each), until the run is finished
      journal/    the rows of a block that is being measured, or was interrupted
      requests.parquet steps.parquet phases.parquet     all blocks, once the run is finished

How blocks are stored: block_store.py; how a kill keeps the requests that had ended: journal.py.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from specbench.harness.store.block_store import Block, BlockStore
from specbench.harness.store.directories import directory_name, read_manifest, utc
from specbench.harness.store.environment import collect_environment
from specbench.harness.store.files import sha256_file, to_plain, write_json
from specbench.harness.store.journal import OpenBlock, PartialBlock
from specbench.harness.store.safe_paths import check_name, path_inside, refuse_links
from specbench.harness.store.schema import (
    FAILED_ARM_REQUEST_ID,
    RUN_SCHEMA,
    TABLES,
    Frames,
    Rows,
    build_table,
)

PROFILES = "profile"  # `kind` in the manifest of a run directory that holds profiles only
STATUSES = ("running", "complete", "interrupted", "failed")
_REQUIRED = ("argv", "config", "workload", "arms")


class RunDirectory:
    """One run on disk. The process that measures is the only writer."""

    def __init__(self, path: Path, manifest: dict[str, Any]) -> None:
        """Use `create` or `open`."""
        self.path = path
        self.manifest = manifest
        self._store = BlockStore(path)

    @classmethod
    def create(cls, output_dir: str | os.PathLike[str], label: str, manifest: Mapping[str, Any]) -> RunDirectory:
        """Make `<output_dir>/<UTC>-<label>-<8 hex>/` with its first `run.json`, status `running`.

        `manifest` gives `argv` (list of str), `config` (resolved, whole), `workload` (name, rule, source, sha256,
        num_prompts) and `arms` (dicts with `label`, `strategy`, `config`, optional `notes`); `environment` is
        collected when it is not given. Raises ValueError for a missing key or a repeated arm label.
        """
        missing = [key for key in _REQUIRED if key not in manifest]
        if missing:
            raise ValueError(f"manifest: missing {missing}; needed: {list(_REQUIRED)}")
        arms = [{"status": "pending", "error": "", "notes": [], **to_plain(arm)} for arm in manifest["arms"]]
        labels = [arm.get("label") for arm in arms]
        if None in labels or len(set(labels)) < len(labels):
            raise ValueError(f"manifest.arms: every arm needs a label of its own, got {labels}")
        now = datetime.now(timezone.utc)
        run_id = directory_name(label, now)
        environment = dict(manifest.get("environment") or collect_environment())
        git = environment.pop("git", None)
        path = Path(output_dir).expanduser() / run_id
        path.mkdir(parents=True)
        whole = {
            "schema": RUN_SCHEMA,
            "run_id": run_id,
            "label": label,
            "status": "running",
            "argv": list(manifest["argv"]),
            "command": shlex.join(str(word) for word in manifest["argv"]),
            "started_utc": utc(now),
            "ended_utc": None,
            "git": git,
            "environment": environment,
            **{k: v for k, v in manifest.items() if k not in ("argv", "arms", "environment")},
            "arms": arms,
            "resumes": [],
            "results": {},
            "files": {},
        }
        run = cls(path, to_plain(whole))
        run._write_manifest()
        return run

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> RunDirectory:
        """Read an existing run directory; ValueError naming the path and what to do when that is impossible."""
        directory = Path(path).expanduser()
        if directory.name == "run.json":
            directory = directory.parent
        file = directory / "run.json"
        if not file.is_file():
            raise ValueError(f"{directory}: not a run directory (no run.json); give the directory a run printed")
        refuse_links(directory)
        manifest = read_manifest(file, RUN_SCHEMA)
        _check_paths(manifest, file)
        return cls(directory, manifest)

    def resume(self, argv: Iterable[str] | None = None) -> None:
        """Set the status back to `running` and note when and by which command the run goes on."""
        words = [str(word) for word in (sys.argv if argv is None else argv)]
        self.manifest["resumes"].append({"resumed_utc": utc(), "argv": words})
        self.manifest.update(status="running", ended_utc=None)
        self._write_manifest()

    def append(self, arm: str, repeat: int, requests: Rows, steps: Rows = (), phases: Rows = ()) -> None:
        """Store one measured block at once. Columns: `schema.py`; ValueError for rows that do not fit them.

        A block appended again replaces its earlier rows, failed or not.
        """
        self._known(arm)
        given = {"requests": requests, "steps": steps, "phases": phases}
        tables = {name: build_table(name, arm, repeat, rows) for name, rows in given.items()}
        self._store.write(arm, repeat, tables, error=None)
        self._store.drop_journal(arm, repeat)
        self._update_arms()

    def begin_block(self, arm: str, repeat: int, num_requests: int) -> OpenBlock:
        """A block whose rows come one by one and are on disk at once; `finish_block` stores it whole."""
        self._known(arm)
        return self._store.begin(arm, repeat, num_requests)

    def finish_block(self, arm: str, repeat: int, block: OpenBlock) -> None:
        """As `append`, requests in their order."""
        block.journal.close()
        self.append(arm, repeat, sorted(block.requests, key=lambda row: row.request_id), block.steps, block.phases)

    def partial_blocks(self) -> list[PartialBlock]:
        """What is left of blocks that were interrupted or failed; no figure is derived from it."""
        return self._store.partial_blocks()

    def fail_arm(self, arm: str, repeat: int, error: BaseException | str) -> None:
        """Store that this block failed, as one row of `requests` with its error."""
        self._known(arm)
        text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
        row = {
            "request_id": FAILED_ARM_REQUEST_ID,
            "prompt_id": "",
            "num_prompt_tokens": 0,
            "num_output_tokens": 0,
            "finish_reason": "error",
            "error": text or "unknown error",
            "t_submit_ns": 0,
            "t_first_ns": 0,
            "t_last_ns": 0,
            "t_first_device_ns": 0,
            "t_last_device_ns": 0,
            "output_token_ids": [],
        }
        tables = {name: build_table(name, arm, repeat, [row] if name == "requests" else []) for name in TABLES}
        self._store.write(arm, repeat, tables, error=text or "unknown error")
        self._update_arms()

    def describe_arm(
        self,
        arm: str,
        *,
        config: Mapping[str, Any] | None = None,
        notes: Iterable[str] | None = None,
        engine: object = None,
    ) -> None:
        """Record what resolved only when the arm was built: its configuration, notes such as a downgrade, and what its
        engine says of itself."""
        entry = self._known(arm)
        if engine is not None:
            entry["engine"] = to_plain(engine)
        if config is not None:
            entry["config"] = to_plain(config)
        entry["notes"] += [note for note in notes or () if note not in entry["notes"]]
        self._write_manifest()

    def note(self, **values: Any) -> None:
        """Record in `run.json`, beside what it holds, what became known or changed after its creation."""
        self.manifest.update(to_plain(values))
        self._write_manifest()

    def end_without_tables(self, status: str) -> None:
        """Close a run of profiles, which never supplies figures of speed."""
        self.note(status=status, ended_utc=utc())

    def check_has_tables(self) -> None:
        """ValueError for a run of profiles, before anything reads it as measured or begins to measure in it."""
        if self.manifest.get("kind") == PROFILES:
            raise ValueError(f"{self.path}: holds profiles and no figures; see them with specbench profile show")

    def done_blocks(self) -> set[Block]:
        """Blocks that were measured; failed ones are not among them, so that a resumed run tries them again."""
        return {block for block, error in self._store.blocks().items() if error is None}

    def failed_blocks(self) -> dict[Block, str]:
        """Blocks that failed, with their errors."""
        return {block: error for block, error in self._store.blocks().items() if error is not None}

    def frames(self) -> Frames:
        """All rows so far, from parts and consolidated tables alike."""
        frames = {name: table.to_pandas() for name, table in self._store.tables().items()}
        return Frames(**frames, arms=tuple(self.manifest["arms"]), partial=tuple(self._store.partial_blocks()))

    def columns(self) -> dict[str, dict[str, list[Any]]]:
        """All rows so far by table and column, for `append` to another directory; None where a value is not known."""
        return {
            name: {c: table[c].to_pylist() for c in table.column_names if c not in ("arm", "repeat")}
            for name, table in self._store.tables().items()
        }

    def finish(self, results: Mapping[str, Any], status: str | None = None) -> None:
        """Consolidate the parts, store `results` and the hashes of the files, and close the run.

        `status` is by default `failed` when no block was measured and `complete` otherwise.
        """
        status = status or ("complete" if self.done_blocks() else "failed")
        if status not in STATUSES[1:]:
            raise ValueError(f"status: {status!r} not allowed; allowed: {list(STATUSES[1:])}")
        files = {name: {"sha256": sha256_file(self.path / name)} for name in self._store.consolidate()}
        self.manifest.update(status=status, ended_utc=utc(), results=to_plain(results), files=files)
        self._write_manifest()
        self._store.drop_parts()

    def _known(self, arm: str) -> dict[str, Any]:
        for entry in self.manifest["arms"]:
            if entry["label"] == arm:
                return entry
        labels = [entry["label"] for entry in self.manifest["arms"]]
        raise ValueError(f"arm: {arm!r} is not an arm of this run; allowed: {labels}")

    def _write_manifest(self) -> None:
        write_json(self.path / "run.json", self.manifest)

    def _update_arms(self) -> None:
        blocks = self._store.blocks()
        for entry in self.manifest["arms"]:
            errors = [error for (arm, _), error in blocks.items() if arm == entry["label"]]
            failures = [error for error in errors if error is not None]
            entry["status"] = _arm_status(len(errors), len(failures))
            entry["error"] = failures[-1] if failures else ""
        self._write_manifest()


def _check_paths(manifest: Mapping[str, Any], file: Path) -> None:
    """ValueError for what leads out of the directory of `file`: others copy it by these names and read them."""
    if "run_id" in manifest:
        check_name(manifest["run_id"], f"{file}: run_id")
    files = manifest.get("files") or {}
    if not isinstance(files, Mapping):
        raise ValueError(f"{file}: files: {files!r} is not allowed; allowed: an object with a sha256 for each file")
    for name in files:
        path_inside(file.parent, name, f"{file}: files")


def _arm_status(num_blocks: int, num_failed: int) -> str:
    if num_blocks == 0:
        return "pending"
    if num_failed == 0:
        return "ok"
    return "failed" if num_failed == num_blocks else "partial"
