"""Arms as command lines of llama-server. Pure; names checked against the llama.cpp of llama-cpp-python 0.3.36."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from specbench.harness.engines.served.asked import forced_acceptance, refuse_switches, whole
from specbench.harness.spec.arm import GRAPH_PART_KEYS, ArmConfig
from specbench.harness.spec.conditions import Conditions

_DEFAULT_K = "4"
_NGRAM_KINDS = ("simple", "map-k", "map-k4v", "mod", "cache")
_OF_DRAFTERS = ("draft-dflash", "draft-dspark", "draft-mtp")  # methods of drafters that we do not have
_OURS_ALONE = {
    "naive-eagle": "naive-eagle reproduces an old version in our engine; llama.cpp has the same chain as eagle",
    "eagle-topk": "llama.cpp drafts no trees with EAGLE-3; use eagle",
}
_REFUSED = {
    "graph": "llama.cpp has no switch for CUDA graphs",
    "attention": "llama.cpp has its own kernels; engine.flash-attn=on|off|auto is its switch",
    "attention_drafter": "llama.cpp has its own kernels",
    "drafter": "llama.cpp does not pad drafter batches",
    "sync": "llama.cpp has no switch for when it waits for the device",
    "state_update": "llama.cpp has its own kernels between two rounds",
    "status_lag": "llama.cpp reads every step's result immediately",
    "ref": "its server is compiled; build each revision and name it with --engine-python",
    "url": "it is started here; use engine openai for an address",
    **dict.fromkeys(GRAPH_PART_KEYS, "llama.cpp has no switch for CUDA graphs"),
}
_OUR_OWN = ("model", "host", "port", "alias", "parallel", "ctx-size", "spec-type")  # must be the same for every engine


@dataclass(frozen=True, kw_only=True, slots=True)
class Speculation:
    """`kind`: value of --spec-type. `draft`: the head or drafter as named by the arm, and whether one is required."""

    kind: str
    num_drafts: int
    draft: str = ""
    needs_draft: bool = False
    words: tuple[str, ...] = ()


def speculation(arm: ArmConfig) -> Speculation | None:
    """None without speculation. ValueError for what llama.cpp cannot do, with the reason."""
    name, options = arm.strategy, dict(arm.options)
    if name in _OURS_ALONE:
        raise ValueError(f"strategy: {name!r} is not allowed; {_OURS_ALONE[name]}")
    allowed = {
        "no-spec": (),
        "eagle": ("k", "head"),
        "draft-model": ("k", "draft"),
        "ngram": ("k", "max_n", "kind"),
    }.get(name, ("k", "draft") if name in _OF_DRAFTERS else None)
    if allowed is None:
        known = (*("no-spec", "eagle", "draft-model", "ngram"), *_OF_DRAFTERS)
        raise ValueError(f"strategy: {name!r} is not a method of llama.cpp; allowed: {', '.join(known)}")
    for key in options:
        if key not in allowed:
            raise ValueError(
                f"{key}: {options[key]!r} cannot be given to llama.cpp's {name}; allowed: "
                f"{', '.join(allowed) or 'no options'}, or engine.OPTION=VALUE for an option of llama-server"
            )
    if name == "no-spec":
        return None
    k = whole("k", options.get("k", _DEFAULT_K))
    if name == "ngram":
        return _ngram(k, options)
    draft = options.get("head" if name == "eagle" else "draft", "")
    if name == "draft-model" and (not draft or draft.startswith(("self:", "shape:"))):
        raise ValueError(f"draft: {draft!r} is not allowed for llama.cpp; give a model's name, directory or .gguf")
    kind = {"eagle": "draft-eagle3", "draft-model": "draft-simple"}.get(name, name)
    return Speculation(kind=kind, num_drafts=k, draft=draft, needs_draft=name != "draft-mtp")


def _ngram(k: int, options: Mapping[str, str]) -> Speculation:
    """Our n-gram drafter tries several lengths, longest first; llama.cpp uses one, here our longest."""
    kind = options.get("kind", "simple")
    if kind not in _NGRAM_KINDS:
        raise ValueError(f"kind: {kind!r} is not allowed; allowed: {', '.join(_NGRAM_KINDS)}")
    n = str(whole("max_n", options.get("max_n", "5")))
    words: tuple[str, ...] = ()
    if kind == "mod":
        words = ("--spec-ngram-mod-n-match", n, "--spec-ngram-mod-n-min", "1", "--spec-ngram-mod-n-max", str(k))
    elif kind != "cache":
        words = (f"--spec-ngram-{kind}-size-n", n, f"--spec-ngram-{kind}-size-m", str(k))
    return Speculation(kind=f"ngram-{kind}", num_drafts=k, words=words)


def refuse(arm: ArmConfig) -> None:
    """ValueError with the reason for a switch that llama.cpp does not have."""
    refuse_switches(arm, "llama.cpp", _REFUSED)
    for key in arm.own_config:
        if key.replace("_", "-") in _OUR_OWN:
            raise ValueError(f"engine.{key}: is not allowed; all engines get the same model and prompts")
    acceptance(arm)


def acceptance(arm: ArmConfig) -> list[str]:
    """Options that force acceptance; none for `real`."""
    forced = forced_acceptance(arm.engine.get("acceptance", "real"), "llama.cpp")
    if forced is None:
        return []
    if isinstance(forced, list):
        return ["--spec-synth-rates", ",".join(map(str, forced))]
    return ["--spec-synth-len", str(forced)]


def words(
    arm: ArmConfig,
    spoken: Speculation | None,
    conditions: Conditions,
    *,
    binary: Path,
    model: Path,
    draft: Path | None,
    dtype: str,
    is_cpu: bool,
) -> list[str]:
    """The command line, without the address to listen on. `model` and `draft`: .gguf files."""
    c = conditions
    layers = "0" if is_cpu else "all"
    cache = "f32" if dtype == "float32" else "bf16" if dtype == "bfloat16" else "f16"
    found = [
        *(str(binary), "--model", str(model), "--parallel", str(c.max_concurrency), "--metrics", "--no-webui"),
        *("--ctx-size", str(c.max_concurrency * c.max_model_len), "--batch-size", str(c.max_num_batched_tokens)),
        *("--cache-type-k", cache, "--cache-type-v", cache, "--gpu-layers", layers, "--cache-ram", "0", "--offline"),
    ]
    if spoken is not None:
        found += ["--spec-type", spoken.kind, "--spec-draft-n-max", str(spoken.num_drafts), *spoken.words]
        found += acceptance(arm)
    if draft is not None:
        found += ["--spec-draft-model", str(draft), "--spec-draft-ngl", layers]
        found += ["--spec-draft-type-k", cache, "--spec-draft-type-v", cache]
    for key, value in arm.own_config.items():
        option = f"--{key.replace('_', '-')}"
        found += [option] if value == "true" else [option, value]
    return found
