"""A grid of temperatures: every prompt of a workload at each of them, in one run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from specbench.workloads.base import Workload

_AT = re.compile(r"@T=([0-9.e+-]{1,24})$")


def at_temperatures(workload: Workload, temperatures: Sequence[float]) -> Workload:
    """Each prompt once per temperature, in sequence, with the temperature in its id. Unchanged without temperatures."""
    if not temperatures:
        return workload
    prompts = tuple(
        replace(prompt, id=f"{prompt.id}@T={heat:g}", temperature=heat)
        for prompt in workload.prompts
        for heat in temperatures
    )
    words = ", ".join(f"{heat:g}" for heat in temperatures)
    return replace(workload, prompts=prompts, rule=f"{workload.rule}; each at temperatures {words}")


def temperature_of(prompt_id: str) -> float | None:
    """The temperature in the id of a prompt of such a grid; None for another id."""
    found = _AT.search(prompt_id)
    try:
        return float(found[1]) if found else None
    except ValueError:
        return None
