"""What our own engine runs, derived from the code that refuses the rest: the readers of config.json, and the legality
table.

The two parts do not depend on each other: a model runs in each of its precisions with every head and strategy, on each
backend that the strategy's drafts allow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from specbench.harness.engines.native.models.config import TARGET_ARCHITECTURES, config_from_dict
from specbench.harness.registry import ATTENTION_BACKENDS
from specbench.harness.spec.choices import Choices
from specbench.harness.spec.legality import OF_THE_MACHINE, RULES, Refused, resolve
from specbench.harness.spec.plans import PLANS
from specbench.workloads.assets import gguf_metadata
from specbench.workloads.json_values import JsonObject

YES = "yes"
_GGUF = "GGUF"
_GROUP_OF_FP4: JsonObject = {"weights": {"num_bits": 4, "type": "float", "strategy": "tensor_group"}}
_GROUP_OF_FP8: JsonObject = {"weights": {"num_bits": 8, "type": "float", "strategy": "channel"}}
# What a checkpoint's config.json says about its weights, by their common names.
_FORMS: Mapping[str, JsonObject] = {
    "bf16, fp16, fp32": {},
    "FP8 per tensor": {"quantization_config": {"quant_method": "fp8"}},
    "FP8 per channel": {
        "quantization_config": {"quant_method": "compressed-tensors", "config_groups": {"group_0": _GROUP_OF_FP8}}
    },
    "FP8 128x128": {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}},
    "AWQ": {"quantization_config": {"quant_method": "awq"}},
    "GPTQ": {"quantization_config": {"quant_method": "gptq"}},
    "NVFP4": {
        "quantization_config": {"quant_method": "compressed-tensors", "config_groups": {"group_0": _GROUP_OF_FP4}}
    },
    "MXFP4": {"quantization_config": {"quant_method": "mxfp4"}},
}
_SIZES: JsonObject = {
    **dict.fromkeys(("hidden_size", "intermediate_size", "vocab_size"), 64),
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "sliding_window": None,
}
_EXPERTS: JsonObject = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
# Models of the seeds that only other engines run, by what their weights are stored as.
_ELSEWHERE: Mapping[str, Mapping[str, str]] = {"GptOssForCausalLM": {"MXFP4": "measured through --engine vllm"}}

DRAFTS: Mapping[str, Choices] = {
    "no drafts": Choices(device="cuda", num_drafts=0, can_unpad=False),
    "a chain": Choices(device="cuda", can_unpad=False),
    "a tree": Choices(device="cuda", can_unpad=False, has_tree=True),
}


def models() -> dict[str, dict[str, str]]:
    """`yes`, or why not, by architecture and weight format."""
    names = (*TARGET_ARCHITECTURES, *_ELSEWHERE)
    return {name: {form: _reads(name, form) for form in (*_FORMS, _GGUF)} for name in names}


def backends(drafts: Choices) -> dict[str, str]:
    """By attention backend, on a GPU that has it: the graph plans that work with such drafts; `no` if none does."""
    return {name: _plans(replace(drafts, attention=name)) for name in ATTENTION_BACKENDS.built_in}


def _reads(name: str, form: str) -> str:
    if note := _ELSEWHERE.get(name, {}).get(form):
        return note
    if form == _GGUF:
        found = [name in config["architectures"] for config in gguf_metadata.ARCHITECTURES.values()]
        return YES if any(found) else "no: not read from that file"
    architecture = TARGET_ARCHITECTURES.get(name)
    experts = _EXPERTS if architecture is not None and architecture.more_keys else {}
    try:
        config_from_dict({"architectures": [name], **_SIZES, **experts, **_FORMS[form]}, Path())
    except ValueError as error:
        return f"no: {error}"
    return YES


def _plans(choices: Choices) -> str:
    found = {drafter: _legal(replace(choices, attention_drafter=drafter)) for drafter in ("same", "triton")}
    plans = found["same"] or found["triton"]
    rest = [name for name in PLANS if name not in plans]
    if not plans:
        return "no"
    text = f"all but {', '.join(rest)}" if len(rest) < len(plans) else f"graph={', '.join(plans)} alone"
    text = text if rest else "all plans"
    return text if found["same"] else f"{text}; attention_drafter=triton"


def _legal(choices: Choices) -> list[str]:
    combinations = [rule for rule in RULES if rule not in OF_THE_MACHINE]
    plans = []
    for name in PLANS:
        try:
            resolve(replace(choices, graph=name), combinations)
        except Refused:
            continue
        plans.append(name)
    return plans
