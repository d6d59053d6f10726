"""Certificates of arms that another engine serves: what is wrong is found by that engine's own scores, by equality
where it has none; and nothing passes because there was nothing to compare."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from cli.conftest import chat_model, cli, runs  # noqa: F401
from toy.counting_engine import NO_SCORES
from toy.packages import install
from toy.packages import site as site

from specbench.harness.engines.base import Scored
from specbench.harness.engines.several import Engines
from specbench.harness.quality.certificate.groups import arms_by_engine
from specbench.harness.spec.arm import parse_arm


@pytest.fixture
def certify(cli, runs, site: Path, tmp_path: Path):  # noqa: F811
    """Runs the command over arms; gives its result and its rows by arm."""
    install(site, "counting-engine", "1", {"specbench.engines": {"counting": "toy.counting_engine:CountingEngine"}})
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(f'{{"prompt": "{text}", "max_tokens": 12}}\n' for text in ("abc", "count", "zyx")))

    def call(*arms: str, more: str = "--engine counting"):
        words = (
            f"--dataset-name jsonl --dataset-path {prompts} --num-prompts 3 --output-len 12 --max-model-len 64 {more}"
        )
        strategies = [word for arm in arms for word in ("-s", arm)]
        result = cli("certify", *words.split(), *strategies, "--output-dir", runs, "--format", "json", "-q")
        rows = json.loads(result.stdout)["certificates"] if result.stdout else ()
        return result, {row["arm"]: row for row in rows}

    return call


def test_an_arm_that_says_the_same_passes_and_what_was_not_done_is_said(certify, cli, runs):  # noqa: F811
    result, rows = certify("ngram")
    assert result.exit_code == 0 and set(rows) == {"no-spec", "ngram"}, result.output
    row = rows["ngram"]
    assert (row["num_exact"], row["num_prompts"], row["num_tokens"], row["worst_regret"]) == (3, 3, 36, 0.0)
    assert row["tolerance"] == 1e-4 and row["acceptance_length"] > 2 and row["ok"]
    assert row["judged_by"] == "the engine's own scores without speculation; 0.0001 is stated for float32"
    assert [text.split(":")[0] for text in row["not_done"]] == [
        "acceptance",
        "excess",
        "distribution and temperatures above 0",
    ]
    (directory,) = runs.iterdir()
    table = (directory / "certificate.md").read_text()
    assert "no-spec, ngram: judged by the engine's own scores" in table and "Not done: acceptance" in table


@pytest.mark.parametrize(
    ("fault", "problems"),
    [
        ("near", []),
        ("wrong", ["divergence: 3 of 3 are not near-ties", "regret: a token lies 8.9 below the best"]),
        ("short", ["length: 3 outputs are a prefix of the baseline's"]),
        ("mute", ["acceptance: no draft was verified"]),
        ("fails", ["failed: "]),
    ],
)
def test_faults_of_an_arm(certify, fault, problems):
    result, rows = certify(f"ngram:fault={fault}")
    row = rows[f"ngram:fault={fault}"]
    assert rows["no-spec"]["ok"] and row["ok"] == (not problems) and result.exit_code == (6 if problems else 0)
    assert len(row["problems"]) == len(problems), row["problems"]
    assert all(told.startswith(wanted) for told, wanted in zip(row["problems"], problems, strict=True))
    if fault == "near":
        assert row["num_exact"] < 3 and 0 < row["worst_regret"] < 1e-4 and row["divergences"][0]["gap"] < 1e-4


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        ("blind", "control: only 0 of 3 deliberately changed tokens are beyond the tolerance"),
        ("nan", "control: a token of the baseline itself lies inf below the best"),
        ("wrong", "control: a token of the baseline itself lies 8.9 below the best"),
        ("drafts", "baseline: drafts were verified in the arm without speculation"),
    ],
)
def test_a_baseline_that_proves_nothing_lets_nobody_pass(certify, fault, problem):
    """The arm has the same fault, so that comparing the two would find none."""
    name = f"no-spec:fault={fault}"
    result, rows = certify(name, f"ngram:fault={fault}")
    assert result.exit_code == 6 and any(told.startswith(problem) for told in rows[name]["problems"])
    if fault != "drafts":
        assert any(told.startswith(problem) for told in rows[f"ngram:fault={fault}"]["problems"])


def test_a_baseline_that_fails_fails_all(certify):
    result, rows = certify("no-spec:fault=fails", "ngram")
    assert result.exit_code == 6 and not any(row["ok"] for row in rows.values())
    assert "its baseline no-spec:fault=fails failed" in rows["ngram"]["error"]


def test_without_scores_any_difference_is_one(certify):
    """Near-ties too: nobody can tell them from faults."""
    result, rows = certify("no-spec:scores=no", "ngram", "ngram:fault=near")
    good, near = rows["ngram"], rows["ngram:fault=near"]
    assert result.exit_code == 6 and good["ok"] and good["judged_by"] == "equality of token ids alone"
    assert good["not_done"][0] == f"divergence and regret: {NO_SCORES}" and good["tolerance"] is None
    assert near["problems"][0].endswith("differ from the baseline's; whether these are near-ties is unknown")


def test_the_tolerance_is_that_of_the_dtype(certify):
    _, rows = certify("ngram:fault=near", more="--engine counting --dtype bfloat16")
    assert rows["ngram:fault=near"]["tolerance"] == 0.5


def test_arms_of_two_engines_are_compared_each_with_its_own(certify, chat_model):  # noqa: F811
    more = f"--model {chat_model} --dtype float32 --device cpu --temperature 0"
    result, rows = certify("ngram:k=2", "counting/ngram", more=more)
    assert result.exit_code == 0, result.output
    ours, theirs = rows["ngram:k=2"], rows["counting/ngram"]
    assert {"no-spec", "counting/no-spec"} <= set(rows)
    assert "judged_by" not in ours and ours["compared_with"] and theirs["judged_by"]


@pytest.mark.parametrize(
    ("arms", "more", "message"),
    [
        (["ngram"], "--temperature 0.8", "arms of counting, whose sampling noise is unknown; they are judged at 0"),
        (["ngram:acceptance=synthetic:2.0"], "", "only real acceptance can be certified"),
        (["ngram:url=http://x/v1"], "", "add that as an arm no-spec:url=... or :command=..."),
        (["no-spec:url=http://x/v1", "ngram:url=http://x/v1"], "", "a server always agrees with itself"),
    ],
)
def test_what_cannot_be_certified_is_refused_before_anything_starts(certify, runs, arms, more, message):  # noqa: F811
    result, _ = certify(*arms, more=f"--engine counting {more}")
    assert result.exit_code == 2 and message in result.stderr and not runs.exists()


def test_each_environment_has_a_baseline_of_its_own():
    """Of two builds, one must not vouch for the other."""
    arms = [parse_arm(f"vllm/ngram:python={name}") for name in ("a", "b")]
    found = arms_by_engine(arms, Engines("specbench"))
    assert [group.baseline for group in found.groups] == ["vllm/no-spec:python=a", "vllm/no-spec:python=b"]
    assert found.own == () and len(found.arms) == 4


def test_regrets_of_what_is_no_number_are_none_either():
    scored = Scored.of([-0.5, math.nan, -math.inf], [-0.25, -0.1, -0.1])
    assert scored.regrets is not None and scored.regrets[0] == 0.25 and not scored.is_greedy
    assert math.isnan(scored.regrets[1]) and scored.regrets[2] == math.inf
