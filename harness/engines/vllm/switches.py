"""Switches of an arm as vLLM's engine arguments, and whether vLLM resolved them as requested. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from specbench.harness.engines.served.asked import refuse_switches
from specbench.harness.engines.vllm.speculation import acceptance, json_or_text
from specbench.harness.spec.arm import GRAPH_PART_KEYS, ArmConfig

_GRAPHS = {name: name.upper() for name in ("none", "piecewise", "full_decode_only", "full_and_piecewise", "full")}
_ATTENTION = {"triton": "TRITON_ATTN", "flash-attention": "FLASH_ATTN", "flashinfer": "FLASHINFER"}
_REFUSED = {
    "sync": "vLLM has no switch for when it waits for the device",
    "state_update": "vLLM has its own kernels between two rounds",
    "status_lag": "when vLLM reads a step's outcome follows from engine.async_scheduling",
    "url": "it runs in process here; use engine openai for an address",
    **dict.fromkeys(GRAPH_PART_KEYS, "vLLM has one graph mode for a whole step; use graph"),
}
_UNCHANGED = ("dtype", "max_model_len", "max_num_seqs", "tensor_parallel_size", "pipeline_parallel_size")
_OUR_OWN = ("model", "tokenizer", "generation_config", "disable_log_stats")  # must be the same for every engine

Args = dict[str, Any]


def refuse(arm: ArmConfig) -> None:
    """ValueError with the reason for a switch that vLLM does not have."""
    refuse_switches(arm, "vLLM", _REFUSED)
    for key in arm.own_config:
        if key.partition(".")[0] in _OUR_OWN:
            raise ValueError(f"engine.{key}: is not allowed; all engines get the same model and prompts")


def engine_args(arm: ArmConfig) -> Args:
    """Arguments for switches of the target. ValueError naming what vLLM allows."""
    args: Args = {}
    graph = _spelled(arm.engine.get("graph", "auto"))
    if graph != "auto":
        if graph not in _GRAPHS:
            raise ValueError(f"graph: {graph!r} is not a mode of vLLM; allowed: auto, {', '.join(_GRAPHS)}")
        args["compilation_config"] = {"cudagraph_mode": _GRAPHS[graph]}
    if backend := _backend("attention", arm.engine.get("attention", "auto")):
        args["attention_backend"] = backend
    return args


def drafter_args(arm: ArmConfig) -> Args:
    """Keys for switches of the drafter, in the speculative configuration."""
    drafter = arm.engine.get("drafter", "padded")
    if drafter not in ("padded", "unpadded"):
        raise ValueError(f"drafter: {drafter!r} is not allowed; allowed: padded, unpadded")
    args: Args = {"disable_padded_drafter_batch": True} if drafter == "unpadded" else {}
    own = arm.engine.get("attention_drafter", "same")
    if own != "same" and (backend := _backend("attention_drafter", own)):
        args["attention_backend"] = backend
    return {**args, **acceptance(arm.engine.get("acceptance", "real"))}


def with_own_config(args: Args, own: Mapping[str, str]) -> Args:
    """The arm's `engine.KEY=VALUE` take precedence over ours; dots address nested configurations."""
    found = dict(args)
    for key, text in own.items():
        *outer, last = key.split(".")
        into = found
        for name in outer:
            inner = into.get(name)
            if inner is not None and not isinstance(inner, dict):
                raise ValueError(f"engine.{key}: is not allowed; {name} is {inner!r} and has no keys")
            into[name] = into = dict(inner or {})
        into[last] = json_or_text(text)
    return found


def contradictions(requested: Mapping[str, Any], resolved: Mapping[str, Any], backend: str | None) -> Iterator[str]:
    """What vLLM resolved differently from the request. `resolved`: its resolved configuration (facts.py)."""
    compilation, speculative = requested.get("compilation_config") or {}, requested.get("speculative_config") or {}
    pairs = [
        ("graph mode", compilation.get("cudagraph_mode"), resolved.get("cudagraph_mode")),
        ("attention", requested.get("attention_backend"), backend),
    ]
    pairs += [(key, requested.get(key), resolved.get(key)) for key in _UNCHANGED]
    ran = resolved.get("speculative_config") or {}
    pairs += [(f"speculative {key}", value, ran[key]) for key, value in speculative.items() if key in ran]
    if bool(speculative) != bool(ran):
        pairs.append(("speculation", speculative.get("method", "none"), ran.get("method", "none")))
    for what, wanted, got in pairs:
        if wanted is not None and got is not None and str(wanted).lower() != str(got).lower():
            yield f"{what}: {wanted} was requested, vLLM runs {got}"


def _spelled(graph: str) -> str:
    return graph.lower().replace("-", "_")


def _backend(key: str, name: str) -> str | None:
    """None for auto. vLLM's own names are passed unchanged; it refuses unknown ones itself."""
    if name == "auto":
        return None
    if name in _ATTENTION:
        return _ATTENTION[name]
    if name.isupper():
        return name
    raise ValueError(
        f"{key}: {name!r} is not a backend of vLLM; allowed: auto, {', '.join(_ATTENTION)}, or vLLM's own name in "
        "capitals"
    )
