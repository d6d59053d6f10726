"""Certificates of arms with `k=auto`: rounds of two engines need not have the same numbers of drafts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from toy.engines import decode_rows, generate, make_engine, named_strategy, outputs, request
from toy.few_words import FewWords
from toy.plans import CPU
from toy.prompts import text_prompt
from typer.testing import CliRunner

from specbench.harness.cli.main import app
from specbench.harness.quality.certificate.acceptance import Round, as_far_as_both, compare_rounds, rounds_of
from specbench.harness.store.codec import write_document
from specbench.harness.store.draft_table import CountTimes, DraftTable, DraftTables, LoadTimes
from specbench.strategies.chain import Chain

COUNTS = (0, 1, 2, 4)


def table(folder: Path, strategy: str, rate: float, options: dict[str, str] | None = None) -> Path:
    """At this acceptance K=4 is worth it, at a lower one fewer: so the number changes while a request runs."""
    times = [
        CountTimes(num_drafts=k, round_ms=10 + k, tpot_ms=(10 + k) / sum(rate**i for i in range(k + 1))) for k in COUNTS
    ]
    load = LoadTimes(max_concurrency=1, best=0, times=tuple(times))
    made = DraftTable(strategy=strategy, options=options or {}, acceptance=(rate,) * COUNTS[-1], loads=(load,))
    write_document(folder / "table.json", DraftTables(sweep_id="s", model="toy", hardware="", tables=(made,)))
    return folder / "table.json"


def test_rounds_are_compared_as_far_as_both_drafted():
    text = {0: tuple(range(12))}
    four = {0: [Round(1, 4, 2, 3), Round(4, 4, 4, 5)]}
    fewer = {0: [Round(1, 2, 2, 3), Round(4, 1, 1, 2), Round(6, 0, 0, 1)]}
    found = compare_rounds(*as_far_as_both(four, fewer), text, text)
    assert (found.num_rounds, found.num_flipped, found.num_unmatched, found.num_more) == (2, 0, 0, 0)
    worse = {0: [Round(1, 2, 1, 2), Round(3, 1, 0, 1), Round(4, 1, 0, 1)]}
    found = compare_rounds(*as_far_as_both(worse, four), text, text)
    assert (found.num_rounds, found.num_lower, found.num_higher) == (2, 2, 0)


@pytest.mark.parametrize("strategy", ["ngram", "eagle"])
def test_the_command_passes_arms_whose_drafts_change(tmp_path, strategy):
    own = {"ngram": {"min_n": "1"}, "eagle": {"head": "random"}}[strategy]
    arm = f"{strategy}:k=auto,k_table={table(tmp_path, strategy, 0.8, own)}," + ",".join(map("=".join, own.items()))
    words = "--load-format dummy --model toy --dtype float32 --dataset-name random --num-prompts 2 --output-len 40"
    words += " --max-model-len 1100 --num-seeds 50 --temperature 0 --temperature 0.5"
    words += f" --output-dir {tmp_path / 'runs'}"
    result = CliRunner().invoke(app, ["certify", "-s", arm, *words.split()], prog_name="specbench")
    assert result.exit_code == 0, result.output
    (path,) = (tmp_path / "runs").iterdir()
    rows = [row for row in json.loads((path / "certificate.json").read_text())["certificates"] if row["arm"] == arm]
    assert [(row["ok"], row["num_exact"]) for row in rows] == [(True, 2)] * 2
    assert all(row["acceptance"]["num_rounds"] > 20 for row in rows)
    assert rows[1]["distribution"]["num_seeds"] == 50


def _next_token(self, step, b, logits_BV, d2t_V=None, real=Chain._store):
    real(self, step, b, logits_BV.roll(1, 1), d2t_V)


@pytest.mark.parametrize("is_faulty", [False, True])
def test_late_reading_changes_the_numbers_and_no_draft(tmp_path, monkeypatch, is_faulty):
    """The same head with a fixed number; a planted fault in the drafts of the other is seen."""
    words = FewWords(tmp_path)
    requests = [request(i, text_prompt(i, 5 + i), max_tokens=120) for i in range(3)]
    file = table(tmp_path, "eagle", 0.5, {"head": str(words.head)})
    auto = named_strategy("eagle", k="auto", k_table=file, head=words.head)
    engines = [words.engine(CPU, 4), make_engine(CPU, auto, target=words.target("cpu"))]
    said = []
    for engine in engines:
        if is_faulty and engine is engines[1]:
            monkeypatch.setattr(Chain, "_store", _next_token)
        said.append(outputs(generate(engine, [request(r.id, r.prompt_ids, max_tokens=120) for r in requests])))
    assert len({row.num_rows for row in decode_rows(engines[1])}) > 1, "the number never changed"
    rounds = [rounds_of(engine.log.rows) for engine in engines]
    assert compare_rounds(rounds[1], rounds[0], said[1], said[0]).problem(is_exact=True), "as with a fixed number"
    found = compare_rounds(*as_far_as_both(rounds[1], rounds[0]), said[1], said[0])
    assert found.num_rounds > 20 and bool(found.problem(is_exact=True)) is is_faulty
