"""From an arm and a run's conditions to the ServerArgs of SGLang 0.5.16; nothing is loaded or started here.

The options of the arm and the run are mapped, what SGLang cannot do is refused with the reason, and `engine.KEY=VALUE`
sets any further option by SGLang's own name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from specbench.harness.spec.arm import ArmConfig
from specbench.harness.spec.conditions import Conditions
from specbench.harness.store.codec import read_object
from specbench.workloads.guarded import parse_json

from .acceptance import forced_acceptance
from .methods import EAGLE, EAGLE3, Method, method_of

ServerArgs = dict[str, object]
SERVER = "server"  # of engine.KEY: ours, not SGLang's
# The scheduler requires 6 free positions after a prompt, and 2 after an answer.
CONTEXT_SLACK = 16
_A_PAGE = 128  # tokens; the largest that a backend of SGLang's chooses
_SPARE = 1.25  # the scheduler estimates what running answers may still need
_MIN_POOL = 4096  # tokens; its warm-up and the padding of small batches
_ATTENTION = {"torch": "torch_native", "triton": "triton", "flash-attention": "fa3", "flashinfer": "flashinfer"}
_GRAPHS: dict[str, ServerArgs] = {
    "auto": {},
    "none": {"disable_cuda_graph": True},
    "full_decode_only": {"cuda_graph_backend_decode": "full", "cuda_graph_backend_prefill": "disabled"},
    "full_and_piecewise": {"cuda_graph_backend_decode": "full", "cuda_graph_backend_prefill": "tc_piecewise"},
    "full": {"cuda_graph_backend_decode": "full", "cuda_graph_backend_prefill": "full"},
}
_NO_GRAPH = {
    "piecewise": "SGLang has piecewise graphs of prompts only",
    **dict.fromkeys(("one", "one_and_full"), "SGLang captures the target and the drafter as separate graphs"),
}
_FIXED = {  # switches of which SGLang has one value
    "sync": ("auto", "its scheduler runs one step ahead of the GPU, or not with engine.disable_overlap_schedule=true"),
    "drafter": ("padded", "its first drafter pass has the same rows for every request"),
    "state_update": ("fused", "it has one form of it"),
    "status_lag": ("", "it has no such switch"),
    "graph_target": ("", "its graphs are of decode steps and of prompts: engine.cuda_graph_backend_decode, _prefill"),
    "graph_first": ("", "the drafter's graphs follow engine.cuda_graph_backend_decode"),
    "graph_later": ("", "the drafter's graphs follow engine.cuda_graph_backend_decode"),
    "graph_mixed": ("", "its name for it is engine.cuda_graph_backend_prefill"),
}
_OF_THE_RUN = {
    "model_path": "--model",
    "dtype": "--dtype",
    "load_format": "--load-format",
    "random_seed": "--seed",
    "speculative_draft_model_path": "head= or draft=",
}
# Many heads declare fewer positions than their target, which SGLang refuses by default. The target's are checked here.
_SHORT_DRAFTERS = {"SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN": "1"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Mapped:
    """`server_args`: without the model, which `with_weights` adds. `environment`: of the process, since SGLang reads it
    at import. `acceptance`: real, or how it is forced."""

    method: Method
    server_args: ServerArgs
    environment: Mapping[str, str]
    acceptance: str
    notes: tuple[str, ...]


def mapped(arm: ArmConfig, conditions: Conditions) -> Mapped:
    """ValueError names the switch, its value and what is allowed or why not."""
    method = method_of(arm)
    _check_fixed(arm.engine)
    switches = {**_graph(arm.engine.get("graph", "auto")), **_attention(arm.engine, method)}
    environment, acceptance, forced = forced_acceptance(arm.engine.get("acceptance", "real"), method)
    spoken = {**method.args, **switches}
    if method.algorithm:
        spoken["speculative_algorithm"] = method.algorithm
    own = _own(arm, spoken)
    notes = (*method.notes, *forced, *(["synthetic weights"] if conditions.load_format == "dummy" else []))
    return Mapped(
        method=method,
        server_args={**_of_conditions(conditions), "max_total_tokens": _pool(conditions, method), **spoken, **own},
        environment={**environment, **(_SHORT_DRAFTERS if method.draft is not None else {})},
        acceptance=acceptance,
        notes=notes,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Weights:
    """Directories. `dtype`: as torch names it. `draft`: None where the method has no weights of its own."""

    model: Path
    max_position: int
    dtype: str
    is_random: bool
    draft: Path | None = None
    draft_is_random: bool = False


def with_weights(arm: Mapped, weights: Weights, max_model_len: int) -> ServerArgs:
    """All arguments of `sglang.Engine`. Those that the arm sets with `engine.KEY` take precedence."""
    args: ServerArgs = {
        **_draft_of(weights),
        "model_path": str(weights.model),
        "dtype": weights.dtype,
        "load_format": "dummy" if weights.is_random else "auto",
        "context_length": min(weights.max_position, max_model_len + CONTEXT_SLACK + arm.method.num_reserved),
        **arm.server_args,
    }
    if weights.draft is not None and arm.method.is_head:
        args["speculative_algorithm"] = algorithm_of_head(weights.draft)
    return args


def _draft_of(weights: Weights) -> ServerArgs:
    if weights.draft is None:
        return {}
    return {
        "speculative_draft_model_path": str(weights.draft),
        "speculative_draft_load_format": "dummy" if weights.draft_is_random else "auto",
    }


def algorithm_of_head(folder: Path) -> str:
    """EAGLE3 or EAGLE, as the head's config.json says."""
    config = read_object(folder / "config.json")
    names = config.get("architectures")
    says_eagle3 = isinstance(names, list) and any("eagle3" in str(name).lower() for name in names)
    return EAGLE3 if says_eagle3 or config.get("draft_vocab_size") else EAGLE


def _of_conditions(conditions: Conditions) -> ServerArgs:
    args: ServerArgs = {
        "random_seed": conditions.seed,
        "max_running_requests": conditions.max_concurrency,
        "cuda_graph_max_bs_decode": conditions.max_concurrency,
        "chunked_prefill_size": conditions.max_num_batched_tokens,
        "disable_radix_cache": True,
        "skip_tokenizer_init": True,
        "sampling_defaults": "openai",
        "stream_interval": 1,
        "log_level": "info",
    }
    if conditions.device == "cpu":
        args["device"] = "cpu"
    if conditions.page_size:
        args["page_size"] = conditions.page_size
    return args


def _pool(conditions: Conditions, method: Method) -> int:
    """Tokens in the KV pool: enough for the largest batch, as in our own engine, so that several engines fit on a card.
    SGLang reserves the drafts of two rounds, and one page more."""
    if conditions.num_pages is None:
        ahead = 2 * method.num_reserved + 2 * max(_A_PAGE, conditions.page_size)
        request = conditions.max_model_len + CONTEXT_SLACK + ahead
        return math.ceil(_SPARE * conditions.max_concurrency * request) + _MIN_POOL
    if not conditions.page_size:
        raise ValueError(f"num_pages: {conditions.num_pages} is not allowed without --page-size; SGLang counts tokens")
    return conditions.num_pages * conditions.page_size


def _check_fixed(engine: Mapping[str, str]) -> None:
    for key, (only, reason) in _FIXED.items():
        if engine.get(key, only) != only:
            allowed = f"allowed with SGLang: {only}" if only else "not a switch of SGLang"
            raise ValueError(f"{key}: {engine[key]!r} is not allowed; {allowed}; {reason}")


def _graph(text: str) -> ServerArgs:
    name = text.lower().replace("-", "_")
    if name not in _GRAPHS:
        reason = f"; {_NO_GRAPH[name]}" if name in _NO_GRAPH else ""
        raise ValueError(f"graph: {text!r} is not allowed; allowed with SGLang: {', '.join(_GRAPHS)}{reason}")
    return _GRAPHS[name]


def _attention(engine: Mapping[str, str], method: Method) -> ServerArgs:
    args: ServerArgs = {}
    for key, unsaid, name in (
        ("attention", "auto", "attention_backend"),
        ("attention_drafter", "same", "speculative_draft_attention_backend"),
    ):
        text = engine.get(key, unsaid)
        if text == unsaid:
            continue
        if text not in _ATTENTION:
            allowed = ", ".join((unsaid, *_ATTENTION))
            raise ValueError(
                f"{key}: {text!r} is not allowed; allowed with SGLang: {allowed}, and engine.{name}=NAME for its others"
            )
        if key == "attention" or method.draft is not None:
            args[name] = _ATTENTION[text]
    return args


def _own(arm: ArmConfig, spoken: Mapping[str, object]) -> ServerArgs:
    """`engine.KEY=VALUE`: JSON where it parses, else text."""
    args: ServerArgs = {}
    for key, text in arm.own_config.items():
        if key == SERVER:
            if text not in ("yes", "no"):
                raise ValueError(f"engine.{SERVER}: {text!r} is not allowed; allowed: yes, no")
            continue
        if key == "dp_size" and text != "1" and arm.own_config.get(SERVER) != "yes":
            raise ValueError(
                f"engine.dp_size: {text} is not allowed in process, where one scheduler is watched; allowed with "
                f"engine.{SERVER}=yes"
            )
        if key in spoken:
            raise ValueError(f"engine.{key}: {text!r} is not allowed; the arm's own options say {spoken[key]!r}")
        if key in _OF_THE_RUN:
            raise ValueError(f"engine.{key}: {text!r} is not allowed; {_OF_THE_RUN[key]} sets it")
        try:
            args[key] = parse_json(text)
        except ValueError:
            args[key] = text
    return args
