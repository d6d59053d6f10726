"""Text out of an engine: why it ended, and what is left of requests that cannot all be served."""

from __future__ import annotations

from dataclasses import replace

import pytest
from toy.engines import asked, assert_idle, deployed, make_engine, request
from toy.plans import CPU, late
from toy.prompts import text_prompt

from specbench.harness.engines.native.deployment import NativeDeployment
from specbench.harness.run.block_sink import NullSink


class Letters:
    """Token n is a letter of its own."""

    def decode(self, ids: list[int]) -> str:
        return "".join(chr(0x4E00 + token) for token in ids)


class Rows(NullSink):
    def __init__(self) -> None:
        self.rows: list = []
        self.steps: list = []

    def request(self, row) -> None:
        self.rows.append(row)

    def add_steps(self, rows) -> None:
        self.steps += rows


@pytest.mark.parametrize("plan", [CPU, late("cpu", "none", 2)], ids=lambda plan: plan.name)
def test_a_prompt_that_does_not_fit_leaves_an_engine_that_can_be_asked_again(plan):
    engine, sink = make_engine(plan, max_model_len=32), Rows()
    fits, too_long = asked([request(0, text_prompt(0, 5), max_tokens=4), request(1, text_prompt(1, 32), max_tokens=4)])
    deployment = deployed(engine)
    with pytest.raises(ValueError, match="prompt: request 1 has 32 tokens"):
        deployment.generate([fits, too_long], sink)
    assert_idle(engine)
    assert deployment.generate([fits], sink) == {0: None}
    assert [(row.request_id, row.num_output_tokens) for row in sink.rows] == [(0, 4)]


@pytest.mark.parametrize("plan", [CPU, late("cpu", "none", 3)], ids=lambda plan: plan.name)
@pytest.mark.parametrize("max_tokens", [6, 7, 12])
def test_a_string_that_the_last_token_completes_is_the_reason(max_tokens, plan):
    """As in measured blocks, and in vLLM: the request would have ended there anyway."""
    prompt, letters = text_prompt(0, 5), Letters()
    (plain,) = asked([request(0, prompt, max_tokens=12)])
    whole = NativeDeployment(make_engine(CPU), letters).generate([plain], NullSink())[0]  # type: ignore[arg-type]
    assert whole is not None and whole.index(whole[4:6]) == 4
    (same,) = asked([request(0, prompt, max_tokens=max_tokens)])
    sink, stopping = Rows(), replace(same, stop=(whole[4:6],))
    said = NativeDeployment(make_engine(plan), letters).generate([stopping], sink)  # type: ignore[arg-type]
    assert said == {0: whole[:4]}
    assert [(row.num_output_tokens, row.finish_reason) for row in sink.rows] == [(6, "stop")]
    assert sum(step.num_emitted for step in sink.steps) == 6 and sink.rows[0].t_last_ns == sink.steps[-1].t_host_ns
