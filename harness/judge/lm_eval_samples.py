"""Files that lm-eval writes with `--log_samples`, for any model: one line per item and filter.

Format from lm_eval/evaluator.py and loggers/evaluation_tracker.py, 0.4.13: `doc_id`, `filter`, `metrics` (names, each a
key of its own), `resps`, and SHA-256 hashes of document, prompt and target. Whether higher is better is only in the
results file next to it, `results_<date>.json`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from specbench.harness.store.files import sha256_json
from specbench.workloads.guarded import numbered_lines, parse_json, read_json
from specbench.workloads.json_values import Json, JsonObject

_NAME = re.compile(r"samples_(?P<task>.+)_(?P<date>\d{4}-\d\d-\d\dT[\d:.-]+?)\.jsonl")
_OTHER_KEYS = frozenset(
    "doc_id doc target arguments resps filtered_resps filter metrics doc_hash prompt_hash target_hash".split()
)
_HASHES = ("doc_hash", "target_hash", "prompt_hash")
Place = tuple[int | str, str]  # doc_id, filter


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """One answer. Hashes are None if the file has none. `values`: by metric, as in the file."""

    doc_hash: str | None
    target_hash: str | None
    prompt_hash: str | None
    output_sha256: str
    values: Mapping[str, Json]


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleFile:
    """`task`: from the file's name, empty if that is not lm-eval's. `repeated`: places that occur more than once; it is
    unknown which one counts. `directions`: whether a higher mean is better, for metrics that record it."""

    path: Path
    task: str
    samples: Mapping[Place, Sample]
    repeated: frozenset[Place] = frozenset()
    directions: Mapping[str, bool] = field(default_factory=dict)


def read_samples(path: Path) -> SampleFile:
    """ValueError naming file and line if it is not an lm-eval sample file."""
    name = _NAME.fullmatch(path.name)
    samples: dict[Place, Sample] = {}
    repeated: set[Place] = set()
    try:
        lines = list(numbered_lines(path))
    except OSError as error:
        raise ValueError(f"samples: cannot read {path}: {error.strerror or error}") from error
    for number, line in lines:
        place, sample = _sample(line, f"samples: {path}, line {number}")
        if place in samples:
            repeated.add(place)
        samples[place] = sample
    if not samples:
        raise ValueError(f"samples: {path} has no items")
    return SampleFile(
        path=path,
        task=name["task"] if name else "",
        samples=samples,
        repeated=frozenset(repeated),
        directions=_directions(path.with_name(f"results_{name['date']}.json"), name["task"]) if name else {},
    )


def _sample(line: str, where: str) -> tuple[Place, Sample]:
    try:
        raw = parse_json(line)
    except ValueError as error:
        raise ValueError(f"{where}: not JSON ({error})") from error
    if not isinstance(raw, dict) or not isinstance(raw.get("doc_id"), (int, str)):
        raise ValueError(f"{where}: no item with a doc_id; allowed: what lm-eval writes with --log_samples")
    names = raw.get("metrics", [key for key in raw if key not in _OTHER_KEYS])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{where}: metrics: {names!r} is not allowed; allowed: a list of names")
    hashes = {name: raw[name] if isinstance(raw.get(name), str) else None for name in _HASHES}
    return (raw["doc_id"], str(raw.get("filter", "none"))), Sample(
        **hashes, output_sha256=sha256_json(raw.get("resps")), values={name: raw.get(name) for name in names}
    )


def _directions(path: Path, task: str) -> dict[str, bool]:
    """Of metrics that are means of their items: of a perplexity, items say nothing of the kind."""
    try:
        raw = read_json(path)
    except (OSError, ValueError):
        return {}  # not next to the samples: then no direction is recorded, and the table says so
    config = _at(_at(raw, "configs"), task)
    listed = config.get("metric_list")
    found = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    return {
        str(entry["metric"]): entry["higher_is_better"]
        for entry in found
        if entry.get("aggregation") == "mean" and isinstance(entry.get("higher_is_better"), bool)
    }


def _at(raw: Json, key: str) -> JsonObject:
    found = raw.get(key) if isinstance(raw, dict) else None
    return found if isinstance(found, dict) else {}
