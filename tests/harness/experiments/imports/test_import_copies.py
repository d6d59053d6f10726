"""The same result given twice, in any form, is one measurement."""

from __future__ import annotations

import gzip
import json
import math
import shutil

import pytest
import tool_files
from tool_files import guidellm_report, served, vllm_bench, without_detail

from specbench.harness.experiments.imports.write import import_files
from specbench.harness.store.run_directory import RunDirectory


def import_(files, tmp_path):
    return import_files(files, tmp_path / "runs", ["specbench", "import"])


def test_a_file_and_its_copy_are_refused(tmp_path):
    first = tool_files.write(tmp_path / "first.json", vllm_bench(served()))
    other = tool_files.write(tmp_path / "other.json", vllm_bench(served(num_drafts=0)))
    for again in (first, shutil.copy(first, tmp_path / "copy.json")):
        with pytest.raises(ValueError, match=f"files: {again} is {first} again, or a copy of it; it is one measure"):
            import_([first, other, again], tmp_path)


@pytest.mark.parametrize("has_nan", [False, True])
@pytest.mark.parametrize("detail", [dict, without_detail])
def test_a_copy_in_another_form_is_refused(tmp_path, detail, has_nan):
    """Of requests and of totals: with other spaces, keys in another order, packed, or twice in a file."""
    raw = detail(vllm_bench(served())) | {"figure_of_its_own": math.nan if has_nan else 1.5}
    first = tool_files.write(tmp_path / "first.json", raw)
    indented, packed, twice = (tmp_path / name for name in ("indented.json", "first.json.gz", "twice.jsonl"))
    indented.write_text(json.dumps(raw, indent=2, sort_keys=True))
    packed.write_bytes(gzip.compress(first.read_bytes()))
    for copy in (indented, packed):
        with pytest.raises(ValueError, match=f"files: {copy} is {first} again, or a copy of it; it is one measure"):
            import_([first, copy], tmp_path)
    tool_files.write(twice, raw, raw)
    with pytest.raises(ValueError, match=f"files: {twice}, result 2 is {twice}, result 1 again"):
        import_([twice], tmp_path)


def test_results_without_anything_measured_are_no_copies(tmp_path):
    raw = guidellm_report(served())
    raw["benchmarks"][0]["requests"] = {"successful": [], "incomplete": [], "errored": []}
    files = [tool_files.write(tmp_path / name, raw) for name in ("a.json", "b.json")]
    assert len(RunDirectory.open(import_(files, tmp_path)).record.arms) == 2
