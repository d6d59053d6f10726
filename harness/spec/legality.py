"""Legal combinations: one table that resolves `auto`, refuses combinations and is printed by `specbench list`.

A rule names a choice, when it is refused, and why. Nothing falls back silently: a value the user named is refused
with the reason; only `auto` is resolved, and the row shows the choice.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from .choices import ALLOWED, PART_MODES, Choices, allowed, declares
from .plans import PLANS, GraphPlan, parse_plan, plan_name

_CAPTURED = frozenset({"full", "one"})


class Refused(ValueError):
    """A combination that may not run: the rule, the reason, and what every switch had resolved to."""

    def __init__(self, rule: Rule, resolved: Choices) -> None:
        self.rule, self.reason, self.resolved = rule.choice, rule.reason, resolved
        shown = ", ".join(f"{k}={v}" for k, v in resolved.described().items() if v is not None)
        super().__init__(f"{self.rule} is refused: {self.reason} (resolved: {shown}, device={resolved.device})")


@dataclass(frozen=True, slots=True)
class Rule:
    """`refused(choices)`: whether this choice is illegal. `reason`: for the user, what it needs or why it is
    illegal."""

    choice: str
    refused: Callable[[Choices], bool]
    reason: str


def _has(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def _has_flash_attention() -> bool:
    """Whether flash_libs.py would find a library. Checks files only: printing a list must not import anything."""
    fa3_path = os.environ.get("FA3_SO")
    return bool(fa3_path and os.path.exists(fa3_path)) or any(map(_has, ("flash_attn_interface", "flash_attn", "vllm")))


def _needs(backend: str, is_there: Callable[[], bool]) -> Callable[[Choices], bool]:
    return lambda c: backend in c.backends and (c.device != "cuda" or not is_there())


OF_THE_MACHINE: tuple[Rule, ...] = (
    Rule(
        "attention=triton",
        _needs("triton", lambda: _has("triton")),
        "the Triton kernels need a CUDA device and the package triton",
    ),
    Rule(
        "attention=flash-attention",
        _needs("flash-attention", _has_flash_attention),
        "FlashAttention needs a CUDA device and one of: flash_attn_interface, the library named by FA3_SO, vllm, "
        "flash_attn",
    ),
    Rule(
        "attention=flashinfer",
        _needs("flashinfer", lambda: _has("flashinfer")),
        "FlashInfer needs a CUDA device and the package flashinfer-python",
    ),
    Rule(
        "attention=flashinfer-xqa",
        _needs("flashinfer-xqa", lambda: _has("flashinfer")),
        "FlashInfer's XQA needs a CUDA device and the package flashinfer-python",
    ),
)
RULES: tuple[Rule, ...] = (
    Rule("graph", lambda c: c.modes != {"none"} and c.device != "cuda", "CUDA graphs need a CUDA device"),
    Rule("sync=none", lambda c: c.sync == "none" and c.device != "cuda", "launches on a CPU are synchronous"),
    *OF_THE_MACHINE,
    Rule(
        "attention=torch + a graph around attention",
        lambda c: (
            (declares("reads_lengths", {c.attention}) and bool({c.plan.target, c.plan.mixed} & _CAPTURED))
            or (c.reads_lengths and bool({c.plan.first, c.plan.later, c.plan.mixed} & _CAPTURED))
        ),
        "the backend reads lengths on the host (as torch does), so its launches cannot be captured",
    ),
    Rule(
        "attention=torch + sync=none",
        lambda c: c.reads_lengths and c.sync == "none",
        "the backend reads lengths on the host (as torch does) in every layer",
    ),
    Rule(
        "attention=flashinfer + graph=one",
        lambda c: c.is_planned and c.plan.target == "one",
        "its launches are planned on the host, which a graph cannot contain; use flashinfer-xqa, flash-attention "
        "or triton",
    ),
    Rule(
        "attention=flashinfer + sync=none",
        lambda c: c.is_planned and c.sync == "none",
        "planning needs every length on the host before the launch; use flashinfer-xqa, flash-attention or triton",
    ),
    Rule(
        "attention=flashinfer + graph_mixed=full",
        lambda c: c.is_planned and c.plan.mixed == "full",
        "a plan for ragged rows fixes its launch; use graph_mixed=piecewise",
    ),
    Rule(
        "sync=multi + graph=one",
        lambda c: c.sync == "multi" and c.plan.target == "one",
        "the host reads in the middle of the round",
    ),
    Rule(
        "drafter=unpadded + no EAGLE chain",
        lambda c: c.drafter == "unpadded" and not c.can_unpad,
        "only an EAGLE chain drafts over the verified rows and can leave out rejected ones",
    ),
    Rule(
        "drafter=unpadded + a graph of the first pass",
        lambda c: c.drafter == "unpadded" and c.plan.first in _CAPTURED,
        "its rows differ from round to round; use graph_first=none or piecewise",
    ),
    Rule(
        "drafter=unpadded + sync=none",
        lambda c: c.drafter == "unpadded" and c.sync == "none",
        "the host must read the accepted counts before the first drafter pass",
    ),
    Rule(
        "graph_mixed=full + the host in mid-step",
        lambda c: c.plan.mixed == "full" and (c.sync == "multi" or c.drafter == "unpadded"),
        "a captured step cannot contain a host read",
    ),
    Rule(
        "a tree + flash-attention",
        lambda c: c.has_tree and "flash-attention" in c.backends,
        "FlashAttention has no tree mask; use triton, or flashinfer (fa2 with a custom mask)",
    ),
    Rule(
        "a tree + attention_drafter=flashinfer-xqa",
        lambda c: c.has_tree and c.drafter_backend == "flashinfer-xqa",
        "XQA masks rows of the current step only, but a tree attends to earlier levels; use triton or flashinfer",
    ),
    Rule(
        "a tree + graph_mixed=full",
        lambda c: c.has_tree and c.plan.mixed == "full",
        "a tree mask needs uniform rows, but a captured mixed step is ragged; use graph_mixed=piecewise",
    ),
    Rule(
        "status_lag",
        lambda c: c.status_lag is not None and (c.status_lag > 0) != (c.sync == "none"),
        "sync=none reads the status 1 or more rounds late, sync=single and multi immediately (0)",
    ),
)


def resolve(choices: Choices, rules: Sequence[Rule] = RULES) -> Choices:
    """Replaces every `auto` and checks every rule. Raises ValueError naming the choice, the value and what is
    allowed."""
    for name in ALLOWED:
        value, known = getattr(choices, name), allowed(name)
        if value not in known and not (name == "graph" and plan_name(value) in known):
            raise ValueError(f"{name}: {value!r} is not known; allowed: {', '.join(known)}")
    for part, mode in choices.graph_parts.items():
        if mode not in PART_MODES[part]:
            raise ValueError(f"graph_{part}: {mode!r} is not known; allowed: {', '.join(PART_MODES[part])}")
    resolved = _resolve_auto(choices)
    for rule in rules:
        if rule.refused(resolved):
            raise Refused(rule, resolved)
    return resolved


def _resolve_auto(c: Choices) -> Choices:
    cuda = c.device == "cuda"
    if c.num_drafts == 0:  # a switch given for all arms does not apply without a drafter
        c = replace(c, drafter="padded", attention_drafter="same")
    c = replace(c, attention=c.attention if c.attention != "auto" else "triton" if cuda and _has("triton") else "torch")
    capturable = cuda and not c.reads_lengths
    plan = _auto_graph(c, capturable) if c.graph == "auto" else parse_plan(c.graph, {})
    c = replace(c, plan=replace(plan, **_parts(c)))
    free = capturable and not c.is_planned and c.drafter == "padded"
    sync = c.sync if c.sync != "auto" else "none" if free else "single"
    lag = c.status_lag if c.status_lag is not None else 1 if sync == "none" else 0
    return replace(c, sync=sync, status_lag=lag)


def _auto_graph(c: Choices, capturable: bool) -> GraphPlan:
    """The strategy's preferred plan, or the nearest plan that the other choices allow."""
    if not capturable:
        return PLANS["none"]
    plan = PLANS[c.default_graph]
    host_in_mid_step = c.sync == "multi" or c.drafter == "unpadded"
    whole = not c.graph_parts.keys() - {"mixed"} and not host_in_mid_step and not c.is_planned
    if plan.target == "one" and not whole:
        plan = replace(plan, target="full", first="full", later="full")
    if plan.mixed == "full" and (host_in_mid_step or c.is_planned or c.has_tree):
        plan = replace(plan, mixed="piecewise")
    return plan


def _parts(c: Choices) -> dict[str, str]:
    """Parts that replace the plan's: those given by name. With graph=auto, the first pass of an unpadded drafter is
    piecewise."""
    if c.graph == "auto" and c.drafter == "unpadded" and c.device == "cuda" and not c.reads_lengths:
        return {"first": "piecewise", **c.graph_parts}
    return c.graph_parts
