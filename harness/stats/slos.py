"""Limits on latencies (SLOs), as `--goodput` of `vllm bench serve` spells them: `ttft:500 tpot:50`, in ms."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

KEYS = ("ttft", "tpot", "e2el")
Slos = Mapping[str, float]
"""By key, the maximum ms that a request may take; a request counts if it meets all limits."""


def parse_slos(words: Sequence[str]) -> Slos:
    """ValueError for an unknown key, a limit that is not a time, or a repeated key."""
    found: dict[str, float] = {}
    for word in words:
        key, _, text = word.partition(":")
        if key not in KEYS:
            raise ValueError(f"goodput: {key!r} is not known; allowed: {', '.join(KEYS)}, each with ms, as ttft:500")
        if key in found:
            raise ValueError(f"goodput: {word!r} gives {key} again; allowed: one limit per key")
        try:
            found[key] = float(text)
        except ValueError:
            found[key] = math.nan
        if not 0 < found[key] < math.inf:
            raise ValueError(f"goodput: {word!r} is not allowed; must be {key}:MS with ms > 0, as {key}:500")
    return found


def describe_slos(slos: Slos) -> str:
    """`ttft <= 500 ms, tpot <= 50 ms`."""
    return ", ".join(f"{key} <= {most_ms:g} ms" for key, most_ms in slos.items())
