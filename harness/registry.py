"""Names to lazily imported things: nothing is imported until its name is used, so `--help` and `list` stay fast.

A new strategy, attention backend, workload or report is one file and one line here.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from typing import Any

STRATEGIES: Mapping[str, str] = {
    "no-spec": "specbench.strategies.no_spec:NoSpec",
    "eagle": "specbench.strategies.eagle:Eagle",
    "eagle-topk": "specbench.strategies.eagle_topk:EagleTopk",
    "naive-eagle": "specbench.strategies.naive_eagle:NaiveEagle",
    "draft-model": "specbench.strategies.draft_model:DraftModel",
    "ngram": "specbench.strategies.ngram:Ngram",
}

# Those with an option `head`, told without importing them.
HEAD_STRATEGIES = frozenset({"eagle", "eagle-topk", "naive-eagle"})

ATTENTION_BACKENDS: Mapping[str, str] = {
    "torch": "specbench.kernels.attention.torch_attention:TorchAttention",
    "triton": "specbench.kernels.attention.triton_attention:TritonAttention",
    "flash-attention": "specbench.kernels.attention.flash_attention:FlashAttention",
    "flashinfer": "specbench.kernels.attention.flashinfer_attention:FlashInferAttention",
    "flashinfer-xqa": "specbench.kernels.attention.flashinfer_xqa:FlashInferXqa",
}

STATE_UPDATES: Mapping[str, str] = {
    "fused": "specbench.kernels.state_update:FusedStateUpdate",
    "torch": "specbench.kernels.torch_update:TorchStateUpdate",
}

WORKLOADS: Mapping[str, str] = {
    "sharegpt": "specbench.workloads.sharegpt:load",
    "sharegpt-held-out": "specbench.workloads.held_out:load",
    "gsm8k": "specbench.workloads.gsm8k:load",
    "gsm8k-train": "specbench.workloads.gsm8k:load",
    "gsm-symbolic": "specbench.workloads.gsm_symbolic:load",
    "random": "specbench.workloads.random_lengths:load",
    "sharegpt-lengths": "specbench.workloads.sharegpt_lengths:load",
    "jsonl": "specbench.workloads.jsonl:load",
    "hf": "specbench.workloads.hf:load",
    "mt-bench": "specbench.workloads.questions:load_mt_bench",
    "humaneval": "specbench.workloads.questions:load_humaneval",
}


def lookup(table: Mapping[str, str], name: str, kind: str) -> Any:
    """The object registered under `name`. ValueError with the known names, and the nearest one, for an unknown name."""
    if name not in table:
        near = difflib.get_close_matches(name, table, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise ValueError(f"{kind}: {name!r} is not known{hint}; allowed: {', '.join(table)}")
    module, _, attribute = table[name].partition(":")
    return getattr(importlib.import_module(module), attribute)
