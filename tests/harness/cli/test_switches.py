"""The engine's switches as options for all arms, and what `list` says of them."""

from __future__ import annotations

import json

import pytest

from specbench.harness.spec.arm import ENGINE_KEYS, GRAPH_PART_KEYS, Switches, with_own_keys
from specbench.harness.spec.choices import ALLOWED, PART_MODES
from specbench.harness.spec.options import RunOptions
from specbench.harness.spec.plans import PARTS, PLANS

WITHOUT_OPTION = {"status_lag"}  # a key of an arm only


@pytest.mark.parametrize(
    ("option", "value", "default"),
    [("sync", "multi", "single"), ("drafter", "unpadded", "padded"), ("state_update", "torch", "fused")],
)
def test_an_option_reaches_every_arm_that_does_not_say_otherwise(cli, toy, only_run, option, value, default):
    flag = "--" + option.replace("_", "-")
    arms = ("-s", "no-spec", "-s", "eagle:k=2,head=random", "-s", f"eagle:k=2,head=random,{option}={default}")
    result = cli(*toy, *arms, flag, value, "--acceptance", "synthetic:2")
    assert result.exit_code == 0, result.output
    resolved = [getattr(arm.config, option) for arm in only_run().record.arms]
    assert resolved == [None if option == "drafter" else value, value, default]


def test_parts_of_a_plan_are_options(cli, toy, only_run):
    result = cli(*toy, "-s", "no-spec", *(word for part in PARTS for word in (f"--graph-{part}", "none")))
    assert result.exit_code == 0, result.output
    assert only_run().record.arms[0].config.graph == "none"


def test_help_has_every_switch_with_its_words(cli):
    text = " ".join(cli("run", "--help").stdout.replace("│", " ").split())
    options = RunOptions.schema()
    for key in set(ENGINE_KEYS) - WITHOUT_OPTION:
        assert f"{options[key].flag} " in text
    for values in (*ALLOWED.values(), *PART_MODES.values()):
        assert f": {', '.join(values)}." in text


def test_list_has_the_plans_and_every_switch(cli):
    content = json.loads(cli("list", "--format", "json", "--device", "cuda").stdout)
    assert content["graph_plans"].keys() == PLANS.keys()
    assert content["graph_plans"]["full_and_piecewise"] == dict(
        target="full", first="full", later="full", mixed="piecewise"
    )
    assert [f"graph_{part}" for part in content["graph_parts"]] == list(GRAPH_PART_KEYS)
    assert content["switches"].keys() == ALLOWED.keys()
    table = cli("list", "--device", "cuda").stdout
    assert "graph plans" in table and "full_decode_only" in table and "state_update" in table


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("eagle", "eagle:head=H"),
        ("eagle:k=2", "eagle:k=2,head=H"),
        ("eagle-topk:topk=2", "eagle-topk:topk=2,head=H"),
        ("naive-eagle:head=own", "naive-eagle:head=own"),
        ("draft-model:draft=self:2", "draft-model:draft=self:2"),
        ("ngram", "ngram"),
    ],
)
def test_head_goes_to_the_arms_that_take_one(text, expected):
    assert with_own_keys(text, Switches(given={"head": "H"})) == expected
    assert with_own_keys(text, Switches()) == text
