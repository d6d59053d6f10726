"""Counters of a server's Prometheus page: the counts of a block are the difference of two readings.

vLLM and llama.cpp use the same names with different prefixes, so one reader serves both; SGLang has its own names. Its
gauges are not read: `sglang:spec_accept_length` is an average that includes earlier requests.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from prometheus_client.parser import text_string_to_metric_families

from specbench.harness.store.rows import CounterRow

_PREFIXES = ("vllm:", "sglang:", "llamacpp:")
_NAMES = (
    *("spec_decode_num_drafts", "spec_decode_num_draft_tokens", "spec_decode_num_accepted_tokens"),
    *("spec_decode_num_accepted_tokens_per_pos", "prefix_cache_queries", "prefix_cache_hits", "num_preemptions"),
    *("spec_verify_calls", "cached_tokens", "cuda_graph_passes"),
)
# Labels that distinguish figures; over others, such as the engines of one server, counters are summed.
_LABELS = ("position", "mode")


def read_counters(page: str) -> dict[str, float]:
    """Name, without prefix and `_total`, to value; `NAME/LABEL` for those told apart. ValueError for another format."""
    counters: defaultdict[str, float] = defaultdict(float)
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            name = next((sample.name.removeprefix(p) for p in _PREFIXES if sample.name.startswith(p)), "")
            name = name.removesuffix("_total")
            if name in _NAMES:
                label = next((sample.labels[key] for key in _LABELS if key in sample.labels), None)
                counters[name if label is None else f"{name}/{label}"] += sample.value
    return dict(counters)


def counted(before: Sequence[Mapping[str, float]], after: Sequence[Mapping[str, float]]) -> list[CounterRow]:
    """The counts of all servers between two readings of each; a counter that did not exist before started at 0. None if
    one went back: its server was started again in between, and what it had counted until then is lost."""
    counts: defaultdict[str, float] = defaultdict(float)
    for earlier, later in zip(before, after, strict=True):
        if any(later.get(name, 0.0) < value for name, value in earlier.items()):
            return []
        for name, value in later.items():
            counts[name] += value - earlier.get(name, 0.0)
    return [CounterRow(f"engine.{name}", value) for name, value in counts.items()]
