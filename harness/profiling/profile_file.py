"""`profile.json`: the record of an analysed trace, written and read."""

from __future__ import annotations

import json
from pathlib import Path

from specbench.harness.profiling.record import SCHEMA, Profile
from specbench.harness.store.codec import (
    check_nothing_lost,
    checked_schema,
    from_document,
    read_object,
    to_document,
    write_document,
)

FILE = "profile.json"
FAILURE = "failure.json"  # in its place: the arm could not be traced


def to_json(profile: Profile) -> str:
    return json.dumps(to_document(profile), indent=1)


def write_profile(profile: Profile, directory: Path) -> Path:
    path = directory / FILE
    write_document(path, profile)
    return path


def read_profile(path: Path) -> Profile:
    """From a file, or the folder that contains it. ValueError for a file that is not a profile of this version, or has
    unknown fields."""
    file = path / FILE if path.is_dir() else path
    raw = checked_schema(read_object(file), SCHEMA, file)
    profile = from_document(Profile, raw, str(file))
    check_nothing_lost(raw, profile, str(file))
    return profile
