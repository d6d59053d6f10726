"""What an evaluation leaves behind: outputs of items as they come, scores of an arm at its end."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from specbench.harness.engine.request import Request
from specbench.harness.metrics.accuracy import ACCURACY_SCHEMA, with_direction
from specbench.harness.run.interrupts import deferred_interrupt
from specbench.harness.run.prepare import Progress
from specbench.harness.store.files import write_parquet
from specbench.harness.store.run_directory import RunDirectory

from .generation import GeneratedBlock

TABLE = "accuracy.parquet"
FAILURE = 1_000_000  # block of a failed arm, apart from those that hold outputs


class RunStore:
    """Outputs of one arm in a run directory: a stored block is a batch of items."""

    def __init__(self, directory: RunDirectory, label: str, progress: Progress):
        self._directory, self._label, self._progress = directory, label, progress
        rows = directory.frames().requests
        own = rows[(rows["arm"] == label) & (rows["request_id"] >= 0)]
        self._known: dict[str, list[int]] = {
            str(key): list(ids) for key, ids in zip(own["prompt_id"], own["output_token_ids"], strict=True)
        }
        # Past every earlier block, of other tasks too: a block appended under the same number would replace it.
        self._next = int(own["repeat"].max()) + 1 if len(own) else 0

    def known(self) -> Mapping[str, Sequence[int]]:
        return self._known

    def num_tokens(self) -> dict[tuple[str, int], int]:
        """Output tokens by task and item."""
        found = {}
        for key, ids in self._known.items():
            task, item, _ = key.rsplit("/", 2)
            found[task, int(item)] = len(ids)
        return found

    def start(self, num_known: int, num_requests: int) -> None:
        if num_known:
            self._progress.say(f"{self._label}: {num_known} outputs are there already")
        if num_requests:
            self._progress.start_block(self._label, self._next, num_requests)

    def request_done(self, request: Request) -> None:
        self._progress.request_done(request)

    def put(self, block: GeneratedBlock) -> None:
        with deferred_interrupt():
            self._directory.append(self._label, self._next, block.requests, block.steps)
        self._next += 1
        self._known |= {row["prompt_id"]: row["output_token_ids"] for row in block.requests}


def score_rows(label: str, found: Mapping[str, Any], store: RunStore) -> list[dict[str, Any]]:
    """One row an item, filter and metric, from lm-eval's samples."""
    rows = []
    num_tokens = store.num_tokens()
    for task, samples in found["samples"].items():
        for sample in samples:
            text = repr(sample["resps"])
            for metric in sample["metrics"]:
                rows.append(
                    dict(
                        arm=label,
                        task=task,
                        item=sample["doc_id"],
                        filter=sample["filter"],
                        metric=metric,
                        version=str(found["versions"].get(task, "")),
                        num_fewshot=int(found["n-shot"].get(task, 0)),
                        value=float(sample[metric]),
                        output_sha256=hashlib.sha256(text.encode()).hexdigest(),
                        num_output_tokens=num_tokens.get((task, sample["doc_id"])),
                        higher_is_better=_direction(found, task, metric),
                    )
                )
    return rows


def _direction(found: Mapping[str, Any], task: str, metric: str) -> bool | None:
    """Whether more is better of an item's value, as lm-eval says of the metric; None where it does not, or where the
    metric is no mean of its items: a perplexity is better the lower, made of log-likelihoods that are better the
    higher."""
    from lm_eval.api.registry import get_aggregation, get_metric_aggregation

    listed = found["configs"][task].get("metric_list")
    entry = next((m for m in listed or () if m["metric"] == metric), None)
    if entry is not None and "aggregation" in entry:
        is_mean = entry["aggregation"] == "mean"
    else:  # what a task makes up itself is averaged
        is_mean = get_metric_aggregation(metric) in (None, get_aggregation("mean"))
    said = found["higher_is_better"].get(task, {}).get(metric)
    return bool(said) if said is not None and is_mean else None


def read_accuracy(path: Path) -> pd.DataFrame:
    """The rows of a run directory's `accuracy.parquet`, none where there is no such file."""
    file = path / TABLE
    return with_direction(pd.read_parquet(file)) if file.exists() else ACCURACY_SCHEMA.empty_table().to_pandas()


def append_scores(path: Path, scored: list[dict[str, Any]]) -> None:
    """Adds an arm's rows to `accuracy.parquet` of the run directory `path`."""
    new = pa.Table.from_pylist(scored, schema=ACCURACY_SCHEMA)
    old = pa.Table.from_pandas(read_accuracy(path), schema=ACCURACY_SCHEMA, preserve_index=False)
    write_parquet(path / TABLE, pa.concat_tables([old, new]))
