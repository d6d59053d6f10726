"""What an evaluation leaves behind: outputs of items as they come, scores of an arm at its end."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa

from specbench.harness.engines.base import RowSink
from specbench.harness.metrics.accuracy import ACCURACY_SCHEMA, with_direction
from specbench.harness.run.block_sink import BlockSink
from specbench.harness.run.interrupts import deferred_interrupt
from specbench.harness.run.progress import Progress
from specbench.harness.store.files import write_parquet
from specbench.harness.store.journal import OpenBlock
from specbench.harness.store.rows import RequestRow
from specbench.harness.store.run_directory import RunDirectory

if TYPE_CHECKING:
    from lm_eval.result_schema import EvalResults

Row = dict[str, str | int | float | bool | None]
TABLE = "accuracy.parquet"
FAILURE = 1_000_000  # block of a failed arm, apart from those that hold outputs


class RunStore:
    """Outputs of one arm in a run directory: a stored block is a batch of items."""

    def __init__(self, directory: RunDirectory, label: str, progress: Progress):
        self._directory, self._label, self._progress = directory, label, progress
        rows = directory.frames().requests
        own = rows[(rows["arm"] == label) & (rows["request_id"] >= 0)]
        self._known = {row.prompt_id: row for row in map(_request_row, own.to_dict("records"))}
        # Past every earlier block, of other tasks too: a block appended under the same number would replace it.
        self._next = int(own["repeat"].max()) + 1 if len(own) else 0
        self._block: OpenBlock | None = None

    def known(self) -> Mapping[str, RequestRow]:
        return self._known

    def num_tokens(self) -> dict[tuple[str, int], int]:
        """Output tokens by task and item."""
        found = {}
        for key, row in self._known.items():
            task, item, _ = key.rsplit("/", 2)
            found[task, int(item)] = row.num_output_tokens
        return found

    def start(self, num_known: int, num_requests: int) -> None:
        if num_known:
            self._progress.say(f"{self._label}: {num_known} outputs are there already")
        if num_requests:
            self._progress.start_block(self._label, num_requests)

    def begin(self, num_requests: int) -> RowSink:
        self._block = self._directory.begin_block(self._label, self._next, num_requests)
        return BlockSink(self._block, self._progress)

    def put(self) -> None:
        """Items are nothing to each other: a batch that was cut short is stored as what it came to."""
        assert self._block is not None, "no batch was begun"
        block, self._block = self._block, None
        if not block.requests:
            block.keep()
            return
        with deferred_interrupt():
            self._directory.finish_block(self._label, self._next, block)
        self._next += 1
        self._known |= {row.prompt_id: row for row in block.requests}


def _request_row(values: Mapping[Hashable, Any]) -> RequestRow:
    """Of a stored row, what an output is made of; pandas has floats and NaN where a number is missing."""
    ids, text = values["output_token_ids"], values.get("output_text")
    return RequestRow(
        request_id=values["request_id"],
        prompt_id=str(values["prompt_id"]),
        num_prompt_tokens=values["num_prompt_tokens"],
        num_output_tokens=values["num_output_tokens"],
        finish_reason=values["finish_reason"],
        t_submit_ns=values["t_submit_ns"],
        t_first_ns=values["t_first_ns"],
        t_last_ns=values["t_last_ns"],
        output_token_ids=None if ids is None else list(ids),
        output_text=text if isinstance(text, str) else None,
    )


def score_rows(label: str, found: EvalResults, store: RunStore) -> list[Row]:
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


def _direction(found: EvalResults, task: str, metric: str) -> bool | None:
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


def append_scores(path: Path, scored: list[Row]) -> None:
    """Adds an arm's rows to `accuracy.parquet` of the run directory `path`."""
    new = pa.Table.from_pylist(scored, schema=ACCURACY_SCHEMA)
    old = pa.Table.from_pandas(read_accuracy(path), schema=ACCURACY_SCHEMA, preserve_index=False)
    write_parquet(path / TABLE, pa.concat_tables([old, new]))
