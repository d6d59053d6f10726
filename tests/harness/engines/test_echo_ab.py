"""A/B of an engine that knows texts and times only, in one process and in processes of their own."""

from __future__ import annotations

import json

import pytest
from toy import echo_engine
from toy.echo_engine import EchoDeployment

from specbench.harness.store.arm_record import EngineFacts


@pytest.fixture
def options(echo) -> list[str]:
    words = echo[1:]
    at = words.index("--num-repeats")
    return [*words[:at], *words[at + 2 :], "-q"]


@pytest.mark.parametrize("where", ["in-process", "fresh"])
def test_a_slower_side_is_found(cli, options, server, request, where):
    if where == "fresh":
        request.getfixturevalue("inline")
    more = ["--in-process"] if where == "in-process" else []
    result = cli("ab", "-A", "no-spec", "-B", "ngram:k=3", "--blocks", 6, "--format", "json", *more, *options)
    record = json.loads(result.stdout)
    found = {one["metric"]["name"]: one["verdict"] for one in record["metrics"]}
    assert found["TPOT"] == "improved" and found["step time"] == "no data" == found["tokens per step"]
    assert record["same_output"] == {"num_same": 36, "num_pairs": 36, "is_enough": True}


def test_equal_sides(cli, options):
    result = cli("ab", "-A", "no-spec", "-B", "no-spec", "--blocks", 6, "--in-process", "--format", "json", *options)
    record = json.loads(result.stdout)
    assert record["is_aa"] and not {c["verdict"] for c in record["metrics"]} & {"regressed", "improved"}


def test_an_engine_that_is_upgraded_between_blocks(cli, inline, options, only_run, monkeypatch):
    """The figures of a side would be of two engines, and its record of the first one only."""

    class Upgraded(EchoDeployment):
        def __init__(self, *given):
            super().__init__(*given)
            version = "1" if len(inline) <= 2 else "2"
            self.described = EngineFacts(version=version, graph_mode=None, backend=None, hardware=None)

    monkeypatch.setattr(echo_engine, "EchoDeployment", Upgraded)
    result = cli("ab", "-A", "no-spec", "-B", "ngram:k=3", "--blocks", 6, *options)
    said = "its first block was measured on version 1 of its engine, this one on 2; start a new experiment"
    assert result.exit_code == 2 and said in " ".join(result.stderr.split()), result.output
    assert len(only_run().done_blocks()) == 2
