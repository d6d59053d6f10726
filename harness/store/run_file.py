"""Reads run.json, of any version: checks the digest of its results, and that no path leads out of its directory."""

from __future__ import annotations

from pathlib import Path

from specbench.harness.store.codec import checked_schema, from_document, read_object
from specbench.harness.store.files import Json, sha256_json
from specbench.harness.store.migrate import OLD_RUN_SCHEMA, migrated_run, with_imported_arms, with_later_options
from specbench.harness.store.run_record import RUN_SCHEMA, RunRecord
from specbench.harness.store.safe_paths import check_name, path_inside

DERIVE_AGAIN = "set results to null in run.json, and they are derived from the tables again"


def read_run_record(file: Path) -> RunRecord:
    """ValueError naming file and field for a record that is damaged, has an unknown schema, or whose results were
    changed after they were stored."""
    raw = stored_document(file)
    record = from_document(RunRecord, raw, str(file))
    if record.results is not None and record.results_sha256 not in (None, sha256_json(raw["results"])):
        raise ValueError(f"{file}: results: were changed since they were stored; {DERIVE_AGAIN}")
    if not record.arms:
        raise ValueError(f"{file}: arms: [] is not allowed; allowed: at least one arm; restore it from a copy")
    # These names are used to copy and read the directory, so they must not lead out of it.
    check_name(record.run_id, f"{file}: run_id")
    for name in record.files:
        path_inside(file.parent, name, f"{file}: files")
    return record


def stored_document(file: Path) -> dict[str, Json]:
    """The document as JSON, in the current schema whatever the version of the file. ValueError as above."""
    raw = read_object(file)
    raw = migrated_run(raw, RUN_SCHEMA) if raw.get("schema") == OLD_RUN_SCHEMA else raw
    raw = with_later_options(with_imported_arms(raw))
    return checked_schema(raw, RUN_SCHEMA, file)
