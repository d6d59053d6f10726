"""Rows of a run's tables that cannot be measurements, and are refused before a figure is made of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from specbench.harness.store.arm_record import ArmRecord
from specbench.harness.store.rows import MAX_DRAFTS, MAX_TOKENS
from specbench.harness.store.schema import TABLES

# By table and column: the smallest and the largest value.
_ALLOWED: Mapping[str, Mapping[str, tuple[int, int | None]]] = {
    "requests": dict.fromkeys(("repeat", "num_prompt_tokens", "num_output_tokens", "num_preemptions"), (0, None)),
    "steps": {
        "repeat": (0, None),
        "batch_size": (1, None),
        "num_proposed": (0, MAX_DRAFTS),
        "draft_depth": (0, MAX_DRAFTS),
        "num_accepted": (0, MAX_DRAFTS),
        "num_emitted": (0, MAX_TOKENS),
    },
    "phases": {"repeat": (0, None), "duration_ns": (0, None)},
}


def check_rows(tables: Mapping[str, pa.Table], path: Path) -> None:
    """ValueError naming the run, the table, the column and the first value that is not allowed."""
    problem = next(_problems(tables), None)
    if problem:
        raise ValueError(f"{path}: {problem}; restore the table from a copy")


def check_arms(tables: Mapping[str, pa.Table], arms: Sequence[ArmRecord], path: Path) -> None:
    """ValueError for rows of an arm that the run's record does not have."""
    labels = [arm.label for arm in arms]
    for name, table in tables.items():
        for arm in sorted(set(pc.unique(table["arm"]).to_pylist()) - set(labels)):
            raise ValueError(
                f"{path}: {name}: arm is {arm!r}; allowed: {', '.join(labels)}; restore the table from a copy"
            )


def _problems(tables: Mapping[str, pa.Table]) -> Iterator[str]:
    for name, columns in _ALLOWED.items():
        for column, (least, most) in columns.items():
            values = tables[name][column]
            found = pc.min_max(values)
            low, high = found["min"].as_py(), found["max"].as_py()
            allowed = f"{least} or more" if most is None else f"{least} to {most}"
            if low is not None and low < least:
                yield f"{name}: {column} is {low}; allowed: {allowed}"
            if high is not None and most is not None and high > most:
                yield f"{name}: {column} is {high}; allowed: {allowed}"
    requests, steps = tables["requests"], tables["steps"]
    no_drafts = pc.equal(steps["num_proposed"], 0)  # with some, older rows of SGLang's trees may say a depth of more
    for row in steps.filter(pc.and_(no_drafts, pc.greater(steps["draft_depth"], 0))).slice(0, 1).to_pylist():
        yield f"steps: draft_depth is {row['draft_depth']}; allowed: 0, since num_proposed is 0"
    if steps.filter(pc.and_(pc.is_null(steps["num_proposed"]), pc.is_valid(steps["num_accepted"]))).num_rows:
        yield "steps: num_proposed is missing; allowed: a number, since num_accepted has one"
    for row in steps.filter(pc.greater(steps["num_accepted"], steps["num_proposed"])).slice(0, 1).to_pylist():
        yield f"steps: num_accepted is {row['num_accepted']}; allowed: 0 to {row['num_proposed']} (num_proposed)"
    answered = requests.filter(pc.greater(requests["num_output_tokens"], 0))
    for column in ("t_submit_ns", "t_first_ns", "t_last_ns"):
        if answered[column].null_count:
            yield f"requests: {column} is missing of a request with tokens; allowed: a time"
    for earlier, later in (("t_submit_ns", "t_first_ns"), ("t_first_ns", "t_last_ns")):
        wrong = answered.filter(pc.less(answered[later], answered[earlier])).slice(0, 1)
        for row in wrong.to_pylist():
            yield f"requests: {later} is {row[later]}; allowed: {earlier}, {row[earlier]}, or more"
    for name, table in tables.items():
        for known in TABLES[name]:
            if known.fact is None and not known.is_newer and table[known.name].null_count:
                yield f"{name}: {known.name} is missing; allowed: {known.doc}"
    keys = ["arm", "repeat", "request_id"]
    counted = requests.select(keys).group_by(keys).aggregate([([], "count_all")])
    for row in counted.filter(pc.greater(counted["count_all"], 1)).slice(0, 1).to_pylist():
        where = f"{row['arm']}, repeat {row['repeat'] + 1}"
        yield f"requests: request_id {row['request_id']} of {where} stands {row['count_all']} times; allowed: once"
