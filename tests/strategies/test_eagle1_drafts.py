"""Conformance 60, 64: the engine's paged chain drafter drafts what an independent dense EAGLE-1 drafts, round by round.

Features come from transformers (what its lm_head reads), the head's tensors from the checkpoint. Acceptance is forced
to vary, because a random head's drafts would nearly always be rejected.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from toy.checkpoints import eagle1_config, llama_config, load_written, write_eagle1, write_llama
from toy.draft_rounds import compare_drafts, varied_acceptance, varied_requests
from toy.eagle1_reference import Eagle1Reference
from toy.engines import decode_rows, make_engine, named_strategy
from toy.plans import CPU, Plan
from transformers import LlamaForCausalLM

from specbench.harness.engines.native.core.engine import Engine

TARGET = llama_config(num_hidden_layers=4)
VARIANTS = {
    "without-bias": eagle1_config(),
    "with-bias": {key: value for key, value in eagle1_config().items() if key != "bias"},
    "reduced-vocabulary": eagle1_config(draft_vocab_size=48),
}


@pytest.fixture(scope="module")
def features(target_folder):
    """Final-normed states of a context's tokens."""
    model = LlamaForCausalLM.from_pretrained(target_folder, dtype=torch.float32, trust_remote_code=False).eval()

    def of(ids: list[int]) -> torch.Tensor:
        with torch.no_grad():
            return model.model(torch.tensor([ids])).last_hidden_state[0]

    return of


def _sharpen(tensors: dict[str, torch.Tensor]) -> None:
    """Attention that depends on positions as a trained head's does; random weights attend to all alike."""
    tensors["layers.0.self_attn.q_proj.weight"] *= 6


def _reference(folder: Path, target_folder: Path, config: dict) -> Eagle1Reference:
    tensors = write_eagle1(folder, config, change=_sharpen)
    return Eagle1Reference(tensors, config, write_llama(target_folder, TARGET))


def _engine(plan: Plan, head: Path, target_folder: Path, k: int, **config) -> Engine:
    target, strategy = load_written(target_folder, plan.device), named_strategy("eagle", k=k, head=head)
    return make_engine(plan, strategy, target=target, acceptance=varied_acceptance(k), **config)


def _compare(engine: Engine, reference: Eagle1Reference, features) -> tuple[int, int]:
    """(rounds compared, rounds that differ from the reference beyond a near-tie)."""
    return compare_drafts(
        engine, varied_requests(), lambda context, k: reference.drafts(features(context[:-1]), context, k)
    )


@pytest.mark.parametrize("variant", VARIANTS)
def test_c60_every_variant_drafts_as_the_reference(single_plan, target_folder, features, tmp_path, variant):
    reference = _reference(tmp_path, target_folder, VARIANTS[variant])
    engine = _engine(single_plan, tmp_path, target_folder, k=4)
    compared, different = _compare(engine, reference, features)
    assert compared > 15 and different == 0
    assert {r.num_accepted for r in decode_rows(engine)} == {0, 1, 2, 3, 4}, "every acceptance must have happened"


@pytest.mark.parametrize(("k", "page_size", "budget"), [(1, 1, 5), (3, 16, 5), (8, 4, 64)])
def test_c64_depths_pages_and_chunked_prompts(single_plan, target_folder, features, tmp_path, k, page_size, budget):
    reference = _reference(tmp_path, target_folder, eagle1_config())
    engine = _engine(
        single_plan, tmp_path, target_folder, k, page_size=page_size, max_num_batched_tokens=budget, max_num_seqs=3
    )
    compared, different = _compare(engine, reference, features)
    assert compared > 15 and different == 0


@pytest.mark.parametrize("fault", ["hidden_first", "unshifted_ids", "norms_input"])
def test_c60_a_wrong_convention_would_be_noticed(target_folder, features, tmp_path, fault):
    reference = _reference(tmp_path, target_folder, eagle1_config())
    setattr(reference, fault, True)
    compared, different = _compare(_engine(CPU, tmp_path, target_folder, k=3), reference, features)
    assert different > 0.3 * compared
