"""Fractions as they are typed."""

from __future__ import annotations


def parse_percent(name: str, text: str) -> float:
    """`1%` or `0.01`; ValueError for a bare number of 1 or more, which could mean either."""
    number = text.strip().removesuffix("%")
    try:
        value = float(number) / 100 if text.strip().endswith("%") else float(number)
    except ValueError:
        value = -1.0
    if not text.strip().endswith("%") and value >= 1:
        value = -1.0
    if not value >= 0:  # nan is none either
        raise ValueError(f"{name}: {text!r} is not allowed; give a percentage, as 1% or 0.5%")
    return value


def parse_effect(text: str) -> float:
    """--min-effect: the smallest change that matters, above 0% and below 100%."""
    value = parse_percent("min_effect", text)
    if not 0 < value < 1:
        raise ValueError(f"min_effect: {text!r} is not allowed; allowed: above 0% and below 100%")
    return value
