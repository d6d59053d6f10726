"""What may be combined: one table, from which `auto` is resolved, combinations are refused and `specbench list` prints.

A rule names a choice, says when it is refused and why. Nothing falls back silently: a value the user named is refused
with the reason; only `auto` is resolved, and the choice stands in the row.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, replace


@dataclass(frozen=True, kw_only=True, slots=True)
class Choices:
    """The switches of one arm, as asked for."""

    device: str  # "cpu" or "cuda"
    graph: str = "auto"
    sync: str = "auto"
    attention: str = "auto"
    drafter: str = "padded"
    status_lag: int | None = None
    default_graph: str = "full"  # what the strategy asks for where graph is auto
    host_drafts: bool = False  # drafts are made on the host from tokens that must be read first

    def described(self) -> dict[str, str | int | None]:
        return dict(graph=self.graph, sync=self.sync, attention=self.attention, drafter=self.drafter)


ALLOWED: dict[str, tuple[str, ...]] = {
    "graph": ("auto", "none", "full", "one"),
    "sync": ("auto", "single", "none"),
    "attention": ("auto", "torch", "triton"),
    "drafter": ("padded",),
}

# Known names of the field that this version does not run, so that the error can say so instead of "unknown".
NOT_YET: dict[str, dict[str, str]] = {
    "graph": {"piecewise": "graphs between attention calls are not implemented yet"},
    "sync": {"multi": "the blocking reads of older engines are not implemented yet"},
    "attention": {
        "flashinfer": "FlashInfer is not implemented yet",
        "flash-attention": "FlashAttention is not implemented yet",
    },
    "drafter": {"unpadded": "drafting over exactly the accepted rows is not implemented yet"},
}


@dataclass(frozen=True, slots=True)
class Rule:
    """`refused(choices)` says whether this choice is illegal; `reason` tells the user what it needs."""

    choice: str
    refused: Callable[[Choices], bool]
    reason: str


def _has(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


RULES: tuple[Rule, ...] = (
    Rule("graph=full", lambda c: c.graph == "full" and c.device != "cuda", "CUDA graphs need a CUDA device"),
    Rule("graph=one", lambda c: c.graph == "one" and c.device != "cuda", "CUDA graphs need a CUDA device"),
    Rule("sync=none", lambda c: c.sync == "none" and c.device != "cuda", "a CPU runs each launch before the next"),
    Rule(
        "graph=one + drafts made on the host",
        lambda c: c.graph == "one" and c.host_drafts,
        "a host between verify and draft cannot be captured",
    ),
    Rule(
        "sync=none + drafts made on the host",
        lambda c: c.sync == "none" and c.host_drafts,
        "the host needs every round's tokens before the next launch",
    ),
    Rule(
        "attention=triton",
        lambda c: c.attention == "triton" and (c.device != "cuda" or not _has("triton")),
        "the Triton kernels need a CUDA device and the package triton",
    ),
    Rule(
        "attention=torch + a graph",
        lambda c: c.attention == "torch" and c.graph in ("full", "one"),
        "the torch backend reads lengths on the host, so its launches cannot be captured",
    ),
    Rule(
        "attention=torch + sync=none",
        lambda c: c.attention == "torch" and c.sync == "none",
        "the torch backend reads lengths on the host in every layer",
    ),
    Rule(
        "status_lag",
        lambda c: c.status_lag is not None and (c.status_lag > 0) != (c.sync == "none"),
        "sync=none reads status 1 or more rounds late, sync=single reads it at once (0)",
    ),
)


def resolve(choices: Choices) -> Choices:
    """Every `auto` replaced, every rule checked. Raises ValueError naming the choice, the value and what is allowed."""
    for name, allowed in ALLOWED.items():
        value = getattr(choices, name)
        if value in NOT_YET.get(name, {}):
            raise ValueError(f"{name}: {value!r}: {NOT_YET[name][value]}; allowed: {', '.join(allowed)}")
        if value not in allowed:
            raise ValueError(f"{name}: {value!r} is not known; allowed: {', '.join(allowed)}")
    resolved = _resolve_auto(choices)
    for rule in RULES:
        if rule.refused(resolved):
            shown = ", ".join(f"{k}={v}" for k, v in resolved.described().items())
            raise ValueError(f"{rule.choice} is refused: {rule.reason} (resolved: {shown}, device={resolved.device})")
    return resolved


def _resolve_auto(c: Choices) -> Choices:
    cuda = c.device == "cuda"
    attention = c.attention if c.attention != "auto" else "triton" if cuda and _has("triton") else "torch"
    capturable = cuda and attention != "torch"
    graph = c.graph if c.graph != "auto" else c.default_graph if capturable else "none"
    sync = c.sync if c.sync != "auto" else "none" if capturable and not c.host_drafts else "single"
    lag = c.status_lag if c.status_lag is not None else 1 if sync == "none" else 0
    return replace(c, attention=attention, graph=graph, sync=sync, status_lag=lag)
