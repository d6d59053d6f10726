"""The accuracy tables from stored figures: cells, notes, arms without scores."""

from __future__ import annotations

import io
from dataclasses import replace
from types import SimpleNamespace

from rich.console import Console

from specbench.harness.metrics.accuracy_items import ItemFigures
from specbench.harness.store.evaluation_record import EvalConfig, EvaluationRecord, TaskLimit
from specbench.harness.store.results import ItemPairs, Score, ScorePair
from specbench.reports.markdown import markdown_result
from specbench.reports.run.accuracy_columns import accuracy_columns, accuracy_conventions, verdict
from specbench.reports.run.accuracy_table import accuracy_tables
from specbench.reports.run.accuracy_view import AccuracyView
from specbench.reports.terminal import plain_result, rich_result

KEYS = dict(task="gsm8k", version="3.0", filter="strict-match", num_fewshot=5, metric="exact_match")
ITEMS = ItemPairs(n=500, difference=0.004, p=0.69, won=5, lost=3, low=-0.008, high=0.016)


def _pair(items, **changes):
    return ScorePair(**(dict(arm="ngram", baseline="no-spec") | KEYS | changes), items=items)


def _score(arm, value, stderr, **changes):
    return Score(**(KEYS | changes), arm=arm, value=value, stderr=stderr, n=500)


def _items(**figures):
    whole = dict(acceptance_length=None, tpot_ms=12.5, tpot_ratio=None, num_pairs=0)
    return ItemFigures(**whole | figures)


def _view(pairs, scores=None):
    items = {"no-spec": _items(tpot_ms=20.0), "ngram": _items(acceptance_length=2.345, tpot_ratio=1.6, num_pairs=3)}
    known = (_score("no-spec", 0.774, 0.0187), _score("ngram", 1, None))
    record = EvaluationRecord(
        asked=EvalConfig(tasks=(TaskLimit(name="gsm8k"),)),
        items="accuracy",
        lm_eval="0.4.13",
        sha256="",
        notes=("few-shot examples from elsewhere",),
    )
    accuracy = AccuracyView(
        record=record,
        baseline="no-spec",
        scores=known if scores is None else scores,
        pairs=pairs,
        items={"gsm8k": items},
        errors={"eagle": "no memory"},
        is_alone=False,
    )
    arms = [SimpleNamespace(marks=(), label=label) for label in ("no-spec", "ngram", "eagle")]
    return SimpleNamespace(record=SimpleNamespace(run_id="r1"), arms=arms, accuracy=accuracy)


def test_scores_are_one_table_of_80_columns():
    (table,) = accuracy_tables(_view([]))
    console = Console(width=80, force_terminal=True, record=True, file=io.StringIO())
    console.print(rich_result(table, 80))
    text = console.export_text()
    assert text.count("strategy") == 1 and "* not in 80 characters: n-shot, Version" in text, text


def test_scores_in_the_seeds_form_with_what_was_replaced_and_what_is_missing():
    (table,) = accuracy_tables(_view([]))
    text = plain_result(table)
    assert "no-spec   gsm8k  3.0      strict-match  5       exact_match  0.7740  ±  0.0187  500" in text
    assert table.rows[1][6:9] == ("1.0000", "±", "-")
    assert "* few-shot examples from elsewhere" in text and "* eagle: not scored: no memory" in text


def test_pairs_say_difference_interval_and_power():
    pair = _pair(replace(ITEMS, detectable=0.0158, same_output=0.9))
    table = accuracy_tables(_view([pair]))[1]
    assert table.rows == (
        ("ngram", "gsm8k", "strict-match", "+0.4 [-0.8, +1.6]", "5/3", "0.69", "1.6", "90%", "2.35", "12.50 (1.60x)"),
    )
    assert markdown_result(table).count("|") > 30 and "no-spec: TPOT 20.00 ms on the items of gsm8k." in table.notes


def test_values_that_are_not_right_or_wrong_keep_their_difference():
    pair = _pair(replace(ITEMS, p=None, same_output=None))
    assert accuracy_tables(_view([pair]))[1].rows[0][3:8] == ("+0.4", "-", "-", "-", "-")


def test_a_run_without_an_evaluation_has_no_such_table():
    assert accuracy_tables(SimpleNamespace(accuracy=None)) == [] and accuracy_columns(None) == {}


def test_an_evaluation_in_which_every_arm_failed_says_so():
    (table,) = accuracy_tables(_view([], scores=()))
    assert table.rows == () and "eagle: not scored: no memory" in table.notes


def test_columns_of_the_comparison():
    strict = [_score("ngram", 0.5, 0.01), _score("no-spec", 0.25, 0.01)]
    flexible = [replace(s, filter="flexible-extract", value=2 * s.value) for s in strict]
    items = replace(ITEMS, same_output=0.9)
    pairs = [_pair(replace(items, p=0.01)), _pair(items, filter="flexible-extract")]
    accuracy = _view(pairs, [*strict, *flexible]).accuracy
    columns = accuracy_columns(accuracy)
    assert list(columns) == ["gsm8k", "gsm8k: paired"]
    assert columns["gsm8k"] == {"ngram": "1.0000 ± 0.0100", "no-spec": "0.5000 ± 0.0100", "eagle": "not scored"}
    assert columns["gsm8k: paired"]["ngram"] == "p=0.69 (5 won, 3 lost)"
    line, other = accuracy_conventions(accuracy)
    assert (
        "exact_match (flexible-extract)" in line
        and "over 500 items, 5-shot" in line
        and "these items are in no speed" in other
    )


def test_verdicts_in_words():
    items = replace(ITEMS, same_output=0.9)
    assert verdict(replace(items, same_output=1.0)) == "same text"
    assert verdict(replace(items, won=0, lost=0, p=1.0)) == "same items right"
    assert verdict(replace(items, p=None)) == "+0.004"
    assert verdict(replace(items, p=None, difference=None, same_output=None)) == "-"
