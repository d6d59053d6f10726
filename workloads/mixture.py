"""Several data sets in one workload: each is loaded by its own rule, and their prompts take turns.

Taking turns gives every stretch of a run the same mixture, so that the rounds of a batch and the drift of a machine
are shared by all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain, zip_longest

from specbench.workloads.base import Workload, WorkloadRequest


def requests_of(request: WorkloadRequest) -> tuple[WorkloadRequest, ...]:
    """One request for each data set of a list. ``num_prompts`` is divided evenly; the first ones get the remainder."""
    share, remainder = divmod(request.num_prompts, len(request.names))
    return tuple(
        replace(request, name=name, num_prompts=share + (number < remainder))
        for number, name in enumerate(request.names)
    )


def interleave(parts: Mapping[str, Workload]) -> Workload:
    """The prompts of all parts, by data set, in turn. A prompt's id starts with its data set's name, which is also its
    category. A single part is returned as it is."""
    if len(parts) == 1:
        return next(iter(parts.values()))
    named = [
        [replace(prompt, id=f"{name}:{prompt.id}", category=name) for prompt in part.prompts]
        for name, part in parts.items()
    ]
    turns = chain.from_iterable(zip_longest(*named))
    rules = "; ".join(f"{name} ({len(part.prompts)} prompts): {part.rule}" for name, part in parts.items())
    return Workload(
        name=",".join(parts),
        prompts=tuple(prompt for prompt in turns if prompt is not None),
        rule=f"{rules}; the data sets take turns, prompt by prompt",
        source="; ".join(f"{name}: {part.source}" for name, part in parts.items()),
        synthetic=any(part.synthetic for part in parts.values()),
    )


def is_mixture(categories: Mapping[str, str]) -> bool:
    """Whether the categories of prompts, by prompt id, are data sets of one workload."""
    return len(set(categories.values())) > 1 and all(
        prompt_id.startswith(f"{category}:") for prompt_id, category in categories.items()
    )
