"""Rows that cannot be measurements are refused before a figure is made of them."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from run_samples import begun, chain_block

from specbench.harness.metrics.run_results import results
from specbench.harness.store.rows import MAX_DRAFTS, MAX_TOKENS
from specbench.harness.store.run_directory import RunDirectory


@pytest.fixture
def run(tmp_path) -> RunDirectory:
    run = RunDirectory.create(tmp_path, "test", begun("no-spec", "eagle:k=4"))
    for arm in ("no-spec", "eagle:k=4"):
        run.append(arm, 0, **chain_block([1, 2]))
    run.finish(results(run.frames()))
    return run


def change(run: RunDirectory, table: str, column: str, value: object) -> None:
    """The column's value in the first row."""
    path = run.path / f"{table}.parquet"
    rows = pq.read_table(path)
    place, field = rows.schema.get_field_index(column), rows.schema.field(column)
    values = [value, *rows[column].to_pylist()[1:]]
    pq.write_table(rows.set_column(place, field, pa.array(values, field.type)), path)


@pytest.mark.parametrize(
    ("table", "column", "value", "words"),
    [
        ("requests", "num_output_tokens", -1, "requests: num_output_tokens is -1; allowed: 0 or more"),
        ("requests", "repeat", None, "requests: repeat is missing; allowed: which repeat of the arm, from 0"),
        ("requests", "repeat", -5, "requests: repeat is -5; allowed: 0 or more"),
        ("requests", "request_id", 1, "requests: request_id 1 of eagle:k=4, repeat 1 stands 2 times; allowed: once"),
        ("requests", "t_first_ns", -(1 << 40), "requests: t_first_ns is -1099511627776; allowed: t_submit_ns, "),
        ("requests", "t_last_ns", 0, "requests: t_last_ns is 0; allowed: t_first_ns, "),
        ("requests", "t_first_ns", None, "requests: t_first_ns is missing of a request with tokens; allowed: a time"),
        ("requests", "arm", "egle", "requests: arm is 'egle'; allowed: no-spec, eagle:k=4"),
        ("steps", "num_accepted", -5, f"steps: num_accepted is -5; allowed: 0 to {MAX_DRAFTS}"),
        ("steps", "num_accepted", 2147483647, f"steps: num_accepted is 2147483647; allowed: 0 to {MAX_DRAFTS}"),
        ("steps", "num_accepted", 1, "steps: num_accepted is 1; allowed: 0 to 0 (num_proposed)"),
        ("requests", "prompt_id", None, "requests: prompt_id is missing; allowed: the workload's id of the prompt"),
        ("steps", "num_emitted", 2147483647, f"steps: num_emitted is 2147483647; allowed: 0 to {MAX_TOKENS}"),
        ("steps", "draft_depth", 5, "steps: draft_depth is 5; allowed: 0, since num_proposed is 0"),
        (
            "steps",
            "num_proposed",
            None,
            "steps: num_proposed is missing; allowed: a number, since num_accepted has one",
        ),
        ("steps", "batch_size", 0, "steps: batch_size is 0; allowed: 1 or more"),
        ("phases", "duration_ns", -1, "phases: duration_ns is -1; allowed: 0 or more"),
    ],
)
def test_a_row_that_is_no_measurement(run, table, column, value, words):
    assert len(run.frames().requests) == 8
    change(run, table, column, value)
    with pytest.raises(ValueError, match=re.escape(f"{run.path}: {words}")):
        RunDirectory.open(run.path).frames()


def test_rows_of_a_tree_that_is_said_to_be_deeper_than_its_nodes_are_read(run):
    """As SGLang's trees of few nodes once were."""
    change(run, "steps", "num_proposed", 3)
    change(run, "steps", "draft_depth", 5)
    assert RunDirectory.open(run.path).frames().steps["draft_depth"].eq(5).any()
