"""What an evaluation stores: the output of each item as it arrives, and an arm's scores at its end."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from specbench.harness.engines.load import PromptRequest, cut_at_stop
from specbench.harness.metrics.accuracy import ACCURACY_SCHEMA, TABLE, read_accuracy
from specbench.harness.quality.lm_evaluation.tasks import is_pair
from specbench.harness.run.interrupts import deferred_interrupt
from specbench.harness.store.files import write_parquet
from specbench.harness.store.journal import OpenBlock
from specbench.harness.store.rows import RequestRow
from specbench.harness.store.run_directory import RunDirectory
from specbench.workloads.base import ChatTokenizer

if TYPE_CHECKING:
    from lm_eval.result_schema import EvalResults

Row = dict[str, str | int | float | bool | None]
FAILURE = 1_000_000  # block of a failed arm, apart from those that hold outputs


class ItemStore:
    """Outputs of one arm in a run directory: a stored block is a batch of items. `number`: of the next block."""

    def __init__(self, directory: RunDirectory, label: str):
        self._directory, self._label = directory, label
        rows = directory.frames().requests
        rows = rows[(rows["arm"] == label) & (rows["request_id"] >= 0)]
        stored = rows[[name for name in RequestRow._fields if name in rows]].to_dict("records")
        self._known = {str(values["prompt_id"]): RequestRow(**values) for values in stored}
        # Past every earlier block, of other tasks too: a block appended under the same number would replace it.
        self.number = int(rows["repeat"].max()) + 1 if len(rows) else 0

    def texts(self, requests: Sequence[PromptRequest], tokenizer: ChatTokenizer | None) -> dict[str, str]:
        """Texts of the requests that are stored, by key."""
        texts = {}
        for request in requests:
            if (row := self._known.get(request.key)) is None:
                continue
            if row.output_token_ids is None:
                assert row.output_text is not None, "an output without tokens and text"
                texts[request.key] = row.output_text
            elif tokenizer is not None:
                texts[request.key] = cut_at_stop(tokenizer.decode(list(row.output_token_ids)), request.stop)
        return texts

    def num_tokens(self) -> dict[tuple[str, int], int]:
        """Output tokens by task and item."""
        places = {key: key.rsplit("/", 2) for key in self._known}
        return {(task, int(item)): self._known[key].num_output_tokens for key, (task, item, _) in places.items()}

    def begin(self, num_requests: int) -> OpenBlock:
        return self._directory.begin_block(self._label, self.number, num_requests)

    def put(self, block: OpenBlock) -> None:
        """Items are independent, so an interrupted batch is stored too, with the items that had ended."""
        if not block.requests:
            block.keep()
            return
        with deferred_interrupt():
            self._directory.finish_block(self._label, self.number, block)
        self.number += 1
        self._known |= {row.prompt_id: row for row in block.requests}


def score_rows(label: str, evaluated: EvalResults, num_tokens: dict[tuple[str, int], int]) -> list[Row]:
    """One row per item, filter and metric, from lm-eval's samples. ValueError for a task without any."""
    unscored = pairs_of(evaluated)
    for task, samples in evaluated["samples"].items():
        if all(metric in unscored[task] for sample in samples for metric in sample["metrics"]):
            raise ValueError(f"tasks: {task}: its items have no scores of their own, by which arms are compared")
    return [
        dict(
            arm=label,
            task=task,
            item=sample["doc_id"],
            filter=sample["filter"],
            metric=metric,
            version=str(evaluated["versions"].get(task, "")),
            num_fewshot=int(evaluated["n-shot"].get(task, 0)),
            value=float(sample[metric]),
            output_sha256=hashlib.sha256(repr(sample["resps"]).encode()).hexdigest(),
            num_output_tokens=num_tokens.get((task, sample["doc_id"])),
            higher_is_better=_direction(evaluated, task, metric),
        )
        for task, samples in evaluated["samples"].items()
        for sample in samples
        for metric in sample["metrics"]
        if metric not in unscored[task]
    ]


def pairs_of(evaluated: EvalResults) -> dict[str, list[str]]:
    """By task, the metrics that only all items together have, such as F1: of an item, lm-eval gives a pair."""
    return {
        task: sorted({name for each in samples for name in each["metrics"] if is_pair(each[name])})
        for task, samples in evaluated["samples"].items()
    }


def _direction(evaluated: EvalResults, task: str, metric: str) -> bool | None:
    """Whether a higher value of an item is better, according to lm-eval's metric.

    None if it is not recorded, or if the metric is not the mean of its items: a lower perplexity is better, but its
    items are log-likelihoods, where higher is better.
    """
    from lm_eval.api.registry import get_aggregation, get_metric_aggregation

    listed = evaluated["configs"][task].get("metric_list")
    entry = next((m for m in listed or () if m["metric"] == metric), None)
    if entry is not None and "aggregation" in entry:
        is_mean = entry["aggregation"] == "mean"
    else:  # a task's own metric is averaged
        is_mean = get_metric_aggregation(metric) in (None, get_aggregation("mean"))
    is_higher = evaluated["higher_is_better"].get(task, {}).get(metric)
    return bool(is_higher) if is_higher is not None and is_mean else None


def append_scores(path: Path, scored: list[Row]) -> None:
    """Adds an arm's rows to `accuracy.parquet` of the run directory `path`."""
    new = pa.Table.from_pylist(scored, schema=ACCURACY_SCHEMA)
    old = pa.Table.from_pandas(read_accuracy(path), schema=ACCURACY_SCHEMA, preserve_index=False)
    write_parquet(path / TABLE, pa.concat_tables([old, new]))
