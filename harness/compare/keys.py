"""What must be the same for two runs' figures to be compared: hardware, workload, sampling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

UNKNOWN = "unknown"
GROUPS = ("hardware", "workload", "sampling")


@dataclass(frozen=True, kw_only=True, slots=True)
class Mismatch:
    """One key that differs: `first` is the value of the run that the other is compared with."""

    run: str
    group: str
    key: str
    first: str
    second: str

    def describe(self) -> str:
        return f"{self.group}: {self.key}: {self.first} and {self.second}"


def comparison_keys(manifest: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """The keys of a run by group, as text; `unknown` where the run does not say."""
    environment = manifest.get("environment") or {}
    hardware, threads = environment.get("hardware") or {}, environment.get("threads") or {}
    workload, sampling = manifest.get("workload") or {}, manifest.get("sampling") or {}
    config, model = manifest.get("config") or {}, manifest.get("model") or {}
    config = config if isinstance(config, Mapping) else {}
    sampling = sampling or (config.get("sampling") or config)
    return {
        "hardware": _hardware(hardware, threads),
        "workload": {
            "model": _text(model.get("name") if isinstance(model, Mapping) else model),
            "name": _text(workload.get("name")),
            "prompts sha256": _text(workload.get("sha256"))[:12],
            "number of prompts": _text(workload.get("num_prompts")),
            "max concurrency": _text(sampling.get("max_concurrency")),
            "request rate": _text(sampling.get("request_rate")),
            "burstiness": _text(sampling.get("burstiness", config.get("burstiness"))),
        },
        "sampling": {
            name: _text(sampling.get(name)) for name in ("temperature", "top_k", "top_p", "ignore_eos", "seed")
        },
    }


def mismatches(run: str, first: Mapping[str, Any], second: Mapping[str, Any]) -> list[Mismatch]:
    """What the manifest `second` (of `run`) differs in from `first`, key by key."""
    keys = comparison_keys(first), comparison_keys(second)
    return [
        Mismatch(run=run, group=group, key=key, first=value, second=keys[1][group][key])
        for group in GROUPS
        for key, value in keys[0][group].items()
        if value != keys[1][group][key]
    ]


def same_prompts(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Whether requests of both can be paired by prompt: the hash of the exact prompts is known and the same."""
    hashes = [(m.get("workload") or {}).get("sha256") for m in (first, second)]
    return bool(hashes[0]) and hashes[0] == hashes[1]


def software_changes(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    """Versions that differ: no reason to refuse, they may be what is compared, but to be seen."""
    found = [_versions(m) for m in (first, second)]
    names = [*found[0], *(name for name in found[1] if name not in found[0])]
    pairs = ((name, found[0].get(name, UNKNOWN), found[1].get(name, UNKNOWN)) for name in names)
    return [f"{name}: {a} and {b}" for name, a, b in pairs if a != b]


def unknown_groups(manifest: Mapping[str, Any]) -> list[str]:
    """Groups in which a run says nothing of some key, so that it cannot be told whether it matches."""
    keys = comparison_keys(manifest)
    required = {"hardware": ("GPU", "CPU"), "workload": ("prompts sha256",), "sampling": ("temperature",)}
    return [group for group, names in required.items() if any(keys[group][name] == UNKNOWN for name in names)]


def _hardware(hardware: Mapping[str, Any], threads: Mapping[str, Any]) -> dict[str, str]:
    gpus: Sequence[Mapping[str, Any]] = hardware.get("gpus") or []
    cpu = hardware.get("cpu") or {}
    names = [str(gpu.get("name")) for gpu in gpus]
    return {
        "GPU": ", ".join(f"{names.count(name)}x {name}" for name in dict.fromkeys(names))
        or ("none" if hardware else UNKNOWN),
        "driver": ", ".join(sorted({_text(gpu.get("driver")) for gpu in gpus})) or "none",
        "power limit W": ", ".join(sorted({_text(gpu.get("power_limit_w")) for gpu in gpus})) or "none",
        "CPU": _text(cpu.get("model")),
        "CPU cores": _text(cpu.get("usable_cores") or cpu.get("logical_cores")),
        "threads": _text(threads.get("torch_intra_op")),
    }


def _versions(manifest: Mapping[str, Any]) -> dict[str, str]:
    software = (manifest.get("environment") or {}).get("software") or {}
    git = manifest.get("git") or {}
    versions = {"specbench commit": git.get("sha"), "local changes": git.get("dirty")}
    versions |= {"python": software.get("python"), "CUDA of torch": software.get("torch_cuda")}
    return {name: _text(v) for name, v in (versions | dict(software.get("packages") or {})).items() if v is not None}


def _text(value: Any) -> str:
    return UNKNOWN if value is None else str(value)
