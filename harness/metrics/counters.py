"""What a block's counters say about its figures: which are void, and which need a remark.

`engine.prefix_cache_hits`, `engine.cached_prompt_tokens`: prompt tokens that the engine did not have to compute, so its
TTFT is that of a different prompt. `client.delay_p99_ns`: how late the client timestamps the data it receives, and
`client.delay_limit_ns`: how late it may be (harness/engines/openai/delay.py). `engine.experts_per_decode_pass`: the
experts that a layer reads, since a pass over more rows reads more of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from specbench.harness.stats.spread import Spread
from specbench.harness.store.results import Figures
from specbench.harness.store.rows import EXPERTS_READ, NUM_EXPERTS

_HITS = ("engine.prefix_cache_hits", "engine.cached_prompt_tokens")
_DELAY, _LIMIT = "client.delay_p99_ns", "client.delay_limit_ns"
_NS_PER_MS = 1e6


def without_void(latency: Figures, counters: Mapping[str, float]) -> Figures:
    """TTFT is None if a prefix cache served a part of a prompt."""
    if not has_void_ttft(counters):
        return latency
    return {name: None if name.startswith("ttft") else value for name, value in latency.items()}


def has_void_ttft(figures: Mapping[str, float | None], prefix: str = "") -> bool:
    """`prefix`: of the counters among the figures."""
    return any((figures.get(f"{prefix}{name}") or 0) > 0 for name in _HITS)


def counter_marks(figures: Mapping[str, Spread]) -> Iterator[str]:
    """The marks of the worst block. `figures`: of an arm, by name."""
    spreads = {name: figures.get(f"counters.{name}") for name in (*_HITS, _DELAY, _LIMIT)}
    hits = max((spread.max for name in _HITS if (spread := spreads[name]) is not None), default=0)
    if hits > 0:
        yield f"no TTFT: {hits:.0f} prompt tokens of a block came from a prefix cache"
    read, experts = (figures.get(f"counters.{name}") for name in (EXPERTS_READ, NUM_EXPERTS))
    if read is not None and experts is not None:
        yield f"a pass reads {read.median:.1f} of {experts.max:.0f} experts a layer"
    delay, limit = spreads[_DELAY], spreads[_LIMIT]
    if delay is not None and limit is not None and delay.max > limit.min:
        yield (
            f"limited by the client: its timestamps are {delay.max / _NS_PER_MS:.1f} ms late (p99), "
            f"allowed {limit.min / _NS_PER_MS:.1f} ms"
        )
