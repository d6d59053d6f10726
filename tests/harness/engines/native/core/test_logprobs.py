"""Conformance 19: log-probabilities are those of a plain pass over the same tokens, under every strategy."""

from __future__ import annotations

import pytest
import torch
from toy.backends import WithoutPadding
from toy.compare import dense_pass
from toy.edits import FEATURES, STRATEGIES, named, scripted
from toy.engines import fill_mixed_steps, generate, make_engine, pad_rounds, request
from toy.plans import CPU
from toy.prompts import text_prompt

from specbench.harness.engines.native.core import logprobs as module
from specbench.harness.engines.native.core import round as engine_round
from specbench.harness.engines.native.core.request import Request, SamplingParams
from specbench.harness.engines.native.core.synthetic import SyntheticAcceptance

TOLERANCE = 2e-4
ASKED = [dict(logprobs=0), dict(logprobs=3, prompt_logprobs=2), {}, dict(logprobs=20), dict(prompt_logprobs=0)]


def requests_with(**sampling) -> list[Request]:
    return [
        request(i, text_prompt(i, 1 + 5 * i), max_tokens=12 + i, seed=i, temperature=0.7 * (i % 2), **asked, **sampling)
        for i, asked in enumerate(ASKED)
    ]


def check(target, done: Request) -> None:
    all_TV = dense_pass(target, [*done.prompt_ids, *done.output_ids])[0].float().log_softmax(-1)
    first = len(done.prompt_ids)
    if (num := done.sampling.prompt_logprobs) is not None:
        assert done.prompt_logprobs[0] is None and len(done.prompt_logprobs) == first
        _compare(done.prompt_logprobs[1:], all_TV[: first - 1], done.prompt_ids[1:], num)
    else:
        assert done.prompt_logprobs == []
    if (num := done.sampling.logprobs) is not None:
        assert len(done.logprobs) == len(done.output_ids), "one for each token"
        _compare(done.logprobs, all_TV[first - 1 : -1], done.output_ids, num)
    else:
        assert done.logprobs == []


def _compare(told, expected_TV, tokens, num: int) -> None:
    for one, row_V, token in zip(told, expected_TV, tokens, strict=True):
        assert abs(one.logprob - row_V[token]) < TOLERANCE, "not its own"
        values = torch.tensor([value for _, value in one.top])
        assert len(values) == num and torch.equal(values, values.sort(descending=True).values)
        assert torch.allclose(values, row_V.topk(num).values.cpu(), atol=TOLERANCE), "not the best"
        assert all(abs(row_V[token] - value) < TOLERANCE for token, value in one.top), "of other tokens"


def finished(engine, requests) -> None:
    for done in generate(engine, requests).values():
        check(engine.target, done)


@pytest.mark.parametrize("strategy", [*(name for name, _ in STRATEGIES), "perfect", "random", "tree"])
@pytest.mark.parametrize("edits", ["off", "all"])
def test_c19_every_strategy_tells_the_targets_own(main_plan, strategy, edits):
    requests = requests_with(**FEATURES.get(edits, {}))
    made = named(strategy) if strategy in dict(STRATEGIES) else scripted(strategy, requests, main_plan)
    finished(make_engine(main_plan, made, max_num_batched_tokens=64), requests)


def test_c19_under_every_plan(plan):
    requests = requests_with()
    finished(make_engine(plan, scripted("cycling", requests, plan), max_num_seqs=3, max_num_batched_tokens=7), requests)


def test_c19_in_a_captured_layout():
    requests = requests_with()
    strategy = scripted("cycling", requests, CPU)
    engine = make_engine(CPU, strategy, max_num_seqs=5, max_num_batched_tokens=30, backend=WithoutPadding())
    pad_rounds(engine, [4, 8])
    fill_mixed_steps(engine, 64)
    finished(engine, requests)


def test_c19_a_preempted_request_tells_each_token_once():
    requests = [request(i, text_prompt(i, 8 + i), max_tokens=40, logprobs=1, prompt_logprobs=1) for i in range(4)]
    engine = make_engine(CPU, named("ngram"), num_pages=24)
    done = generate(engine, requests)
    assert sum(r.num_preemptions for r in done.values()) > 0
    for each in done.values():
        check(engine.target, each)


def test_c19_a_stop_id_is_the_last_that_is_told():
    plain = generate(make_engine(CPU), [request(0, text_prompt(0, 5), max_tokens=12)])[0].output_ids
    asked = request(0, text_prompt(0, 5), max_tokens=12, stop_token_ids=(plain[5],), logprobs=0)
    done = generate(make_engine(CPU, scripted("perfect", [asked], CPU)), [asked])[0]
    assert len(done.logprobs) == len(done.output_ids) == plain.index(plain[5]) + 1


def _shifted(logits_RV, ids_R, real=module.logprob_columns):
    return real(logits_RV, ids_R.roll(1))


def _without_path(logits_RV, sampled_R, path_BW, out_BWN, real=module.keep_logprobs):
    real(logits_RV, sampled_R, torch.arange(path_BW.shape[1]).expand_as(path_BW), out_BWN)


def _in_place(logits_RV, *rest, real=engine_round.edit_logits):
    return logits_RV.copy_(real(logits_RV, *rest))


FAULTS = {
    "of the row's neighbour": ("perfect", module, "logprob_columns", _shifted),
    "of nodes beside the accepted path": ("tree", engine_round, "keep_logprobs", _without_path),
    "of changed logits": ("perfect", engine_round, "edit_logits", _in_place),
    "of drafts that were not kept": ("cycling", Request, "keep_logprobs", None),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_seen(monkeypatch, fault):
    script, where, name, planted = FAULTS[fault]
    requests = requests_with(**FEATURES["all"])
    strategy = scripted(script, requests, CPU)
    real = Request.keep_logprobs
    everything = lambda self, columns: real(self, columns + columns[-1:])  # noqa: E731
    monkeypatch.setattr(where, name, planted or everything)
    engine = make_engine(CPU, strategy)
    done = generate(engine, requests)
    with pytest.raises(AssertionError, match="not its own|not the best|one for each|of other tokens"):
        for each in done.values():
            check(engine.target, each)


@pytest.mark.parametrize("at_once", [1, 7, 20], ids=["1", "ragged", "all"])
def test_a_long_prompt_needs_no_more_memory_than_a_few_rows(at_once, monkeypatch):
    """The logits of a prompt are computed in pieces, which leave no trace in its log-probabilities."""
    monkeypatch.setattr(module, "_ROWS_AT_ONCE", at_once)
    most, compute = [], module.logprob_columns
    monkeypatch.setattr(module, "logprob_columns", lambda logits, ids: most.append(len(ids)) or compute(logits, ids))
    engine = make_engine(CPU)
    done = generate(engine, [request(0, text_prompt(0, 21), max_tokens=2, prompt_logprobs=2)])[0]
    check(engine.target, done)
    assert sum(most) == 20 and max(most) == at_once


@pytest.mark.parametrize("name", ["logprobs", "prompt_logprobs"])
@pytest.mark.parametrize("value", [-1, 21])
def test_more_than_the_columns_are_refused(name, value):
    with pytest.raises(ValueError, match=f"{name}: {value} is not allowed; allowed: 0 to 20"):
        SamplingParams(**{name: value})


def test_forced_tokens_are_refused():
    engine = make_engine(CPU, named("ngram"), acceptance=SyntheticAcceptance((0.5,) * 4, "fixed"))
    with pytest.raises(ValueError, match="logprobs: are not allowed with forced acceptance"):
        engine.add(request(0, (1, 2), logprobs=1))
