"""Conformance 11, 12, 17: what requests say over many seeds has the target's distribution, drafts or no drafts.

Chi-square over single tokens and over pairs: the pair's second token is drawn in a round whose first draft was often
accepted, so a sampler that favours (or avoids) drafts fails here. Seeds are fixed, so the test gives one answer.
"""

from __future__ import annotations

import pytest
import torch
from scipy import stats
from torch import Tensor
from toy.by_hand import edited, softmax
from toy.checkpoints import eagle3_config, llama_config, load_written, write_eagle3, write_llama
from toy.compare import dense_pass
from toy.engines import decode_rows, drive, make_engine, named_strategy, request
from toy.plans import Plan
from toy.prompts import text_prompt
from toy.scripted import PATTERNS, Script, Scripted

from specbench.harness.engines.native.core.engine import Engine
from specbench.harness.spec.sampling import SamplingParams
from specbench.kernels.sample import filter_top_k_top_p

NUM_SAMPLES = 2500
PROMPT = text_prompt(7, 9)
SAMPLINGS = [
    dict(temperature=0.5),
    dict(temperature=0.6, top_k=6),
    dict(temperature=0.8, top_p=0.7),
    dict(temperature=0.9, top_k=20, top_p=0.8),
]
EDITED = [
    dict(temperature=0.7, min_p=0.2),
    dict(temperature=0.7, repetition_penalty=1.5, frequency_penalty=0.8, presence_penalty=-0.4),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("distribution")
    write_llama(folder / "target", llama_config(num_hidden_layers=2))
    write_eagle3(folder / "head", eagle3_config(), llama_config())
    return folder


def _probabilities(target, context, temperature, top_k=0, top_p=1.0, **edits) -> Tensor:
    """fp64 [V] after top-k and top-p, written out by hand rather than taken from the sampler."""
    if edits:
        logits_V = dense_pass(target, context)[0][-1].cpu().numpy()
        asked = SamplingParams(temperature=temperature, **edits)
        return torch.from_numpy(softmax(edited(logits_V, PROMPT, context[len(PROMPT) :], asked)))
    logits = dense_pass(target, context)[0][-1].double() / temperature
    order = logits.argsort(descending=True)
    keep = order[: top_k or len(order)]
    probs = torch.softmax(logits[keep], 0)
    if top_p < 1:
        inside = int((probs.cumsum(0) - probs < top_p).sum())
        keep, probs = keep[:inside], probs[:inside] / probs[:inside].sum()
    return torch.zeros(len(order), dtype=torch.float64, device=logits.device).index_put((keep,), probs)


def _joint(target, sampling) -> Tensor:
    """Probability [V, V] of the first two tokens; rows too rare to be tested stay empty."""
    first_V = _probabilities(target, PROMPT, **sampling).cpu()
    joint_VV = torch.zeros(128, 128, dtype=torch.float64)
    for token in (first_V * NUM_SAMPLES > 5).nonzero().flatten().tolist():
        joint_VV[token] = first_V[token] * _probabilities(target, [*PROMPT, token], **sampling).cpu()
    return joint_VV


def _p_value(counts: Tensor, expected: Tensor) -> float:
    """Chi-square with every cell below five expected counts merged into one."""
    large = expected >= 5
    observed = [*counts[large].tolist(), counts[~large].sum().item()]
    wanted = [*expected[large].tolist(), NUM_SAMPLES - expected[large].sum().item()]
    if wanted[-1] < 1e-6 * NUM_SAMPLES:
        assert observed[-1] == 0, "a token outside the support was drawn"
        observed, wanted = observed[:-1], wanted[:-1]
    if wanted[-1] < 2:  # too small for the test: merge it into its neighbour
        observed = [*observed[:-2], observed[-2] + observed[-1]]
        wanted = [*wanted[:-2], wanted[-2] + wanted[-1]]
    return stats.chisquare(observed, wanted, sum_check=False).pvalue


def _strategy(kind: str, k: int, folder, target, plan: Plan):
    if kind == "no-spec":
        return named_strategy("no-spec")
    if kind == "eagle":
        return named_strategy("eagle", k=k, head=str(folder / "head"))
    # One-hot drafts: the greedy continuation of the prompt, the same for every request.
    engine = make_engine(Plan(plan.device), target=target)
    engine.add(request(7, PROMPT, max_tokens=16))
    oracle = {7: drive(engine)[7].output_ids}
    # Every position has its drafts, whatever was accepted before.
    script = Script.of([request(7, PROMPT)], oracle, PATTERNS["perfect"](k))
    script.right_FL.fill_(k)
    script.offered_FL.fill_(k)
    return Scripted(k, script)


def _end_pairs(engine: Engine) -> None:
    """The limit leaves room for whole rounds, of which the first that follows the prompt gives the second token."""
    for r in engine.scheduler.running:
        if len(r.output_ids) >= 2:
            engine.abort(r.id)


@pytest.mark.parametrize("sampling", [*SAMPLINGS, *EDITED], ids=str)
@pytest.mark.parametrize(("kind", "k"), [("no-spec", 0), ("one-hot", 1), ("one-hot", 3), ("eagle", 2)])
def test_c11_c12_pairs_of_tokens_have_the_targets_distribution(main_plan, folder, kind, k, sampling):
    target = load_written(folder / "target", main_plan.device)
    strategy = _strategy(kind, k, folder, target, main_plan)
    engine = make_engine(
        main_plan,
        strategy,
        target=target,
        max_num_seqs=125,
        max_num_batched_tokens=1200,
        max_model_len=32,
        page_size=32,
    )
    for seed in range(NUM_SAMPLES):
        engine.add(request(seed, PROMPT, max_tokens=2 + max(k, 1), seed=seed * 7 + 1, **sampling))
    done = drive(engine, after_step=_end_pairs)
    pairs = torch.tensor([done[i].output_ids[:2] for i in range(NUM_SAMPLES)])

    first_V = _probabilities(target, PROMPT, **sampling).cpu()
    counts_V = torch.bincount(pairs[:, 0], minlength=128)
    assert not counts_V[first_V == 0].any(), "a token outside the support was drawn"
    assert _p_value(counts_V, first_V * NUM_SAMPLES) > 1e-3

    joint_VV = _joint(target, sampling)
    counts_VV = torch.zeros(128, 128).index_put((pairs[:, 0], pairs[:, 1]), torch.ones(NUM_SAMPLES), accumulate=True)
    assert _p_value(counts_VV.flatten(), joint_VV.flatten() * NUM_SAMPLES) > 1e-3
    if kind == "one-hot":
        accepted = sum(r.num_accepted > 0 for r in decode_rows(engine)) / len(decode_rows(engine))
        assert 0.02 < accepted < 0.98, "drafts must be accepted sometimes for this test to say anything"


def test_the_hand_written_filter_and_the_samplers_agree(folder):
    target = load_written(folder / "target")
    logits_1V = dense_pass(target, PROMPT)[0][-1:]
    for sampling in SAMPLINGS:
        t, k, p = (torch.tensor([sampling.get(n, d)]) for n, d in (("temperature", 1.0), ("top_k", 0), ("top_p", 1.0)))
        kept = torch.softmax(filter_top_k_top_p(logits_1V, t, k, p)[0].double() / t, 0)
        torch.testing.assert_close(kept, _probabilities(target, PROMPT, **sampling), atol=1e-6, rtol=1e-5)


def test_a_sampler_that_prefers_its_drafts_would_fail(folder):
    """Power: a tenth of the mass moved to one token is seen."""
    target = load_written(folder / "target")
    probs_V = _probabilities(target, PROMPT, temperature=0.5)
    generator = torch.Generator().manual_seed(0)
    shifted_V = probs_V * 0.9
    shifted_V[probs_V.argmax()] += 0.1
    counts_V = torch.bincount(
        torch.multinomial(shifted_V, NUM_SAMPLES, replacement=True, generator=generator), minlength=128
    )
    assert _p_value(counts_V, probs_V * NUM_SAMPLES) < 1e-3
