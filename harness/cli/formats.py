"""How a command prints its result: one spelling, `--format`, for all of them."""

from __future__ import annotations

import typer
from typer.models import OptionInfo


def format_option(*allowed: str, default: str = "") -> OptionInfo:
    """typer's option for the formats that a command can print. ValueError for another."""

    def check(value: str | None) -> str | None:
        if value is not None and value not in allowed:
            raise ValueError(f"format: {value!r} is not known; allowed: {', '.join(allowed)}")
        return value

    return typer.Option(
        "--format", "-f", help=", ".join(allowed) + (f". Default: {default}." if default else "."), callback=check
    )
