"""`accuracy --samples`: two of lm-eval's own files, paired by what they say of their items and by nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from scipy import stats

NAME = "samples_gsm8k_2026-11-22T19-04-05.123456.jsonl"


def sample(doc_id: int, value: object, *, metric: str = "exact_match", filter: str = "strict-match", **changes) -> dict:
    """As lm-eval 0.4.13 writes it, with the keys that are read."""
    line = {
        "doc_id": doc_id,
        "doc": {"question": f"{doc_id}?"},
        "target": str(doc_id),
        "arguments": {"gen_args_0": {"arg_0": f"{doc_id}?"}},
        "resps": [[f"said {value}"]],
        "filtered_resps": [str(value)],
        "filter": filter,
        "metrics": [metric],
        "doc_hash": f"doc {doc_id}",
        "prompt_hash": f"prompt {doc_id}",
        "target_hash": f"target {doc_id}",
        metric: value,
    }
    return {key: value for key, value in {**line, **changes}.items() if value is not None}


def write(folder: Path, samples: list[dict], higher_is_better: bool | None = True, aggregation: str = "mean") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / NAME
    path.write_text("".join(json.dumps(each) + "\n" for each in samples))
    if higher_is_better is not None:
        metrics = {each["metrics"][0] for each in samples if "metrics" in each}
        listed = [dict(metric=m, aggregation=aggregation, higher_is_better=higher_is_better) for m in metrics]
        results = {"configs": {"gsm8k": {"metric_list": listed}}}
        (folder / NAME.replace("samples_gsm8k", "results")).with_suffix(".json").write_text(json.dumps(results))
    return path


@pytest.fixture
def paired(cli, tmp_path):
    """The JSON of a pair of files, each of samples and how it is written."""

    def call(a: list[dict], b: list[dict], **how) -> dict:
        paths = write(tmp_path / "a", a, **how), write(tmp_path / "b", b, **how)
        result = cli("accuracy", "--samples", *paths, "--format", "json")
        assert result.exit_code == 0, result.stderr
        return json.loads(result.stdout)

    return call


def test_a_loss_is_a_regression_by_mcnemar(paired):
    """Of 400 items 30 are lost and 4 won."""
    base = [sample(n, float(n < 300)) for n in range(400)]
    arm = [sample(n, float(30 <= n < 304)) for n in reversed(range(400))]
    found = paired(base, arm)
    (metric,) = found["metrics"]
    items = metric["items"]
    assert (items["won"], items["lost"], items["n"], metric["left_out"]) == (4, 30, 400, {})
    assert items["p"] == metric["p_holm"] == stats.binomtest(4, 34).pvalue
    assert (metric["a"], metric["b"], items["difference"]) == pytest.approx((0.75, 0.685, -0.065))
    assert metric["verdict"] == "regressed" and found["tasks"] == ["gsm8k", "gsm8k"]
    assert items["same_output"] == pytest.approx(1 - 34 / 400)


@pytest.mark.parametrize(
    ("how", "verdict"),
    [
        (dict(higher_is_better=True), "improved"),
        (dict(higher_is_better=False), "regressed"),
        (dict(higher_is_better=None), "higher"),
        (dict(aggregation="perplexity"), "higher"),
    ],
)
def test_which_way_is_better_is_read_and_never_guessed(paired, how, verdict):
    base, arm = ([sample(n, 0.5 + (n % 7) / 100 + gain) for n in range(40)] for gain in (0, 0.2))
    (metric,) = paired(base, arm, **how)["metrics"]
    assert metric["verdict"] == verdict and metric["items"]["p"] is None, "values other than 0 and 1 have no McNemar"


def test_no_difference_is_equivalent_only_where_the_items_are_many(paired):
    for count, verdict in ((40, "inconclusive"), (1319, "equivalent")):
        same = [sample(n, float(n % 2)) for n in range(count)]
        (metric,) = paired(same, same)["metrics"]
        assert (metric["verdict"], metric["items"]["same_output"]) == (verdict, 1.0)


def test_holm_is_over_filters_and_metrics(paired):
    """Twelve lost of twelve: p is 0.0005, of two filters 0.001."""
    filters = ("strict-match", "flexible-extract")
    base = [sample(n, 1.0, filter=filter) for n in range(60) for filter in filters]
    arm = [sample(n, float(n >= 12), filter=filter) for n in range(60) for filter in filters]
    metrics = paired(base, arm)["metrics"]
    assert [m["filter"] for m in metrics] == list(filters)
    assert [m["p_holm"] for m in metrics] == pytest.approx([2 * m["items"]["p"] for m in metrics])


def test_what_cannot_be_paired_is_counted_and_named(paired, cli, tmp_path):
    base = [sample(n, 1.0) for n in range(20)]
    arm = [sample(n, 1.0) for n in range(2, 22)]
    arm[0] = sample(2, 0.0, doc_hash="another")
    arm[1] = sample(3, 0.0, doc_hash=None, target_hash=None)
    arm[2] = sample(4, None)
    arm[3] = sample(5, [-3.2, 7])
    arm[4] = sample(6, float("nan"))
    arm[5] = sample(7, 0.0, doc_hash=None)  # told by its target
    arm[6] = sample(8, 1.0, prompt_hash="with five examples")
    arm += [sample(9, 0.0)]
    (metric,) = paired(base, arm)["metrics"]
    assert metric["left_out"] == {
        "not in A": 2,
        "not in B": 2,
        "with another document under the same doc_id": 1,
        "without a hash of document or target in both": 1,
        "whose value in B is not a number": 3,
        "more than once in B": 1,
    }
    assert metric["items"]["n"] == 12 and (metric["items"]["won"], metric["items"]["lost"]) == (0, 1)
    assert (metric["num_by_target"], metric["num_other_prompts"]) == (1, 1)
    table = cli("accuracy", "--samples", tmp_path / "a" / NAME, tmp_path / "b" / NAME).stdout
    assert "1 items left out, with another document under the same doc_id" in table
    assert "1 of 12 pairs have different prompts" in table and "hash of their target alone" in table


def test_files_of_other_tasks_are_no_pair(cli, tmp_path):
    """The same doc_ids and the same metric: pairing by place alone would give a verdict."""
    a = write(tmp_path / "a", [sample(n, 1.0) for n in range(9)])
    b = write(tmp_path / "b", [sample(n, 0.0, doc_hash=f"other {n}") for n in range(9)])
    result = cli("accuracy", "--samples", a, b)
    assert result.exit_code == 2 and result.stdout == ""
    assert "no item of" in result.stderr and "9 with another document under the same doc_id" in result.stderr


def test_files_of_older_versions_without_names_of_metrics_and_filters(paired):
    old = [sample(n, 1.0, filter=None, metrics=None) for n in range(30)]
    (metric,) = paired(old, old, higher_is_better=None)["metrics"]
    assert (metric["filter"], metric["metric"], metric["items"]["n"]) == ("none", "exact_match", 30)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot read .*: No such file or directory"),
        ("", "has no items"),
        ('{"doc_id": 1}\n{"doc', "line 2: not JSON"),
        ('{"question": 1}\n', "line 1: no item with a doc_id; allowed: what lm-eval writes with --log_samples"),
        ('{"doc_id": 1, "metrics": "acc"}\n', "line 1: metrics: 'acc' is not allowed"),
    ],
)
def test_bad_files_are_one_line(cli, tmp_path, text, message):
    path = tmp_path / "b.jsonl"
    if text is not None:
        path.write_text(text)
    result = cli("accuracy", "--samples", write(tmp_path / "a", [sample(1, 1.0)]), path)
    assert result.exit_code == 2 and len(result.stderr.splitlines()) == 1
    assert re.search(message, result.stderr)


def test_options_of_an_evaluation_are_refused_beside_files(cli, tmp_path):
    path = write(tmp_path / "a", [sample(1, 1.0)])
    result = cli("accuracy", "--samples", path, path, "--tasks", "gsm8k", "-s", "ngram")
    assert result.exit_code == 2 and "drop --strategy, --tasks" in result.stderr
