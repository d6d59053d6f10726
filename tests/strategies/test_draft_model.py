"""The draft-model strategy: what it drafts, which models it takes, and that its output is the target's (conformance 2,
23, and 1 for this strategy)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from toy.checkpoints import llama_config, load_written, write_llama
from toy.compare import dense_pass
from toy.draft_rounds import compare_drafts, varied_acceptance, varied_requests
from toy.engines import decode_rows, generate, make_engine, pad_rounds, toy_target
from toy.oracle import assert_as_oracle, continuations
from toy.plans import CPU

from specbench.harness.engines.native.core.engine import Engine
from specbench.harness.engines.native.models.draft_models import make_draft_model
from specbench.harness.engines.native.models.llama import LlamaModel
from specbench.strategies.draft_model import DraftModel

SHAPES = [
    dict(page_size=1, max_num_batched_tokens=5),
    dict(page_size=4, max_num_batched_tokens=24),
    dict(page_size=16, max_num_batched_tokens=7, max_num_seqs=2),
    dict(page_size=64, max_num_batched_tokens=300),
]


def _strategy(k: int, draft: str) -> DraftModel:
    return DraftModel(k=k, draft=draft)


_requests = partial(varied_requests, max_tokens=28)


# -- what it drafts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"page{shape['page_size']}")
@pytest.mark.parametrize("k", [1, 2, 4, 8])
def test_c02_the_target_as_its_own_draft_model_is_always_right(main_plan, k, shape):
    """Greedy rounds accept everything, the ones after prompts, full acceptance and chunks included (conformance 23)."""
    requests = _requests(sampled=False)
    engine = make_engine(main_plan, _strategy(k, "self:2"), **shape)
    finished = generate(engine, requests)
    assert {r.num_accepted for r in decode_rows(engine)} == {k}
    assert_as_oracle(engine, finished, continuations(main_plan, requests))


def test_c42_a_preempted_request_is_drafted_for_as_before(main_plan):
    requests = _requests(sampled=False)
    engine = make_engine(main_plan, _strategy(4, "self:2"), num_pages=16)
    generate(engine, requests)
    assert sum(r.num_preemptions for r in requests) > 0
    assert {r.num_accepted for r in decode_rows(engine)} == {4}


def _wanted(model: LlamaModel, context: list[int], num_drafts: int) -> tuple[list[int], float]:
    """The model's greedy continuation with everything recomputed, and its smallest top-2 gap."""
    found, gap = [], float("inf")
    for _ in range(num_drafts):
        best = dense_pass(model, [*context, *found])[0][-1].float().topk(2)
        gap = min(gap, float(best.values[0] - best.values[1]))
        found.append(int(best.indices[0]))
    return found, gap


def _compare(engine: Engine, model: LlamaModel, requests: list) -> tuple[int, int]:
    return compare_drafts(engine, requests, lambda context, k: _wanted(model, context, k))


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"page{shape['page_size']}")
@pytest.mark.parametrize("draft", ["self:1", "shape:toy"])
@pytest.mark.parametrize("k", [1, 4])
def test_c23_drafts_are_the_models_greedy_continuation(single_plan, k, draft, shape):
    """Whatever was accepted before: forced acceptance goes through every count."""
    engine = make_engine(single_plan, _strategy(k, draft), acceptance=varied_acceptance(k), **shape)
    model = make_draft_model(draft, engine.target)
    compared, different = _compare(engine, model, _requests())
    assert compared > 15 and different == 0
    assert {r.num_accepted for r in decode_rows(engine)} == set(range(k + 1)), "every acceptance must have happened"


def test_c23_a_model_of_other_heads_and_width(single_plan, tmp_path):
    write_llama(tmp_path / "target", llama_config())
    other = dict(hidden_size=48, num_attention_heads=2, num_key_value_heads=1, head_dim=32, rope_theta=300.0)
    write_llama(tmp_path / "draft", llama_config(num_hidden_layers=3, **other), seed=8)
    target = load_written(tmp_path / "target", single_plan.device)
    strategy = _strategy(3, str(tmp_path / "draft"))
    engine = make_engine(single_plan, strategy, target=target, acceptance=varied_acceptance(3))
    compared, different = _compare(engine, load_written(tmp_path / "draft", single_plan.device), _requests())
    assert compared > 15 and different == 0


def test_c23_a_missing_key_of_the_last_draft_would_be_noticed(monkeypatch):
    """Without the first row of the pair the key at n' - 1 is missing after full acceptance."""
    engine = make_engine(CPU, _strategy(3, "self:2"))
    drafter = engine.drafter
    update = drafter._update

    def without_first_row(out, *rest) -> None:
        update.draft_pair_rows(out, *rest)
        out.kv_slot_T.view(-1, 2)[:, 0] = 0  # its key goes to the dummy page

    faulty = SimpleNamespace(
        draft_pair_rows=without_first_row, draft_next_rows=update.draft_next_rows, store_draft=update.store_draft
    )
    monkeypatch.setattr(drafter, "_update", faulty)
    generate(engine, _requests(sampled=False))
    assert {r.num_accepted for r in decode_rows(engine)} != {3}


# -- what it says ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("k", "draft", "padded"),
    [(1, "self:1", False), (3, "shape:toy", True), (4, "self:1", True), (8, "shape:toy", False)],
)
def test_c01_output_equals_no_spec(plan, k, draft, padded):
    requests = _requests()
    engine = make_engine(plan, _strategy(k, draft), page_size=7, max_num_batched_tokens=9)
    if padded and plan.device == "cpu":
        pad_rounds(engine, [3, 8])
    assert_as_oracle(engine, generate(engine, requests), continuations(plan, requests), draft)


def test_the_first_pass_has_two_rows_a_request():
    engine = make_engine(CPU, _strategy(4, "self:1"), max_num_batched_tokens=300)
    generate(engine, _requests())
    for row in engine.log.rows:
        expected = 2 * row.batch_size + (row.num_rows if row.kind == "mixed" else 0)
        assert row.num_draft_rows == expected, row


# -- which models it takes ---------------------------------------------------------------------------------------------


def test_first_layers_share_the_targets_weights():
    target = toy_target()
    model = make_draft_model("self:1", target)
    assert model.config.num_layers == len(model.layers) == 1 and model.layers[0] is target.layers[0]
    assert model.embed_VH is target.embed_VH and model.lm_head is target.lm_head and model.norm_H is target.norm_H
    assert target.config.num_layers == len(target.layers) == 2, "the target stays whole"


def test_a_shape_that_drafts_for_itself_is_another_model():
    target = toy_target()
    assert not torch.equal(make_draft_model("shape:toy", target).embed_VH, target.embed_VH)


@pytest.mark.parametrize(
    ("draft", "message"),
    [
        ("", "no draft model; give draft-model:draft=.*self:L.*shape:NAME"),
        ("self:0", "draft=self:0 is not allowed; allowed: self:1 to self:2"),
        ("self:3", "draft=self:3 is not allowed; allowed: self:1 to self:2"),
        ("self:all", "draft=self:all is not allowed"),
        ("toy", "draft=toy is a shape without weights; shape:toy gives it random ones"),
        ("shape:nothing", "no published shape 'nothing'"),
        ("shape:smollm2-135m", "vocab_size 49152, the target has 128"),
    ],
)
def test_models_that_cannot_draft_are_refused_by_name(draft, message):
    with pytest.raises(ValueError, match=message):
        make_engine(CPU, _strategy(4, draft))


def test_a_checkpoint_of_another_vocabulary_is_refused(tmp_path):
    write_llama(tmp_path, llama_config(vocab_size=96))
    with pytest.raises(ValueError, match="vocab_size 96, the target has 128"):
        make_engine(CPU, _strategy(4, str(tmp_path)))


def test_unpadded_rows_are_refused():
    with pytest.raises(ValueError, match="drafter: 'unpadded' is not allowed with draft-model.*allowed: padded"):
        make_engine(replace(CPU, drafter="unpadded"), _strategy(4, "self:1"))


@pytest.mark.parametrize("options", [dict(k="0"), dict(k="9"), dict(k="x"), dict(head="random")])
def test_options_are_refused_by_name(options):
    with pytest.raises(ValueError, match=f"draft-model: .*{next(iter(options))}"):
        DraftModel.of(options)
