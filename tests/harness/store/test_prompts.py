"""The token ids of the prompts, once for a run; directories of before are read as they are."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from run_samples import begun, chain_block

from specbench.harness.store.prompts import FILE, copy_prompts, read_categories, read_prompts, write_prompts
from specbench.harness.store.run_directory import RunDirectory
from specbench.workloads.assets.cache import read_sha256
from specbench.workloads.base import Prompt

ROOT = Path(__file__).resolve().parents[3]
PROMPTS = [
    Prompt(id=f"p{n}", token_ids=(1, 2, n), max_tokens=4 + n, text="", category="kind" * (n > 0)) for n in range(3)
]


def test_prompts_are_stored_once_and_hashed_at_the_end(tmp_path):
    run = RunDirectory.create(tmp_path, "x", begun("no-spec"))
    write_prompts(run.path, PROMPTS, has_ids=True)
    write_prompts(run.path, PROMPTS[:1], has_ids=True)
    assert read_prompts(run.path).to_pylist() == [
        {"prompt_id": f"p{n}", "token_ids": [1, 2, n], "max_tokens": 4 + n, "category": "kind" * (n > 0)}
        for n in range(3)
    ]
    run.append("no-spec", 0, **chain_block([0, 0], k=0))
    run.finish(None)
    assert run.record.files[FILE] == read_sha256(run.path / FILE)


def test_an_experiment_takes_the_prompts_of_its_first_block(tmp_path):
    for name in ("child", "other", "whole"):
        (tmp_path / name).mkdir()
    copy_prompts(tmp_path / "child", tmp_path / "whole")
    assert not (tmp_path / "whole" / FILE).exists()
    write_prompts(tmp_path / "child", PROMPTS, has_ids=True)
    write_prompts(tmp_path / "other", PROMPTS[:1], has_ids=True)
    for name in ("child", "other"):
        copy_prompts(tmp_path / name, tmp_path / "whole")
    assert len(read_prompts(tmp_path / "whole")) == 3


def test_a_table_of_other_columns_is_refused(tmp_path):
    parquet.write_table(pa.table({"x": [1]}), tmp_path / FILE)
    with pytest.raises(ValueError, match=r"prompts\.parquet: its columns are \['x'\]; allowed: \['prompt_id'"):
        read_prompts(tmp_path)


def test_a_damaged_table_is_told_before_a_resumed_run_measures(tmp_path):
    """It was read for the first time after the last block, which then could not be closed."""
    run = RunDirectory.create(tmp_path, "x", begun("no-spec"))
    run.check_tables()
    write_prompts(run.path, PROMPTS, has_ids=True)
    run.check_tables()
    (run.path / FILE).write_bytes(b"")
    with pytest.raises(
        ValueError, match=rf"{FILE}: not a readable .*; restore it from a copy, or remove it and resume"
    ):
        run.check_tables()


def test_categories_are_of_the_prompts_that_have_one(tmp_path):
    assert read_categories(tmp_path) == {}
    write_prompts(tmp_path, PROMPTS, has_ids=True)
    assert read_categories(tmp_path) == {"p1": "kind", "p2": "kind"}


def test_prompts_from_before_categories_have_none(tmp_path):
    write_prompts(tmp_path, PROMPTS, has_ids=True)
    parquet.write_table(parquet.read_table(tmp_path / FILE).drop_columns("category"), tmp_path / FILE)
    assert [row["category"] for row in read_prompts(tmp_path).to_pylist()] == [""] * 3
    assert read_categories(tmp_path) == {} and read_prompts(tmp_path)["prompt_id"].to_pylist() == ["p0", "p1", "p2"]


def test_stored_runs_of_before_have_none():
    (path, *_) = sorted((ROOT / "benchmarks" / "runs" / "cpu").iterdir())
    run = RunDirectory.open(path)
    assert FILE not in run.record.files and len(read_prompts(run.path)) == 0


def test_what_stands_in_for_token_ids_is_not_stored(tmp_path):
    """Pieces of a text that no tokenizer has seen have numbers of any size."""
    write_prompts(tmp_path, PROMPTS, has_ids=False)
    table = read_prompts(tmp_path)
    assert table["token_ids"].null_count == len(PROMPTS) == table.num_rows
