"""What `specbench run` measures where no arm or no head is named: the head that comes with the package takes part."""

from __future__ import annotations

import json
import shutil

import pytest

from specbench.harness.spec.conditions import Conditions
from specbench.harness.spec.plan import default_strategies
from specbench.workloads.assets import shipped_heads
from specbench.workloads.assets.cache import directory_sha256

INFLATED = "head trained on jsonl: acceptance is inflated; sharegpt-held-out is not in its training data"


@pytest.fixture
def shipped(tmp_path, monkeypatch, chat_model, make_head):
    """Ships a head for `chat_model`, trained on `data`."""

    def ship(*data: str) -> None:
        folder = tmp_path / "heads" / "chat"
        shutil.copytree(make_head(), folder)
        sha256 = directory_sha256(chat_model)
        target = {"name": "chat", "hub_name": "somebody/chat", "source": "a local file", "sha256": sha256}
        record = {"target": target, "data": [{"name": name} for name in data]}
        (folder / "training.json").write_text(json.dumps(record))
        monkeypatch.setattr(shipped_heads, "HEADS", folder.parent)

    return ship


def test_the_default_model_is_compared_with_its_head_too():
    assert default_strategies(Conditions(model="smollm2-135m-instruct")) == ["no-spec", "ngram", "eagle:k=4"]


@pytest.mark.parametrize(
    ("model", "load_format"),
    [
        ("smollm2-135m-instruct", "dummy"),  # random weights, for which nothing was trained
        ("qwen2.5-coder-1.5b-instruct", "auto"),
        ("./smollm2-135m-instruct", "auto"),  # a folder, whose bytes nobody has seen yet
        ("toy", "dummy"),
    ],
)
def test_other_models_have_no_head(model, load_format):
    assert default_strategies(Conditions(model=model, load_format=load_format)) == ["no-spec", "ngram"]


def test_without_arms_the_default_ones_are_measured(cli, toy, only_run):
    assert cli(*toy).exit_code == 0
    assert [arm.label for arm in only_run().record.arms] == ["no-spec", "ngram"]


def test_help_says_what_the_default_is(cli):
    help_text = " ".join(cli("run", "--help").stdout.replace("│", " ").split())
    assert "Default: no-spec, ngram, and eagle:k=4 if specbench ships a head for the model." in help_text


def test_an_arm_without_a_head_gets_the_shipped_one(cli, chat, only_run, shipped):
    shipped("sharegpt")
    result = cli(*chat, "-s", "no-spec", "-s", "eagle:k=2", "-s", "naive-eagle:k=1")
    assert result.exit_code == 0, result.output
    plain, eagle, naive = only_run().record.arms
    assert eagle.config.options["head"] == naive.config.options["head"] == "shipped:chat"
    assert "head" not in plain.config.options and only_run().failed_blocks() == {}
    assert not any("head trained" in note for note in eagle.notes)


@pytest.mark.parametrize("arm", ["eagle:k=2", "eagle:k=2,head=shipped:chat"])
def test_the_row_says_that_the_head_saw_these_prompts(cli, chat, only_run, shipped, arm):
    shipped("sharegpt", "jsonl")
    result = cli(*chat, "-s", "no-spec", "-s", arm)
    assert result.exit_code == 0, result.output
    plain, eagle = only_run().record.arms
    assert INFLATED in eagle.notes and INFLATED not in plain.notes
    assert INFLATED in " ".join(result.stdout.split())


def test_a_head_that_is_named_is_the_one_that_runs(cli, chat, only_run, shipped, make_head):
    shipped("jsonl")
    own = make_head()
    assert cli(*chat, "-s", f"eagle:k=2,head={own}").exit_code == 0
    (arm,) = only_run().record.arms
    assert arm.config.options["head"] == str(own) and INFLATED not in arm.notes


def test_an_unknown_shipped_head_is_refused_by_name(cli, chat, runs, shipped):
    shipped("jsonl")
    result = cli(*chat, "-s", "no-spec", "-s", "eagle:k=2,head=shipped:chta")
    assert result.exit_code == 2 and not runs.exists()
    assert "head: 'shipped:chta' is not known; shipped heads: shipped:chat" in result.stderr
