"""What it costs the host to admit requests, and that a write of many slots at once is that of each alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from toy.engines import make_engine, named_strategy, request
from toy.operations import Operations
from toy.plans import CPU
from toy.prompts import text_prompt

from specbench.harness.engines.native.core.engine import Engine
from specbench.harness.engines.native.core.lookahead import Lookahead
from specbench.harness.engines.native.core.request import Request
from specbench.harness.engines.native.core.slot_memory import Field, SlotMemory
from specbench.harness.engines.native.core.state import RoundState

DEVICE = torch.device("cpu")
STRATEGIES: dict[str, dict[str, object]] = {
    "no-spec": {},
    "eagle": dict(k=3, head="random"),
    "naive-eagle": dict(k=3, head="random"),
    "eagle-topk": dict(head="random"),
    "parallel-eagle": dict(k=3, head="random"),
    "draft-model": dict(k=3, draft="self:1"),
    "ngram": dict(k=3),
}
MOST = 3  # an upload (on a CPU none), a scatter, the block table
CHUNK = 8


def _operations(engine: Engine) -> int:
    """In the engine's next step."""
    with Operations() as operations:
        engine.step()
    return len(operations.names)


def _extra(engine: Engine) -> int:
    """Operations that the step which admits a request has beyond the next, a prompt chunk of as many rows."""
    engine.add(request(0, text_prompt(0, 3 * CHUNK), max_tokens=4))
    return _operations(engine) - _operations(engine)


def _engine(strategy: str) -> Engine:
    return make_engine(CPU, named_strategy(strategy, **STRATEGIES[strategy]), max_num_batched_tokens=CHUNK)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_admitting_a_request_takes_few_operations(strategy):
    assert 0 < _extra(_engine(strategy)) <= MOST


def test_a_field_with_a_write_of_its_own_is_seen():
    engine = _engine("no-spec")
    assign, state = engine.state.assign, engine.state

    def field_by_field(requests, max_model_len):
        assign(requests, max_model_len)
        for r in requests:
            for tensor_S in (state.top_k_S, state.top_p_S, state.seed_S) if r.slot is not None else ():
                tensor_S[r.slot].fill_(0)

    engine.state.assign = field_by_field  # type: ignore[method-assign]
    assert _extra(engine) > MOST


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("num", [1, 2, 4])
def test_any_number_of_requests_take_as_many(strategy, num):
    engine = make_engine(CPU, named_strategy(strategy, **STRATEGIES[strategy]))
    for r in _requests(num):
        engine.add(r)
    engine.scheduler.plan_mixed_step()
    assert len(engine.scheduler.admitted) == num
    with Operations() as operations:
        engine._assign_admitted()
        engine.write_grants()
    assert operations.names == ["aten.index_copy_.default", "aten.copy_.default"]


# -- the values --------------------------------------------------------------------------------------------------------


def _requests(num: int) -> list[Request]:
    requests = [
        request(
            i,
            text_prompt(i, 1 + 2 * i),
            max_tokens=9 + i,
            temperature=0.7 + 0.1 * i,
            top_k=3 * i,
            top_p=1 - 0.3 / (i + 1),
            seed=(1 << 62) + i,
            stop_token_ids=tuple(range(i)),
            min_tokens=i,
            min_p=0.01 * i,
            repetition_penalty=1.1 + i,
            frequency_penalty=0.1 * i,
            presence_penalty=-0.1 * i,
        )
        for i in range(num)
    ]
    requests[-1].output_ids = [5, 6]  # one that was preempted
    return requests


def _state(num_drafts: int) -> RoundState:
    return RoundState(
        max_num_seqs=5, max_model_len=30, num_drafts=num_drafts, page_size=4, device=DEVICE,
        lookahead=Lookahead.of(num_drafts, None),
    )  # fmt: skip


def _tensors(state: RoundState) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in state._memory._tensors.items()}


@pytest.mark.parametrize("num_drafts", [0, 1, 4])
def test_slots_hold_what_their_requests_ask_for(num_drafts):
    state = _state(num_drafts)
    for tensor in state._memory._tensors.values():
        tensor.fill_(77)  # what an earlier request left
    requests, slots = _requests(4), (3, 0, 4, 1)
    for r, slot in zip(requests, slots, strict=True):
        r.slot = slot
    before = _tensors(state)
    state.assign(requests, 30)
    for r, slot in zip(requests, slots, strict=True):
        s, ids = r.sampling, [*r.prompt_ids, *r.output_ids]
        num, prompt_len = len(ids), len(r.prompt_ids)
        assert state.tokens_SL[slot].tolist() == ids + [77] * (state.max_kv - num)
        assert (state.n_S[slot], state.limit_S[slot], state.done_S[slot]) == (0, prompt_len + s.max_tokens, 0)
        assert state.stop_SE[slot].tolist() == [*s.stop_token_ids, *[-1] * (state.stop_SE.shape[1] - r.id)]
        assert state.drafts_SK[slot].tolist() == [-1] * num_drafts
        assert (state.top_k_S[slot], state.seed_S[slot]) == (s.top_k, s.seed)
        edits = state.edits
        assert (edits.prompt_len_S[slot], edits.first_stop_S[slot]) == (prompt_len, prompt_len + s.min_tokens)
        for tensor_S, value in (
            (state.temperature_S, s.temperature),
            (state.top_p_S, s.top_p),
            (edits.repetition_S, s.repetition_penalty),
            (edits.frequency_S, s.frequency_penalty),
            (edits.presence_S, s.presence_penalty),
            (edits.min_p_S, s.min_p),
        ):
            assert tensor_S[slot] == torch.tensor(value, dtype=torch.float32)
    others = [slot for slot in range(6) if slot not in slots]
    assert all(torch.equal(after[others], before[name][others]) for name, after in _tensors(state).items())


def test_together_as_alone():
    together, alone = _state(3), _state(3)
    requests = [replace(r, slot=i) for i, r in enumerate(_requests(5))]
    together.assign(requests, 30)
    for r in requests:
        alone.assign([r], 30)
    first, second = _tensors(together), _tensors(alone)
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_tensors_are_dense_and_aligned_and_stay_where_they_are():
    """Graphs hold their addresses, and Triton compiles a second kernel for unaligned ones."""
    state = _state(3)
    tensors = state._memory._tensors
    at = {name: tensor.data_ptr() for name, tensor in tensors.items()}
    requests = [replace(r, slot=i) for i, r in enumerate(_requests(5))]
    state.assign(requests, 30)
    assert all(x.is_contiguous() for x in tensors.values())
    assert {(x.data_ptr() - state.tokens_SL.data_ptr()) % 16 for x in tensors.values()} == {0}
    assert at == {name: tensor.data_ptr() for name, tensor in tensors.items()}


def test_a_slot_is_written_once():
    memory = SlotMemory(3, 4, {"n_S": Field(torch.int32)}, DEVICE)
    with pytest.raises(AssertionError, match="a word is written once"):
        memory.write([1, 1], [[7], [8]], [(0,), (1,)])
