"""What must be the same on both sides: prompts, sampling and load, hardware."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specbench.harness.measure.environment import hardware_line


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """What two run manifests differ in that keeps their figures from being compared, a line each."""
    keys_a, keys_b = _keys(a), _keys(b)
    names = [*keys_a, *(name for name in keys_b if name not in keys_a)]
    return [
        f"{name}: {keys_a.get(name)} and {keys_b.get(name)}" for name in names if keys_a.get(name) != keys_b.get(name)
    ]


def _keys(manifest: Mapping[str, Any]) -> dict[str, Any]:
    workload = manifest.get("workload") or {}
    sampling = manifest.get("sampling") or {}
    return {
        "workload sha256": str(workload.get("sha256"))[:12],
        "number of prompts": workload.get("num_prompts"),
        **{name: sampling[name] for name in sorted(sampling)},
        "hardware": hardware_line(manifest.get("environment") or {}),
    }


def same_arm(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Whether two resolved configurations (RunConfig.to_dict of one arm each) ask for the same, whatever its label."""

    def unnamed(config: Mapping[str, Any]) -> dict[str, Any]:
        return {**config, "arms": [{k: v for k, v in arm.items() if k != "label"} for arm in config["arms"]]}

    return unnamed(a) == unnamed(b)


def arm_name(arm: Mapping[str, Any]) -> str:
    """`strategy:key=value,...` of an arm of a configuration, whatever its label."""
    pairs = ",".join(f"{key}={value}" for key, value in {**arm["options"], **arm["engine"]}.items())
    return f"{arm['strategy']}:{pairs}" if pairs else str(arm["strategy"])
