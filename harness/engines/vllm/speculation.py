"""Strategies as vLLM's speculative configuration. Pure; keys checked against vLLM 0.26 and 0.32."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from specbench.harness.engines.served.asked import forced_acceptance, whole
from specbench.harness.spec.arm import ArmConfig
from specbench.workloads.guarded import parse_json

Speculation = dict[str, Any]
_OURS_ALONE = {
    "naive-eagle": "naive-eagle reproduces an old version in our engine; vLLM has the same chain as eagle",
    "eagle-topk": "vLLM 0.26 to 0.33 do not draft trees; use eagle",
    "as-served": "as-served is for running servers; name a strategy, or no-spec",
}
_DEFAULT_K, _SAMPLE_METHOD = "4", "draft_sample_method"


def speculation(arm: ArmConfig, methods: Collection[str]) -> Speculation | None:
    """None without speculation. `model` is the head or drafter as the arm names it, and missing if it names none.

    `methods`: those of the installed version. ValueError for a method it does not have, or options it cannot take.
    """
    name = arm.strategy
    if name in _OURS_ALONE:
        raise ValueError(f"strategy: {name!r} is not allowed; {_OURS_ALONE[name]}")
    if name in _MAPPED:
        allowed, mapped = _MAPPED[name]
        unknown = [key for key in arm.options if key not in allowed]
        if unknown:
            raise ValueError(
                f"{unknown[0]}: {arm.options[unknown[0]]!r} cannot be given to vLLM's {name}; allowed: "
                f"{', '.join(allowed) or 'no options'}, or engine.speculative_config.KEY=VALUE"
            )
        return mapped(arm.options)
    method = name.replace("-", "_")
    if method not in methods:
        known = sorted({*_MAPPED, *(each.replace("_", "-") for each in methods)} - {"eagle3"})
        raise ValueError(f"strategy: {name!r} is not a method of the installed vLLM; allowed: {', '.join(known)}")
    spelled = {"k": "num_speculative_tokens", "head": "model", "draft": "model"}
    return {"method": method, **{spelled.get(key, key): json_or_text(value) for key, value in arm.options.items()}}


def _none(options: Mapping[str, str]) -> None:
    return None


def _eagle(options: Mapping[str, str]) -> Speculation:
    head = options.get("head")
    return {"method": "eagle3", **_drafts(options), **({"model": head} if head else {})}


def _draft_model(options: Mapping[str, str]) -> Speculation:
    draft = options.get("draft", "")
    if not draft or draft.startswith(("self:", "shape:")):
        raise ValueError(f"draft: {draft!r} is not allowed for vLLM; give a model's name or directory")
    return {"method": "draft_model", "model": draft, **_drafts(options)}


def _ngram(options: Mapping[str, str]) -> Speculation:
    shortest, longest = (whole(key, options.get(key, default)) for key, default in (("min_n", "2"), ("max_n", "5")))
    return {"method": "ngram", **_drafts(options), "prompt_lookup_min": shortest, "prompt_lookup_max": longest}


def _drafts(options: Mapping[str, str]) -> Speculation:
    """The number of drafts, and how they are sampled if the arm sets it: our option is vLLM's key."""
    drafts: Speculation = {"num_speculative_tokens": whole("k", options.get("k", _DEFAULT_K))}
    return drafts | {key: value for key, value in options.items() if key == _SAMPLE_METHOD}


_MAPPED: dict[str, tuple[Sequence[str], Callable[[Mapping[str, str]], Speculation | None]]] = {
    "no-spec": ((), _none),
    "eagle": (("k", "head", _SAMPLE_METHOD), _eagle),
    "draft-model": (("k", "draft", _SAMPLE_METHOD), _draft_model),
    "ngram": (("k", "min_n", "max_n"), _ngram),
}


def acceptance(text: str) -> Speculation:
    """Keys that force acceptance; none for `real`."""
    forced = forced_acceptance(text, "vLLM")
    if forced is None:
        return {}
    how = "rates" if isinstance(forced, list) else "length"
    return {"rejection_sample_method": "synthetic", f"synthetic_acceptance_{how}": forced}


def json_or_text(value: str) -> Any:
    try:
        return parse_json(value)
    except ValueError:
        return value
