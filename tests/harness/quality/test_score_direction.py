"""Which way is better is stored with every score, as lm-eval says of the metric; rows without it can be added to."""

from __future__ import annotations

import pandas as pd
import pytest

pytest.importorskip("lm_eval")

from specbench.harness.quality.lm_evaluation.store import TABLE, append_scores, read_accuracy, score_rows


def found(metric: str, listed: dict | None, higher: bool | None) -> dict:
    """What `simple_evaluate` returns of one task with one item."""
    return {
        "samples": {"t": [{"doc_id": 0, "filter": "none", "metrics": [metric], metric: 1.0, "resps": [["x"]]}]},
        "versions": {"t": 1},
        "n-shot": {"t": 0},
        "configs": {"t": {} if listed is None else {"metric_list": [{"metric": metric, **listed}]}},
        "higher_is_better": {"t": {} if higher is None else {metric: higher}},
    }


@pytest.mark.parametrize(
    ("metric", "listed", "higher", "direction"),
    [
        ("exact_match", {"aggregation": "mean", "higher_is_better": True}, True, True),
        ("acc", {}, True, True),
        ("acc", None, True, True),
        ("ter_of_item", {"aggregation": "mean"}, False, False),
        ("made_up", None, False, False),
        ("made_up", None, None, None),
        ("perplexity", {"aggregation": "perplexity"}, False, None),
        ("perplexity", {}, False, None),
    ],
)
def test_direction(metric, listed, higher, direction):
    (row,) = score_rows("eagle", found(metric, listed, higher), {})
    assert row["higher_is_better"] is direction


def test_a_task_without_scores_of_items_fails(tmp_path):
    evaluated = found("bleu", None, True)
    evaluated["samples"]["t"][0]["bleu"] = ("reference", "answer")
    with pytest.raises(ValueError, match="^tasks: t: its items have no scores of their own"):
        score_rows("eagle", evaluated, {})


def test_scores_from_before_are_kept_and_added_to(tmp_path):
    rows = score_rows("eagle", found("acc", None, True), {})
    append_scores(tmp_path, rows)
    old = pd.read_parquet(tmp_path / TABLE).drop(columns="higher_is_better")
    old.to_parquet(tmp_path / TABLE)
    append_scores(tmp_path, [{**rows[0], "arm": "ngram"}])
    read = read_accuracy(tmp_path)
    assert list(read["arm"]) == ["eagle", "ngram"]
    assert [None if pd.isna(v) else bool(v) for v in read["higher_is_better"]] == [None, True]
