"""What SGLang reports about itself once it is up. Standard library only, since the child imports it by path."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from specbench.harness.engines.child.wire import Facts


class ServerInfo(TypedDict, total=False):
    """The part of `get_server_info` (0.5.16) that is used: resolved ServerArgs, and the version."""

    version: str
    disable_radix_cache: bool
    device: str | None
    cuda_graph_config: object
    disable_cuda_graph: bool
    attention_backend: str | None
    prefill_attention_backend: str | None
    decode_attention_backend: str | None
    speculative_draft_attention_backend: str | None
    speculative_algorithm: str | None
    speculative_adaptive: bool
    speculative_eagle_topk: int | None
    speculative_num_steps: int
    speculative_num_draft_tokens: int


def facts(info: ServerInfo, version: str, eos_token_ids: Iterable[int]) -> Facts:
    """`version`: of the package, if the server does not report its own."""
    return {
        "version": str(info.get("version", version)),
        "graph_mode": _graph_mode(info),
        "backend": _backend(info),
        "hardware": _hardware(info),
        "config": {**_plain(info), "eos_token_ids": sorted(eos_token_ids)},
        "notes": [],
    }


def _graph_mode(info: ServerInfo) -> str | None:
    config = info.get("cuda_graph_config")
    if isinstance(config, dict):
        return ", ".join(f"{phase} {config[phase]['backend']}" for phase in ("decode", "prefill"))
    return "none" if info.get("disable_cuda_graph") else None


def _backend(info: ServerInfo) -> str | None:
    """The backends for prompts and decode steps if they differ, and the drafter's if it has its own."""
    general = info.get("attention_backend")
    prefill = info.get("prefill_attention_backend") or general
    decode = info.get("decode_attention_backend") or general
    named = prefill if prefill == decode else f"prefill {prefill}, decode {decode}"
    own = info.get("speculative_draft_attention_backend")
    return f"{named}, drafter {own}" if own else named


def _hardware(info: ServerInfo) -> str:
    device = str(info.get("device") or "cuda")
    if not device.startswith("cuda"):
        return device
    import torch

    return str(torch.cuda.get_device_name(0))


def _plain(info: Mapping[str, object]) -> dict[str, object]:
    """As JSON, without values that are unset, internal or redundant; other types become text."""
    shown = {k: v for k, v in info.items() if k != "internal_states" and not k.startswith("_") and v is not None}
    plain: dict[str, object] = json.loads(json.dumps(shown, default=str))
    return plain
