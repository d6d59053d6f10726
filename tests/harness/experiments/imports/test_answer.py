"""The answer of an import: against the baseline that was chosen, and never about an arm without figures."""

from __future__ import annotations

import re

import pytest
import tool_files
from tool_files import served, vllm_bench

from specbench.harness.experiments.imports.write import import_files
from specbench.reports.run.answer import answer
from specbench.reports.run.view import view_run

_FAILED = vllm_bench(served(), output_lens=[0] * 12, errors=["boom"] * 12, completed=0, total_output_tokens=0)
_OF_PLAIN = r"plain: [\d.]+ TPS, TPOT [\d.]+ ms; "


@pytest.mark.parametrize(
    ("labels", "meta", "said"),
    [
        (
            ("plain", "failed"),
            (),
            r"failed: all of its requests failed \(12 of 12\), so it cannot be compared with plain\. "
            rf"{_OF_PLAIN}no other arm can be compared with it\.",
        ),
        (("failed", "plain"), (), r"failed: all .* \(12 of 12\), so no arm can be compared with it\."),
        (("failed",), (), r"failed: all of its requests failed \(12 of 12\)\."),
        (("plain",), (), rf"{_OF_PLAIN}there is no other arm to compare it with\."),
        (("plain",), ("strategy=no-spec",), rf"{_OF_PLAIN}no other arm can be compared with it\."),
        (
            ("plain", "eagle"),
            ("plain:temperature=0", "eagle:temperature=1"),
            r"2 arms were measured, but not under the same load, so there is no speed-up\.",
        ),
        (("plain", "eagle", "failed"), (), r"eagle is .* as fast as plain in TPOT; .*"),
    ],
)
def test_the_answer_names_the_baseline_and_failed_arms(tmp_path, labels, meta, said):
    made = {"plain": vllm_bench(served(num_drafts=0)), "eagle": vllm_bench(served()), "failed": _FAILED}
    files = [tool_files.write(tmp_path / f"{label}.json", made[label]) for label in labels]
    view = view_run(import_files(files, tmp_path / "runs", ["specbench"], labels, labels[0], meta))
    assert re.fullmatch(said, answer(view)), answer(view)
