"""Parallel drafting: one drafter pass a round, rounds of any number of drafts, and which heads it takes. What it
drafts: test_eagle3_drafts.py."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import pytest
import torch
from toy.checkpoints import (
    eagle1_config,
    eagle3_config,
    llama_config,
    load_written,
    write_eagle1,
    write_eagle3,
    write_llama,
)
from toy.draft_rounds import varied_requests
from toy.engines import decode_rows, generate, make_engine, named_strategy, pad_rounds
from toy.oracle import assert_as_oracle, continuations
from toy.plans import CPU

from specbench.harness.engines.native.core.synthetic import SyntheticAcceptance
from specbench.harness.engines.native.models.heads import check_head_files
from specbench.harness.registry import strategy_class


def _engine(plan, k: int, **config):
    return make_engine(plan, named_strategy("parallel-eagle", k=k, head="random"), **config)


@pytest.mark.parametrize(("k", "padded"), [(1, False), (2, True), (5, False), (8, True)])
def test_c01_output_equals_no_spec(plan, k, padded):
    requests = varied_requests()
    engine = _engine(plan, k, page_size=7, max_num_batched_tokens=9)
    if padded and plan.device == "cpu":
        pad_rounds(engine, [3, 8])
    assert_as_oracle(engine, generate(engine, requests), continuations(plan, requests), f"k={k}")


@pytest.mark.parametrize("k", [1, 4, 8])
def test_every_round_has_one_drafter_pass(monkeypatch, k):
    engine = _engine(CPU, k, acceptance=SyntheticAcceptance((0.7,) * k, "varied"), max_num_batched_tokens=30)
    head, passes = engine.drafter.model, Counter()
    run = head.pieces

    def counted(ids_T, *inputs, **named):
        passes.update([len(ids_T)])
        return run(ids_T, *inputs, **named)

    monkeypatch.setattr(head, "pieces", counted)
    generate(engine, varied_requests())
    by_step = {row.step: row for row in engine.log.rows}
    assert passes.total() == len(by_step), "prompts and decodes alike"
    assert passes == Counter(row.num_draft_rows for row in by_step.values())
    decodes = [row for row in by_step.values() if row.kind == "decode"]
    assert decodes and all(row.num_draft_rows == 2 * k * row.batch_size for row in decodes)
    assert {row.num_accepted for row in decode_rows(engine)} >= {0, k}


class _Cycle:
    """Other numbers of drafts in each step, as `k=auto` has them."""

    choices = (0, 1, 2, 3)

    def __init__(self):
        self.order = itertools.cycle((3, 3, 1, 2, 2, 0))

    def choose(self, num_requests: int) -> int:
        return next(self.order)

    def accepted(self, *status) -> None:
        """Changes nothing."""


def test_rounds_of_any_number_of_drafts(monkeypatch):
    monkeypatch.setattr(strategy_class("parallel-eagle"), "draft_counts", lambda self: _Cycle())
    requests = varied_requests()
    engine = _engine(CPU, 3)
    assert_as_oracle(engine, generate(engine, requests), continuations(CPU, requests))
    offered = {r.num_proposed for r in decode_rows(engine)}
    assert offered == {0, 1, 2, 3}


# -- which heads it takes ----------------------------------------------------------------------------------------------


def _pop_mask(tensors) -> None:
    del tensors["mask_hidden"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("heads")
    target, parallel = llama_config(), eagle3_config(ptd_token_id=9)
    write_llama(folder / "target", target)
    write_eagle3(folder / "parallel", parallel, target)
    write_eagle3(folder / "chain", eagle3_config(), target)
    write_eagle1(folder / "eagle1", eagle1_config())
    write_eagle3(folder / "outside", eagle3_config(ptd_token_id=128), target)
    write_eagle3(folder / "without", parallel, target, change=_pop_mask)
    write_eagle3(folder / "unread", eagle3_config(), target, change=lambda t: t.update(mask_hidden=torch.zeros(1, 192)))
    return folder


@pytest.mark.parametrize(
    ("strategy", "head", "message"),
    [
        (
            "parallel-eagle",
            "chain",
            "head: .*chain drafts one token a pass; allowed: one with ptd_token_id in its config",
        ),
        ("parallel-eagle", "eagle1", "head: .*eagle1 drafts one token a pass"),
        ("eagle", "parallel", "head: .*parallel drafts all tokens in one pass; allowed: one without ptd_token_id"),
        ("eagle-topk", "parallel", "head: .*parallel drafts all tokens in one pass"),
        ("naive-eagle", "parallel", "head: .*parallel drafts all tokens in one pass"),
        ("parallel-eagle", "outside", "ptd_token_id 128 is not supported; allowed: 0 to 127"),
        ("parallel-eagle", "without", "mask_hidden"),
        ("eagle", "unread", "mask_hidden"),
    ],
)
def test_a_head_of_another_kind_is_refused_by_name(folder, strategy, head, message):
    with pytest.raises(ValueError, match=message):
        make_engine(CPU, named_strategy(strategy, head=folder / head), target=load_written(folder / "target"))
    if "mask_hidden" not in message:  # the rest is known before the target is loaded
        with pytest.raises(ValueError, match=message):
            check_head_files(str(folder / head), strategy, one_pass=strategy_class(strategy).one_pass)


def test_a_head_of_its_kind_is_taken(folder):
    check_head_files(str(folder / "parallel"), "parallel-eagle", one_pass=True)
    strategy = named_strategy("parallel-eagle", head=folder / "parallel")
    head = make_engine(CPU, strategy, target=load_written(folder / "target")).drafter.model
    assert head.placeholder.token_id == 9 and head.placeholder.features_1F.shape == (1, 192)


@pytest.mark.parametrize(
    ("plan", "head", "message"),
    [
        (CPU, "random-eagle1", "head=random-eagle1 drafts one token a pass; allowed: random, or a trained head"),
        (replace(CPU, drafter="unpadded"), "random", "drafter: 'unpadded' is not allowed with parallel-eagle"),
    ],
)
def test_what_cannot_be_drafted_in_one_pass_is_refused(plan, head, message):
    with pytest.raises(ValueError, match=message):
        make_engine(plan, named_strategy("parallel-eagle", head=head))
