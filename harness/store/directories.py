"""What directories of results have in common: their names, their times, and the JSON file that says what they hold."""

from __future__ import annotations

import json
import secrets
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from specbench.harness.text import slug

SWEEP_KEY = "sweep"  # in the run.json of each point of a sweep


def utc(now: datetime | None = None) -> str:
    """As manifests hold it, to the second; `now`: a time in UTC, by default this one."""
    return (now or datetime.now(timezone.utc)).strftime("%Y-%m-%dT%H:%M:%SZ")


def directory_name(label: str, now: datetime) -> str:
    """`<UTC>-<label>-<8 hex>`, a name of its own each time."""
    return f"{now:%Y%m%dT%H%M%SZ}-{slug(label)}-{secrets.token_hex(4)}"


def read_manifest(file: Path, schema: str) -> dict[str, Any]:
    """The manifest in an existing file; ValueError, with what to do, for one that is damaged or of another schema."""
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{file}: damaged ({error}); restore it from a copy, or measure again") from error
    found = manifest.get("schema") if isinstance(manifest, dict) else None
    if found != schema:
        raise ValueError(f"{file}: schema {found!r}, this version reads {schema!r}; use the specbench that wrote it")
    return dict(manifest)
