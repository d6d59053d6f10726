"""Conformance 61, 64: the engine's paged drafters draft what an independent dense EAGLE-3 drafts, round by round: a
chain of passes, and one pass over placeholders (parallel drafting).

Features come from transformers, the head's tensors from the checkpoint, and the reference recomputes everything:
shifted ids, rotary positions, the state fed back, and KV of rejected or self-fed rows that must have been overwritten.
Acceptance is forced to vary, because a random head's drafts would nearly always be rejected.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from toy.checkpoints import eagle3_config, llama_config, load_written, write_eagle3, write_llama
from toy.draft_rounds import compare_drafts, varied_acceptance, varied_requests
from toy.eagle3_reference import Eagle3Reference
from toy.engines import decode_rows, make_engine, named_strategy
from toy.plans import CPU, Plan

from specbench.harness.engines.native.core.engine import Engine
from specbench.harness.engines.native.models.heads import is_one_pass

TARGET = llama_config(num_hidden_layers=8)
ONE_PASS = dict(ptd_token_id=9)
VARIANTS = {
    "published": {},
    "whole-vocabulary": dict(draft_vocab_size=128),
    "own-embedding-other-width": dict(hidden_size=48, target_hidden_size=64),
    "norm-before-residual": dict(norm_before_residual=True),
    "norm-output": dict(norm_output=True),
    "norm-before-fc": dict(norm_before_fc=True),
    "norm-before-fc-nested": dict(eagle_config={"norm_before_fc": True}),
    "fc-norm": dict(fc_norm=True),
    "all-at-once": dict(
        fc_norm=True, norm_output=True, norm_before_residual=True, hidden_size=96, target_hidden_size=64
    ),
    "one-pass": ONE_PASS,
    "one-pass-all-at-once": dict(
        **ONE_PASS,
        norm_before_fc=True,
        norm_output=True,
        norm_before_residual=True,
        hidden_size=48,
        target_hidden_size=64,
    ),
}


def _sharpen(tensors: dict[str, torch.Tensor]) -> None:
    """Attention that depends on positions as a trained head's does; random weights attend to all alike."""
    tensors["midlayer.self_attn.q_proj.weight"] *= 6


def _reference(folder: Path, target_folder: Path, variant: dict) -> Eagle3Reference:
    config = eagle3_config(**variant)
    tensors = write_eagle3(folder, config, TARGET, change=_sharpen)
    return Eagle3Reference(tensors, config, write_llama(target_folder, TARGET)["model.embed_tokens.weight"])


def _engine(plan: Plan, head: Path, target_folder: Path, k: int, **config) -> Engine:
    strategy = named_strategy("parallel-eagle" if is_one_pass(head) else "eagle", k=k, head=head)
    target = load_written(target_folder, plan.device)
    return make_engine(plan, strategy, target=target, acceptance=varied_acceptance(k), **config)


def _compare(engine: Engine, reference: Eagle3Reference, features, requests) -> tuple[int, int]:
    """Runs the requests; (rounds compared, rounds that differ from the reference beyond a near-tie)."""
    return compare_drafts(engine, requests, lambda context, k: reference.drafts(features(context[:-1]), context, k))


@pytest.mark.parametrize("variant", VARIANTS)
def test_c61_c64_every_variant_drafts_as_the_reference(single_plan, target_folder, features, tmp_path, variant):
    reference = _reference(tmp_path, target_folder, VARIANTS[variant])
    engine = _engine(single_plan, tmp_path, target_folder, k=4)
    compared, different = _compare(engine, reference, features, varied_requests())
    assert compared > 15 and different == 0
    accepted = {r.num_accepted for r in decode_rows(engine)}
    assert accepted == {0, 1, 2, 3, 4}, "every acceptance must have happened"


@pytest.mark.parametrize("k", [1, 2, 3, 8])
@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("budget", [5, 64])
@pytest.mark.parametrize("variant", ["published", "one-pass"])
def test_c64_depths_pages_and_chunked_prompts(
    single_plan, target_folder, features, tmp_path, k, page_size, budget, variant
):
    reference = _reference(tmp_path, target_folder, VARIANTS[variant])
    engine = _engine(
        single_plan, tmp_path, target_folder, k, page_size=page_size, max_num_batched_tokens=budget, max_num_seqs=3
    )
    compared, different = _compare(engine, reference, features, varied_requests())
    assert compared > 15 and different == 0


@pytest.mark.parametrize("variant", ["published", "one-pass"])
def test_c64_preempted_requests_draft_as_before(single_plan, target_folder, features, tmp_path, variant):
    reference = _reference(tmp_path, target_folder, VARIANTS[variant])
    engine = _engine(single_plan, tmp_path, target_folder, k=3, num_pages=16)
    requests = varied_requests()
    compared, different = _compare(engine, reference, features, requests)
    assert compared > 15 and different == 0 and sum(r.num_preemptions for r in requests) > 0


@pytest.mark.parametrize(
    "fault", [dict(later_position_shift=1), dict(later_position_shift=-1), dict(unshifted_ids=True)], ids=str
)
@pytest.mark.parametrize("variant", ["published", "one-pass"])
def test_c64_a_wrong_convention_would_be_noticed(target_folder, features, tmp_path, fault, variant):
    reference = _reference(tmp_path, target_folder, VARIANTS[variant])
    for name, value in fault.items():
        setattr(reference, name, value)
    compared, different = _compare(_engine(CPU, tmp_path, target_folder, k=4), reference, features, varied_requests())
    assert different > 0.3 * compared


def test_c60_swapped_halves_of_the_input_would_be_noticed(target_folder, features, tmp_path):
    """Embedding first, hidden second: a head whose columns are swapped drafts something else."""
    reference = _reference(tmp_path, target_folder, {})
    for name in "qkv":
        key = f"midlayer.self_attn.{name}_proj.weight"
        reference.tensors[key] = reference.tensors[key].roll(64, dims=1)
    compared, different = _compare(_engine(CPU, tmp_path, target_folder, k=2), reference, features, varied_requests())
    assert different > 0.3 * compared
