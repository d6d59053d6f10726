"""Tables come back as they were written, and rows of clocks take little space."""

import random

import pyarrow as pa
import pyarrow.parquet as pq

from specbench.harness.store.files import write_parquet


def test_every_kind_of_column_comes_back(tmp_path):
    table = pa.table(
        {
            "t_ns": pa.array([5, None, -(1 << 62), 1 << 62], pa.int64()),
            "kind": pa.array(["decode", None, "", "decode"]),
            "num_rows": pa.array([0, 1, 255, 7], pa.uint8()),
            "token_ids": pa.array([[1, 2, 3], [], None, [70000]], pa.list_(pa.field("element", pa.int32()))),
            "tpot_ms": pa.array([0.5, None, 1e-30, 2.0]),
            "is_prefill": pa.array([True, False, None, True]),
        },
        metadata={"specbench.block": "1"},
    )
    for each in (table, table.slice(0, 0), table.select(["t_ns"]), table.select(["kind"])):
        write_parquet(tmp_path / "t.parquet", each)
        found = pq.read_table(tmp_path / "t.parquet")
        assert found.equals(each) and found.schema.equals(each.schema, check_metadata=True)


def test_clocks_are_small(tmp_path):
    rng, now, times = random.Random(0), 10**18, []
    for _ in range(5000):
        now += 1_000_000 + rng.randrange(30_000)
        times += [now] * 4  # the requests of a step share its clock
    write_parquet(tmp_path / "t.parquet", pa.table({"t_ns": times}))
    pq.write_table(pa.table({"t_ns": times}), tmp_path / "plain.parquet", compression="zstd")
    assert (tmp_path / "t.parquet").stat().st_size < 0.6 * (tmp_path / "plain.parquet").stat().st_size
