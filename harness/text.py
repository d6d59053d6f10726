"""Small helpers that format and parse text."""

from __future__ import annotations

import difflib
import hashlib
import math
import re
from collections.abc import Collection
from typing import TypeGuard

_LONGEST_LABEL = 50  # leaves room for what a sweep appends


def nearest(name: str, known: Collection[str], cutoff: float = 0.6) -> str:
    """` (did you mean 'eagle'?)` where a known name is close, else nothing."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=cutoff)
    return f" (did you mean {near[0]!r}?)" if near else ""


def slug(text: str, default: str = "run", longest: int = 60) -> str:
    """`text` as a word in a file's name."""
    return re.sub(r"[^A-Za-z0-9._=-]+", "-", text).strip("-.")[:longest] or default


def distinct_slug(text: str, default: str = "run") -> str:
    """The same, different for texts that differ only in special characters."""
    return f"{slug(text, default)}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def check_label(text: str) -> None:
    """ValueError for a --label that the name of a directory could not carry as it is."""
    if text != slug(text, longest=_LONGEST_LABEL):
        raise ValueError(
            f"label: {text!r} is not allowed; allowed: 1 to {_LONGEST_LABEL} characters of a-z, A-Z, 0-9 and . _ = -, "
            "without . or - at an end, as my-change"
        )


def is_number(value: object) -> TypeGuard[float]:
    """Of a JSON or TOML value: a finite number, not a truth value."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def parse_percent(name: str, text: str) -> float:
    """`1%` or `0.01`; ValueError for a bare number of 1 or more, which could mean either."""
    number = text.strip().removesuffix("%")
    try:
        value = float(number) / 100 if text.strip().endswith("%") else float(number)
    except ValueError:
        value = -1.0
    if not text.strip().endswith("%") and value >= 1:
        value = -1.0
    if not value >= 0:  # NaN is refused too
        raise ValueError(f"{name}: {text!r} is not allowed; give a percentage, as 1% or 0.5%")
    return value


def parse_share(name: str, text: str) -> float:
    """A percentage of a whole; ValueError for more than 100%."""
    value = parse_percent(name, text)
    if value > 1:
        raise ValueError(f"{name}: {text!r} is not allowed; allowed: 0% to 100%")
    return value


def parse_effect(text: str) -> float:
    """--min-effect: the smallest change that matters, above 0% and below 100%."""
    value = parse_percent("min_effect", text)
    if not 0 < value < 1:
        raise ValueError(f"min_effect: {text!r} is not allowed; allowed: above 0% and below 100%")
    return value


def parse_count(text: str) -> int | None:
    """A whole number of 1 or more, of 18 digits at most; None for anything else, also for digits of other scripts."""
    return int(text) or None if text.isascii() and text.isdecimal() and len(text) <= 18 else None
