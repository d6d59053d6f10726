"""The accuracy tables from stored figures: cells, notes, arms without scores."""

from __future__ import annotations

from types import SimpleNamespace

from specbench.reports.accuracy_table import accuracy_tables
from specbench.reports.table import markdown_result, plain_result

SCORE = dict(task="gsm8k", version="3.0", filter="strict-match", num_fewshot=5, metric="exact_match", n=500)
PAIR = dict(arm="ngram", baseline="no-spec", difference=0.004, p=0.69, won=5, lost=3, low=-0.008, high=0.016)


def _view(pairs):
    arms = [
        SimpleNamespace(label=name, error=error, acceptance=acceptance, median=lambda name: 12.5)
        for name, error, acceptance in (
            ("no-spec", "", {}),
            ("ngram", "", {"acceptance_length": 2.345}),
            ("eagle", "no memory", {}),
        )
    ]
    scores = [SCORE | dict(arm="no-spec", value=0.774, stderr=0.0187), SCORE | dict(arm="ngram", value=1, stderr=None)]
    manifest = dict(
        run_id="r1",
        results={"accuracy": {"scores": scores, "pairs": pairs}},
        evaluation={"lm_eval": "0.4.13", "gsm8k": {"notes": ["few-shot examples from elsewhere"]}},
    )
    return SimpleNamespace(manifest=manifest, arms=arms)


def test_scores_in_the_seeds_form_with_what_was_replaced_and_what_is_missing():
    (table,) = accuracy_tables(_view([]))
    text = plain_result(table)
    assert "no-spec   gsm8k  3.0      strict-match  5       exact_match  0.7740  ±  0.0187  500" in text
    assert table.rows[1][6:9] == ("1.0000", "±", "-")
    assert "* few-shot examples from elsewhere" in text and "* eagle: not scored: no memory" in text


def test_pairs_say_difference_interval_and_power():
    pair = SCORE | PAIR | dict(detectable=0.0158, same_output=0.9)
    table = accuracy_tables(_view([pair]))[1]
    assert table.rows == (
        ("ngram", "gsm8k", "strict-match", "+0.4 [-0.8, +1.6]", "5/3", "0.69", "1.6", "90.0%", "2.35", "12.50"),
    )
    assert markdown_result(table).count("|") > 30


def test_values_that_are_not_right_or_wrong_keep_their_difference():
    pair = SCORE | PAIR | dict(p=None, same_output=None)
    assert accuracy_tables(_view([pair]))[1].rows[0][3:8] == ("+0.4", "-", "-", "-", "-")


def test_a_run_without_an_evaluation_has_no_such_table():
    assert accuracy_tables(SimpleNamespace(manifest={"results": {}}, arms=[])) == []
