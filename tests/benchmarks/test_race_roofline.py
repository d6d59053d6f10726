"""Shares of the roofline in the races' cells: those of the page, and ideal times by hand."""

from __future__ import annotations

import json
import sys

import pytest
from benchmark_pages import BENCHMARKS, cells_of, section

sys.path.insert(0, str(BENCHMARKS))

from race_roofline import ideal, main, table  # noqa: E402

RACES = ("decode-race-h200.json", "decode-race-h200-more.json")
KV_BYTES, WEIGHT_BYTES = 32 * 2 * 8 * 128 * 2, 2 * 7.505e9  # 8B: of a token in all layers; without the embedding
DRAFT_BYTES = 2 * (
    4 * (6144 * 8192 + 4096 * 4096 + 3 * 4096 * 14336 + 32000 * 4096)  # a layer that reads two states, and its lm_head
    + 3 * 4096 * 4096  # fc, in the first pass alone
)


def row(k: int, batch: int, num_prompt: int) -> dict:
    acceptance = 3.0 if k else None
    cell = dict(shape="llama-3.1-8b", k=k, batch=batch, num_prompt=num_prompt, num_output=128)
    return dict(**cell, acceptance_length=acceptance)


def test_the_page_has_what_the_script_prints():
    rows = [row for name in RACES for row in json.loads((BENCHMARKS / "results" / name).read_text(encoding="utf-8"))]
    lines = section("race.md", "Shares of the roofline")
    shown = [cells_of(line) for line in lines if line.startswith("| ")]
    printed = [cells_of(line) for line in table(rows).splitlines()]
    assert [cells for cells in shown if cells[0] != "---"] == [cells for cells in printed if cells[0] != "---"]
    assert len(rows) == 35


@pytest.mark.parametrize(("batch", "num_prompt"), [(1, 128), (8, 128), (1, 4096), (8, 4096)])
def test_few_rows_take_the_time_of_reading(batch, num_prompt):
    kv = batch * KV_BYTES * (num_prompt + 64 + 1)
    assert ideal(row(0, batch, num_prompt)).tps == pytest.approx(4.57e12 * batch / (WEIGHT_BYTES + kv), rel=1e-3)


def test_a_round_reads_the_target_once_and_the_head_four_times():
    found = ideal(row(4, 1, 128))
    kv = KV_BYTES * (192 + 5) * (1 + 4 / 32)
    assert found.tps == pytest.approx(4.57e12 * 3 / (WEIGHT_BYTES + DRAFT_BYTES + kv), rel=2e-3)


def test_limits_change_with_rows_and_keys():
    assert [ideal(row(4, batch, 128)).limit for batch in (32, 64)] == ["reading weights", "matrix products"]
    assert ideal(row(0, 32, 4096)).limit == "reading the KV cache"


def test_ranks_share_the_reads_and_sum():
    """Half of the weights and keys each; 65 sums of a row of 8 KiB."""
    found = ideal({**row(0, 1, 128), "shape": "llama-3.1-8b@2:alone"})
    seconds = (WEIGHT_BYTES + KV_BYTES * 193) / 2 / 4.57e12 + 65 * (2.3e-6 + 8192 / 3.3e11)
    assert found.tps == pytest.approx(1 / seconds, rel=1e-3)


def test_drafts_on_several_cards_are_refused(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["race_roofline.py", str(BENCHMARKS / "results" / "decode-race-h200-tp.json")])
    with pytest.raises(SystemExit, match="2"):
        main()
    said = capsys.readouterr().err
    assert "shape: 'llama-3.1-8b@2' is not allowed with drafts; allowed: shapes on one GPU" in said
