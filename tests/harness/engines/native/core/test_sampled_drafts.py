"""Conformance 13, and 11, 12, 17, 48 for drafts that are drawn: every token has the target's distribution behind the
text before it, and as many drafts are accepted as p and q have in common.

All tokens of all requests are tested at once: a token's place in its own distribution, likeliest first, is uniform
where it was drawn right. Probabilities are worked out by hand (toy/by_hand.py). Seeds are fixed.
"""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from kernels.operations import counted_operations
from scipy import stats
from toy.by_hand import edited, softmax
from toy.checkpoints import eagle3_config, llama_config, load_written, write_eagle3, write_llama
from toy.compare import dense_pass
from toy.engines import decode_rows, generate, make_engine, named_strategy, outputs, pad_rounds, request
from toy.plans import CPU, Plan
from toy.prompts import text_prompt

from specbench.harness.engines.native.arms import resolve_arm
from specbench.harness.engines.native.core import sampled_drafts as module
from specbench.harness.engines.native.core.sampled_drafts import SampledDrafts
from specbench.harness.engines.native.core.synthetic import SyntheticAcceptance
from specbench.harness.engines.native.models.draft_models import first_layers
from specbench.harness.engines.native.models.heads import load_head
from specbench.harness.registry import strategy_class
from specbench.harness.spec.arm import parse_arm
from specbench.harness.spec.sampling import SamplingParams

NUM, LENGTH = 80, 14
SIZES = dict(max_num_seqs=80, max_num_batched_tokens=400, max_model_len=48, page_size=16)
ARM, ARM_GREEDY = (f"eagle:k=2,head=random,draft_sample_method={how}" for how in ("probabilistic", "greedy"))
FALSE_ALARM, MAX_DEVIATIONS = 1e-3, 3.5
PENALTIES = dict(repetition_penalty=1.3, frequency_penalty=0.4, presence_penalty=0.3)
TREE = ("eagle-topk", dict(num_steps=3, topk=3, num_draft_tokens=7))
CASES = [
    ("draft-model", dict(k=3), dict(temperature=1.0)),
    ("draft-model", dict(k=2), dict(temperature=0.5, top_k=20, logit_bias=((5, 1.0), (6, -2.0)), **PENALTIES)),
    ("naive-eagle", dict(k=2), dict(temperature=1.5, top_p=0.9, allowed_token_ids=tuple(range(3, 120, 5)))),
    ("parallel-eagle", dict(k=3), dict(temperature=0.7, top_k=40)),
    (*TREE, dict(temperature=1.0)),
    (*TREE, dict(temperature=0.5, top_p=0.9, **PENALTIES)),
    (*TREE, dict(temperature=1.5, min_p=0.15, top_k=25)),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sampled")
    write_llama(folder / "target", llama_config(num_hidden_layers=2))
    write_eagle3(folder / "head", eagle3_config(), llama_config())
    write_eagle3(folder / "one-pass", eagle3_config(ptd_token_id=9), llama_config())
    return folder


def strategy_of(folder, name: str, options: dict, method: str = "probabilistic"):
    head = folder / ("one-pass" if strategy_class(name).one_pass else "head")
    source = dict(draft="self:1") if name == "draft-model" else dict(head=str(head))
    return named_strategy(name, **options, **source, draft_sample_method=method)


def ran(plan: Plan, folder, name: str, options: dict, sampling: dict, num: int = NUM, method: str = "probabilistic"):
    """An engine that has answered, and its requests."""
    target = load_written(folder / "target", plan.device)
    engine = make_engine(plan, strategy_of(folder, name, options, method), target=target, **SIZES)
    return engine, generate(engine, requests_of(sampling, num))


def requests_of(sampling: dict, num: int):
    return [
        request(i, text_prompt(i % 128, 4 + i % 5), max_tokens=LENGTH, seed=7 * i + 1, **sampling) for i in range(num)
    ]


def distributions(model, done) -> list[np.ndarray]:
    """What each output token of a request was to be drawn from by this model."""
    prompt, said = list(done.prompt_ids), list(done.output_ids)
    logits_TV = dense_pass(model, [*prompt, *said])[0][len(prompt) - 1 :].float().cpu().numpy()
    return [softmax(edited(logits_TV[i], prompt, said[:i], done.sampling)) for i in range(len(said))]


def p_value(target, finished) -> float:
    """Chi-square of the places, ten equal buckets."""
    generator = np.random.default_rng(0)
    places = []
    for done in finished.values():
        for token, p_V in zip(done.output_ids, distributions(target, done), strict=True):
            assert p_V[token] > 0, "a token outside the support was drawn"
            order = np.argsort(-p_V, kind="stable")
            before = p_V[order[: int(np.flatnonzero(order == token)[0])]].sum()
            places.append(before + generator.random() * p_V[token])
    counts = np.bincount((np.array(places) * 10).astype(int).clip(0, 9), minlength=10)
    return float(stats.chisquare(counts).pvalue)


def deviation(engine, finished, target) -> float:
    """How many more first drafts of rounds are accepted than p and q have in common, in standard deviations. Of a draft
    model, whose q is worked out by hand."""
    drafter = first_layers(target, "1")
    common, was_accepted = [], []
    for number, done in finished.items():
        # The drafter does not see penalties.
        plain = {n: getattr(done.sampling, n) for n in ("temperature", "top_k", "top_p", "min_p", "logit_bias")}
        alike = type(done)(number, done.prompt_ids, SamplingParams(**plain))
        alike.output_ids = list(done.output_ids)
        p, q = distributions(target, done), distributions(drafter, alike)
        at = 1  # the first token comes with the prompt
        for row in decode_rows(engine, number):
            if at < len(p):
                common.append(np.minimum(p[at], q[at]).sum())
                was_accepted.append(row.num_accepted > 0)
            at += row.num_emitted
    assert len(common) > 250
    known = np.array(common)
    return float((np.array(was_accepted) - known).sum() / np.sqrt((known * (1 - known)).sum()))


@pytest.mark.parametrize(("name", "options", "sampling"), CASES, ids=str)
def test_c13_tokens_have_the_targets_distribution(main_plan, folder, name, options, sampling):
    engine, finished = ran(main_plan, folder, name, options, sampling)
    target = load_written(folder / "target")
    assert p_value(target, finished) > FALSE_ALARM
    if name == "draft-model":
        assert abs(deviation(engine, finished, target)) < MAX_DEVIATIONS
    accepted = [r.num_accepted for r in decode_rows(engine)]
    assert 0.05 < np.mean([a > 0 for a in accepted]) < 0.98, (
        "drafts must be accepted sometimes for this to say anything"
    )


class Cycle:
    """Other numbers of drafts in each step."""

    choices = (0, 1, 2, 3)

    def __init__(self):
        self.order = itertools.cycle((3, 3, 1, 2, 0, 3))

    def choose(self, num_requests: int) -> int:
        return next(self.order)

    def accepted(self, *status) -> None:
        """Changes nothing."""


def test_rounds_of_any_number_of_drafts(monkeypatch, folder):
    """As `k=auto` has them: fewer are verified than there are, or more than an earlier round has made."""
    monkeypatch.setattr(strategy_class("draft-model"), "draft_counts", lambda self: Cycle())
    engine, finished = ran(CPU, folder, *CASES[0])
    assert {r.num_accepted for r in decode_rows(engine)} == {0, 1, 2, 3}
    assert p_value(load_written(folder / "target"), finished) > FALSE_ALARM


def test_more_is_accepted_than_of_greedy_drafts_and_with_more_children(folder):
    lengths = {}
    for label, name, options, method in (
        ("greedy", "eagle", dict(k=3), "greedy"),
        ("drawn", "eagle", dict(k=3), "probabilistic"),
        ("tree", *TREE, "probabilistic"),
    ):
        engine, _ = ran(CPU, folder, name, options, dict(temperature=1.0), 30, method)
        lengths[label] = np.mean([r.num_accepted for r in decode_rows(engine)])
    assert lengths["greedy"] < lengths["drawn"] < lengths["tree"]


def _q_before_top_k(patch):
    real = SampledDrafts._changed

    def changed(self, logits, slot, mode):
        logits, is_random = real(self, logits, slot, mode)
        self._fault_q = logits / 1.5  # what is stored; what is drawn from is another
        return logits, is_random

    def draw(self, logits, slot, step, mode):
        DRAW(self, logits, slot, step, mode)
        self._q_SNV[slot, step - 1] = self._fault_q.softmax(dim=1)

    patch.setattr(SampledDrafts, "_changed", changed)
    patch.setattr(SampledDrafts, "draw", draw)


DRAW, REJECT, TOKENS = SampledDrafts.draw, module.reject_drafts, SampledDrafts.tokens


def _no_residual(p, q, draft, coin):
    return REJECT(p, q, draft, coin)[0], p


def _of_the_next_row(self, *args, real=SampledDrafts._drafts):
    draft, q = real(self, *args)
    return draft, q.roll(1, dims=0)


FAULTS = {
    "no residual": lambda patch: patch.setattr(module, "reject_drafts", _no_residual),
    "q not normalised": lambda patch: patch.setattr(module, "reject_drafts", lambda p, q, *a: REJECT(p, q * 1.4, *a)),
    "q of another temperature": _q_before_top_k,
    "q of another row": lambda patch: patch.setattr(SampledDrafts, "_drafts", _of_the_next_row),
    "every draft accepted": lambda patch: patch.setattr(SampledDrafts, "_coins", lambda self, draft, *a: draft * 0.0),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_seen(monkeypatch, folder, fault):
    FAULTS[fault](monkeypatch)
    engine, finished = ran(CPU, folder, *CASES[0])
    target = load_written(folder / "target")
    assert p_value(target, finished) < FALSE_ALARM or abs(deviation(engine, finished, target)) > MAX_DEVIATIONS


# -- what stays as it is ---------------------------------------------------------------------------------------------


def mixed_requests() -> list:
    """Greedy and random requests, which arrive in chunks beside each other's rounds."""
    kinds = [dict(), dict(temperature=0.9), dict(), dict(temperature=1.2, top_k=9)]
    return [request(i, text_prompt(i, 3 + 5 * i), max_tokens=8, seed=i, **kinds[i % 4]) for i in range(6)]


@pytest.mark.parametrize(("name", "options"), [("eagle", dict(k=3)), TREE], ids=str)
def test_greedy_requests_keep_their_drafts_beside_random_ones(plan, folder, name, options):
    """Same tokens, same acceptance, round by round; under every way of running a round."""
    target = load_written(folder / "target", plan.device)
    seen = []
    for method in ("greedy", "probabilistic"):
        engine = make_engine(plan, strategy_of(folder, name, options, method), target=target)
        finished = outputs(generate(engine, mixed_requests()))
        rounds = {i: [r.num_accepted for r in decode_rows(engine, i)] for i in range(0, 6, 2)}
        seen.append(({i: finished[i] for i in range(0, 6, 2)}, rounds, finished[1]))
    assert seen[0][:2] == seen[1][:2]
    assert seen[0][2] != seen[1][2], "random requests drew other numbers"


@pytest.mark.parametrize(("name", "options"), [("eagle", dict(k=3)), TREE], ids=str)
def test_a_batch_of_greedy_requests_draws_nothing(monkeypatch, folder, name, options):
    def fails(*args):
        raise AssertionError("a greedy batch asked for random numbers")

    for method in ("make_room", "draw", "draw_level", "note_tree", "tokens"):
        monkeypatch.setattr(SampledDrafts, method, fails)
    ran(CPU, folder, name, options, {}, num=4)


def test_seeds_repeat_whatever_the_batch(folder):
    """Alone, beside others, in padded rounds: the same tokens, since all noise hangs on seed and position."""
    target, found = load_written(folder / "target"), []
    for size, padding in ((1, None), (4, None), (4, [3, 8])):
        engine = make_engine(CPU, strategy_of(folder, *TREE), target=target, max_num_seqs=size)
        if padding:
            pad_rounds(engine, padding)
        found.append(outputs(generate(engine, mixed_requests())))
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize(("name", "options"), [("eagle", dict(k=2)), TREE], ids=str)
def test_nothing_is_read_by_the_host(monkeypatch, folder, name, options):
    """So that a graph can hold it: drafting, and telling tokens from drafts, launch operations alone."""
    seen = []

    def watched(method):
        def call(*args):
            found = []
            operations = counted_operations(lambda: found.append(method(*args)))
            seen.append((method.__name__, len(operations)))
            return found[0]

        return call

    for method in ("draw", "draw_level", "note_tree", "tokens"):
        monkeypatch.setattr(SampledDrafts, method, watched(getattr(SampledDrafts, method)))
    edits = dict(min_p=0.1, top_k=9, top_p=0.9, logit_bias=((5, 1.0),), **PENALTIES)
    ran(CPU, folder, name, options, dict(temperature=1.0, **edits), num=2)
    assert {"tokens", "draw" if name == "eagle" else "draw_level"} <= {name for name, _ in seen}


def test_forced_acceptance_emits_drawn_drafts(folder):
    engine = make_engine(
        CPU,
        strategy_of(folder, "eagle", dict(k=2)),
        target=load_written(folder / "target"),
        acceptance=SyntheticAcceptance((1.0, 1.0), "all"),
    )
    generate(engine, [request(0, text_prompt(0, 5), max_tokens=13, temperature=1.0)])
    assert {r.num_accepted for r in decode_rows(engine)} == {2}


@pytest.mark.parametrize("name", ["eagle", "naive-eagle", "eagle-topk", "parallel-eagle", "draft-model"])
def test_methods_are_named(name):
    assert not named_strategy(name).samples_drafts
    assert named_strategy(name, draft_sample_method="probabilistic").samples_drafts
    with pytest.raises(ValueError, match="draft_sample_method='typical' is not known; allowed: greedy, probabilistic"):
        named_strategy(name, draft_sample_method="typical")


def test_rows_of_tables_say_it():
    resolved = [resolve_arm(parse_arm(text), "cpu", synthetic_weights=False).notes for text in (ARM, ARM_GREEDY)]
    assert [any(note.startswith("drawn drafts") for note in notes) for notes in resolved] == [True, False]


@pytest.mark.parametrize(("name", "options"), [("eagle", dict(k=3)), TREE])
def test_a_head_with_two_ids_of_one_token_is_refused_only_where_it_draws(tmp_path, name, options):
    """The probability of such a token is that of both; a likeliest draft is exact whatever it was drawn from."""

    def joined(tensors):
        tensors["d2t"][1:3] = tensors["d2t"][0] - torch.arange(1, 3)

    write_llama(tmp_path / "target", llama_config(num_hidden_layers=2))
    write_eagle3(tmp_path / "head", eagle3_config(draft_vocab_size=48), llama_config(), change=joined)
    token = int(load_head(tmp_path / "head", load_written(tmp_path / "target")).d2t[0])
    said = f"{tmp_path / 'head'}, whose d2t maps 3 draft ids to target id {token} .*; allowed: draft_.*=greedy, or"
    with pytest.raises(ValueError, match=f"{name}: draft_sample_method=probabilistic is not allowed with {said}"):
        ran(CPU, tmp_path, name, options, dict(temperature=1.0), num=2)
    _, drafted = ran(CPU, tmp_path, name, options, dict(temperature=1.0), num=20, method="greedy")
    plain_engine = make_engine(CPU, named_strategy("no-spec"), target=load_written(tmp_path / "target"), **SIZES)
    assert outputs(drafted) == outputs(generate(plain_engine, requests_of(dict(temperature=1.0), 20)))


def test_drafts_that_nothing_drew_have_no_method():
    with pytest.raises(ValueError, match="ngram: unknown option 'draft_sample_method'"):
        named_strategy("ngram", draft_sample_method="probabilistic")


@pytest.mark.parametrize(("num_drafts", "num_positions"), [(255, 64), (4, (1 << 24) + 1)])
def test_noise_that_would_be_used_twice_is_refused(num_drafts, num_positions):
    """A key has 24 bits for the position and 8 for what the noise decides."""

    def sampled(num_drafts: int, num_positions: int) -> SampledDrafts:
        wide_SL, drafts_SK = (torch.empty(2, n, device="meta") for n in (num_positions, num_drafts))
        return SampledDrafts(SimpleNamespace(tokens_SL=wide_SL, drafts_SK=drafts_SK, tree=None), 99, None)

    sampled(254, 1 << 24)
    with pytest.raises(AssertionError, match="lanes"):
        sampled(num_drafts, num_positions)


def test_stored_distributions_are_as_large_as_the_drafters_vocabulary(folder):
    engine, _ = ran(CPU, folder, *TREE, dict(temperature=1.0), num=2)
    sampled = engine.drafter.sampled
    assert sampled._q_SNV.shape == (81, 1 + 2 * 3, len(engine.drafter.model.d2t))
    torch.testing.assert_close(sampled._q_SNV[:2].sum(-1), torch.ones(2, 7), atol=1e-5, rtol=0)
