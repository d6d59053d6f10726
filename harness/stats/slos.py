"""Limits on latencies (SLOs), as `--goodput` of `vllm bench serve` spells them: `ttft:500 tpot:50`, in ms."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

KEYS = ("ttft", "tpot", "e2el")
_ALLOWED = (
    f"allowed: {', '.join(f'{key}:MS' for key in KEYS)}, each at most once, with MS a number of milliseconds above 0; "
    "several with a space between them, as ttft:500 tpot:50"
)
Slos = Mapping[str, float]
"""By key, the maximum ms that a request may take; a request counts if it meets all limits."""


def parse_slos(words: Sequence[str]) -> Slos:
    """ValueError for an unknown key, a limit that is not a time, or a repeated key."""
    found: dict[str, float] = {}
    for word in words:
        key, _, text = word.partition(":")
        if key in found:
            raise ValueError(f"goodput: {word!r} gives {key} again; {_ALLOWED}")
        try:
            most_ms = float(text)
        except ValueError:
            most_ms = math.nan
        if key not in KEYS or not 0 < most_ms < math.inf:
            raise ValueError(f"goodput: {word!r} is not allowed; {_ALLOWED}")
        found[key] = most_ms
    return found


def describe_slos(slos: Slos) -> str:
    """`ttft <= 500 ms, tpot <= 50 ms`."""
    return ", ".join(f"{key} <= {most_ms:g} ms" for key, most_ms in slos.items())
