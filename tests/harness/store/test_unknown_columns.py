"""Columns of what an engine may not know: null, never a number; files from before such a column was there."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest
from run_samples import request

from specbench.harness.metrics.metrics import block_metrics
from specbench.harness.store.block_store import BlockStore
from specbench.harness.store.rows import RequestRow
from specbench.harness.store.schema import TABLES, build_table, hash_token_ids

BARE = RequestRow(0, "p0", 4, 3, "length", 0, 10, 30, output_text="a b c")
EMPTY = {name: build_table(name, "a", 0, []) for name in ("steps", "phases")}


def test_rows_of_an_engine_that_knows_texts_and_times():
    (row,) = build_table("requests", "a", 0, [BARE]).to_pylist()
    unknown = {name for name, value in row.items() if value is None}
    assert unknown == {"t_first_device_ns", "t_last_device_ns", "output_token_ids", "num_preemptions"}
    assert {c.name for c in TABLES["requests"] if c.fact is not None} == unknown | {"output_text", "output_sha256"}
    assert row["output_sha256"].startswith("text:")


@pytest.mark.parametrize("ids", [[], [1]])
def test_columns_of_unequal_length_are_refused(ids):
    with pytest.raises(ValueError, match="requests: columns of unequal length"):
        build_table("requests", "a", 0, {"request_id": ids, "prompt_id": ["x", "y"]})


def test_tokens_are_hashed_where_they_are_known():
    row = BARE._replace(output_token_ids=[1, 2, 3])
    assert build_table("requests", "a", 0, [row]).to_pylist()[0]["output_sha256"] == hash_token_ids([1, 2, 3])


def test_what_every_engine_knows_may_not_be_missing():
    with pytest.raises(ValueError, match="requests.t_first_ns: 1 values are missing"):
        build_table("requests", "a", 0, [BARE._replace(t_first_ns=None)])  # type: ignore[arg-type]


def test_figures_of_the_unknown_are_none():
    frames = {name: table.to_pandas() for name, table in EMPTY.items()}
    figures = block_metrics(build_table("requests", "a", 0, [BARE]).to_pandas(), **frames).values
    assert figures["tpot_ms.mean"] == pytest.approx(1e-5) and figures["ttft_device_ms.mean"] is None
    for name in ("num_preemptions", "num_decode_rounds", "num_mixed_steps", "decode_tps", "syncs_per_round"):
        assert figures[name] is None, name
    assert figures["acceptance.num_verifications"] is None


def test_a_file_without_the_newest_column(tmp_path):
    tables = {"requests": build_table("requests", "a", 0, [request(0, first_ms=1, last_ms=2, num_output_tokens=2)])}
    for name, table in {**tables, **EMPTY}.items():
        columns = [c for c in table.column_names if c != "output_text"]
        pq.write_table(table.select(columns), tmp_path / f"{name}.parquet")
    (row,) = BlockStore(tmp_path).tables()["requests"].to_pylist()
    assert row["output_text"] is None and row["num_output_tokens"] == 2


@pytest.mark.parametrize("name", ["output_token_ids", "t_last_device_ns", "num_preemptions", "t_first_ns"])
def test_a_file_without_a_column_that_was_always_there(tmp_path, name):
    tables = {"requests": build_table("requests", "a", 0, [BARE]).drop_columns([name]), **EMPTY}
    for table_name, table in tables.items():
        pq.write_table(table, tmp_path / f"{table_name}.parquet")
    with pytest.raises(ValueError, match=f"requests.parquet: has no column {name}"):
        BlockStore(tmp_path).tables()


def test_a_file_with_a_column_of_another_version(tmp_path):
    more = {"requests": build_table("requests", "a", 0, [BARE]).append_column("mood", [["good"]]), **EMPTY}
    for table_name, table in more.items():
        pq.write_table(table, tmp_path / f"{table_name}.parquet")
    with pytest.raises(ValueError, match="requests.parquet: has a column mood of string"):
        BlockStore(tmp_path).tables()
