"""Counters of a server's Prometheus page: what it counted during a block is the difference of two readings.

vLLM and llama.cpp give the same names another prefix, so one reader does for both; SGLang's are its own. Of its gauges
none is read: `sglang:spec_accept_length` is an average over requests of before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

from specbench.harness.store.rows import CounterRow

_PREFIXES = ("vllm:", "sglang:", "llamacpp:")
_NAMES = (
    *("spec_decode_num_drafts", "spec_decode_num_draft_tokens", "spec_decode_num_accepted_tokens"),
    *("spec_decode_num_accepted_tokens_per_pos", "prefix_cache_queries", "prefix_cache_hits", "num_preemptions"),
    *("spec_verify_calls", "cached_tokens", "cuda_graph_passes"),
)
_LABELS = ("position", "mode")  # that tell figures apart; others, as engines of one server, are added up


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


def counted(before: Mapping[str, float], after: Mapping[str, float]) -> list[CounterRow]:
    """What was counted between two readings; what was not there before began at 0."""
    return [CounterRow(f"engine.{name}", value - before.get(name, 0.0)) for name, value in after.items()]
