"""Items of the conformance list that cannot occur here, each with what rules it out."""

from __future__ import annotations

import pytest
from toy.engines import generate, make_engine, named_strategy, outputs, request
from toy.plans import CPU
from toy.prompts import text_prompt

from specbench.harness.engines.native.core.engine import Engine
from specbench.harness.engines.native.core.layouts import decode_batch
from specbench.harness.engines.native.core.pages import PageAllocator


def _look(engine: Engine) -> None:
    held = [page for r in engine.scheduler.running for page in r.pages]
    assert len(held) == len(set(held)), "a page of two requests"
    assert 0 not in held, "the dummy page"


def test_c45_prompts_that_are_alike_share_no_page():
    """Prefix sharing: all that a request has computed, it computed itself, in pages of its own."""
    engine = make_engine(CPU, named_strategy("ngram", k=2, min_n=1), page_size=2, num_pages=90)
    requests = [request(i, text_prompt(0, 23), max_tokens=9 + i) for i in range(6)]
    finished = generate(engine, requests, after_step=_look)
    longest = outputs(finished)[5]
    assert all(tokens == longest[: len(tokens)] for tokens in outputs(finished).values())


def test_c45_that_check_itself(monkeypatch):
    """A planted fault: the allocator gives pages that others hold."""
    monkeypatch.setattr(PageAllocator, "allocate", lambda self, count: list(range(1, count + 1)))
    engine = make_engine(CPU)
    for number in range(2):
        engine.add(request(number, text_prompt(0, 5), max_tokens=9))
    with pytest.raises(AssertionError, match="a page of two requests"):
        engine.step()
        _look(engine)


@pytest.mark.parametrize("k", [1, 2, 8])
def test_c59_a_request_is_one_query_of_a_round(k):
    """No pseudo-requests: as many queries as slots, each with all K+1 rows. That both would say the same is in
    kernels/test_pseudo_requests.py."""
    engine = make_engine(CPU, named_strategy("ngram", k=k))
    batch = decode_batch(engine.state, 3)
    (part,) = batch.target_forward().parts
    assert part.meta.cu_q_B1.tolist() == [0, k + 1, 2 * (k + 1), 3 * (k + 1)]
    assert batch.rows.slot_B.shape[0] == part.meta.kv_len_B.shape[0] == 3
