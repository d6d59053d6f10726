"""The pairwise cover: every pair of legal choices meets in some arm, in at most 34 arms, all of them legal."""

from __future__ import annotations

import functools
import itertools

import pytest
from typer.testing import CliRunner

from specbench.harness.cli.main import app
from specbench.harness.engines.native.arms import resolve_arm
from specbench.harness.spec import choices, legality
from specbench.harness.spec.arm import parse_arm
from specbench.harness.spec.cover import legal_cells, pairwise_cover
from specbench.harness.spec.plans import PLANS


def check_on(device: str):
    return functools.partial(resolve_arm, device=device, synthetic_weights=False)


@pytest.fixture(params=["cpu", "cuda", "cuda without flashinfer"])
def device(request, monkeypatch) -> str:
    device, _, missing = request.param.partition(" without ")
    if device == "cuda":
        monkeypatch.setattr(legality, "_has", lambda package: package != missing)
    return device


def test_every_legal_pair_is_covered_by_few_legal_arms(device):
    legal, cover = legal_cells(device, check_on(device)), pairwise_cover(device, check_on(device))
    assert len(cover) <= 34 and len({c.text() for c in cover}) == len(cover)
    assert set(cover) <= set(legal)
    covered = set().union(*(c.pairs() for c in cover))
    assert covered == set().union(*(c.pairs() for c in legal))


def test_it_covers_all_that_the_table_knows(monkeypatch):
    """Told apart from the cover's own list: values by values of the switches, on a machine that has every package."""
    monkeypatch.setattr(legality, "_has", lambda package: True)
    cover = pairwise_cover("cuda", check_on("cuda"))
    arms = [resolve_arm(parse_arm(c.text(), {}), "cuda", False) for c in cover]
    met = {(a.choices.attention, a.choices.sync) for a in arms}
    refused = {("flashinfer", "none")}
    backends, syncs = set(choices.ALLOWED["attention"]) - {"auto", "torch"}, ("multi", "single", "none")
    assert met == set(itertools.product(backends, syncs)) - refused
    assert {c.graph for c in cover} == set(PLANS)
    assert {a.config.strategy for a in arms} == {
        "no-spec", "ngram", "draft-model", "eagle", "naive-eagle", "eagle-topk",
    }  # fmt: skip
    unpadded = {(a.choices.plan.target, a.choices.plan.first) for a in arms if a.choices.drafter == "unpadded"}
    assert unpadded == {("none", "none"), ("piecewise", "piecewise"), ("full", "piecewise")}


def test_the_first_arm_is_the_plain_baseline_and_the_arms_are_always_the_same(device):
    cover = pairwise_cover(device, check_on(device))
    first = cover[0]
    assert (first.strategy, first.graph, first.sync, first.state_update) == ("no-spec", "none", "single", "torch")
    assert cover == pairwise_cover(device, check_on(device))


def test_a_cover_chooses_its_arms_itself(tmp_path):
    for words, named in (
        (["--cover", "pairwise", "-s", "ngram"], "drop --strategy"),
        (["--cover", "pairwise", "--attention", "torch"], "drop --attention"),
        (["--cover", "triples"], "'triples' is not known; allowed: pairwise"),
    ):
        result = CliRunner().invoke(app, ["certify", *words, "--output-dir", str(tmp_path)], prog_name="specbench")
        assert result.exit_code == 2 and named in result.stderr


def test_a_cover_is_certified_arm_by_arm(tmp_path):
    words = "certify --cover pairwise --head random --load-format dummy --model toy --dtype float32 --device cpu "
    words += "--dataset-name random --num-prompts 2 --output-len 6 --max-model-len 1100 --temperature 0 "
    result = CliRunner().invoke(app, [*words.split(), "--output-dir", str(tmp_path)], prog_name="specbench")
    lines = [line for line in result.stdout.splitlines() if "  passed  " in line]
    failed = [line.removeprefix("* ") for line in result.stdout.splitlines() if "FAILED" in line]
    # The toy has fewer layers than the drafts ask for: those arms fail to be built, and the others go on.
    assert failed and all(line.startswith("draft-model:") for line in failed) and result.exit_code == 6
    assert len(lines) >= len([c for c in pairwise_cover("cpu", check_on("cpu")) if c.strategy != "draft-model"])
