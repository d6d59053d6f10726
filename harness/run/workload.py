"""Loads the prompts of a run: of one data set, or of several in one workload."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from specbench.harness.engines.base import Model
from specbench.harness.registry import WORKLOADS, lookup
from specbench.harness.run.progress import Progress
from specbench.harness.spec.conditions import Conditions
from specbench.workloads.assets.resolve import resolve
from specbench.workloads.assets.table import asset_of_workload
from specbench.workloads.base import FROM_A_FILE, FROM_A_PATH, GENERATED, Workload, WorkloadRequest, file_of
from specbench.workloads.mixture import interleave, requests_of

_loader = partial(lookup, WORKLOADS, kind="dataset-name")


def check_data_sets(conditions: Conditions) -> None:
    """Checks what needs no model. ValueError for an unknown data set, for one that needs a tokenizer if there is none,
    for a path that is not read, and for one that is missing."""
    request = conditions.workload
    for name in request.names:
        if _needs_tokenizer(_loader(name)) and conditions.load_format == "dummy":
            raise ValueError(
                f"dataset_name: {name!r} needs a tokenizer, which --load-format dummy does not have; "
                "use --dataset-name random or sharegpt-lengths"
            )
        if request.path and name in GENERATED:
            raise ValueError(
                f"dataset_path: {request.path!r} is not allowed; {name} does not read a file: drop one of the two"
            )
        if name in FROM_A_FILE:
            file_of(request)
        is_stand_in = asset_of_workload(name) is not None and name not in FROM_A_PATH
        if is_stand_in and request.path and Path(request.path).expanduser().is_dir():
            raise ValueError(f"dataset_path: {request.path} is a directory; the data set {name} reads a file")


def load_workload(request: WorkloadRequest, model: Model, progress: Progress) -> Workload:
    """The prompts, in the order of submission. ValueError for data sets that cannot be loaded."""
    progress.say(f"loading {request.name}")
    return interleave({part.name: _load(part, request, model, progress) for part in requests_of(request)})


def _load(part: WorkloadRequest, whole: WorkloadRequest, model: Model, progress: Progress) -> Workload:
    asset = asset_of_workload(part.name)
    try:
        if part.path is None and asset is not None:
            resolve(asset.name, progress=progress.asset)  # fetched here, where progress is shown
        found: Workload = _loader(part.name)(replace(part, vocab_size=model.vocab_size), model.tokenizer)
    except ValueError as error:
        if part.name == whole.name:
            raise
        raise ValueError(f"{part.name}, {part.num_prompts} of {whole.num_prompts} prompts: {error}") from error
    return found


def _needs_tokenizer(load: Callable[..., Workload]) -> bool:
    """A loader that makes token ids itself has a default for this parameter."""
    return inspect.signature(load).parameters["tokenizer"].default is inspect.Parameter.empty
