"""What directories of results have in common: their names and their times."""

from __future__ import annotations

import secrets
from datetime import datetime, timezone

from specbench.harness.text import slug


def utc(now: datetime | None = None) -> str:
    """As records hold it, to the second; `now`: a time in UTC, by default this one."""
    return (now or datetime.now(timezone.utc)).strftime("%Y-%m-%dT%H:%M:%SZ")


def directory_name(label: str, now: datetime) -> str:
    """`<UTC>-<label>-<8 hex>`, a name of its own each time."""
    return f"{now:%Y%m%dT%H%M%SZ}-{slug(label)}-{secrets.token_hex(4)}"
