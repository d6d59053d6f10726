"""One block: a workload sent through an engine, and the raw rows it left."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specbench.harness.engine.engine import Engine
from specbench.harness.engine.request import Request, SamplingParams
from specbench.workloads.base import Prompt

from .warmup import WarmUp

_SEED_STRIDE = 1_000_003  # keeps the seeds of neighbouring runs apart


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """How requests are sent: `arrival_s` after the start at the earliest, at most `max_concurrency` at a time."""

    prompts: Sequence[Prompt]
    arrival_s: Sequence[float]
    max_concurrency: int
    temperature: float
    top_k: int
    top_p: float
    stop_token_ids: tuple[int, ...]
    seed: int

    def request(self, index: int) -> Request:
        prompt = self.prompts[index]
        sampling = SamplingParams(
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            max_tokens=prompt.max_tokens,
            stop_token_ids=self.stop_token_ids,
            # By prompt, not by arm or repeat: every arm draws the same noise.
            seed=(self.seed * _SEED_STRIDE + index) & 0x7FFF_FFFF_FFFF_FFFF,
        )
        return Request(index, prompt.token_ids, sampling)


@dataclass(slots=True)
class BlockRows:
    """Raw rows of one block, for RunDirectory.append."""

    requests: list[dict]
    steps: list[dict]
    phases: list[dict]


def request_row(request: Request, prompt_id: str) -> dict:
    assert request.finish_reason is not None
    return dict(
        request_id=request.id,
        prompt_id=prompt_id,
        num_prompt_tokens=len(request.prompt_ids),
        num_output_tokens=len(request.output_ids),
        finish_reason=request.finish_reason.value,
        t_submit_ns=request.t_submit_ns,
        t_first_ns=request.t_first_ns,
        t_last_ns=request.t_last_ns,
        t_first_device_ns=request.t_first_device_ns,
        t_last_device_ns=request.t_last_device_ns,
        output_token_ids=request.output_ids,
        num_preemptions=request.num_preemptions,
    )


def run_block(engine: Engine, load: Load, on_finish: Callable[[Request], None] | None = None) -> BlockRows:
    """Sends every prompt once and waits for all. The engine must be idle."""
    assert not engine.has_work, "the engine is still busy with an earlier block"
    engine.log.take()
    engine.phase_log.clear()
    finished: list[Request] = []
    pending = list(range(len(load.prompts) - 1, -1, -1))
    in_flight = 0
    start = time.perf_counter()
    while pending or in_flight:
        while (
            pending and in_flight < load.max_concurrency and time.perf_counter() - start >= load.arrival_s[pending[-1]]
        ):
            engine.add(load.request(pending.pop()))
            in_flight += 1
        if not engine.has_work:
            time.sleep(max(0.0, min(0.01, load.arrival_s[pending[-1]] - (time.perf_counter() - start))))
            continue
        for request in engine.step():
            in_flight -= 1
            finished.append(request)
            if on_finish:
                on_finish(request)
    settle(engine)
    rows = [request_row(r, load.prompts[r.id].id) for r in sorted(finished, key=lambda r: r.id)]
    phases = [
        dict(step=step, phase=name, duration_ns=ns, instrumented=False, source=engine.clock.source)
        for step, name, ns in engine.phase_log
    ]
    return BlockRows(rows, engine.log.take(), phases)


def settle(engine: Engine) -> None:
    """Reads what is still in flight: rounds launched before the host knew that their requests had finished."""
    while engine.has_work:
        engine.step()


def warm_up(engine: Engine, load: Load, warmup: WarmUp) -> None:
    """Sends the workload's prompts, over and over if need be, until decode rounds are stable or time is over.

    The first requests come one by one, so that prompt chunks beside 1, 2, ... decodes have all been seen (and their
    kernels compiled) before anything is measured.
    """
    started = time.perf_counter()
    num_sent = 0
    live: set[int] = set()

    def send_one() -> None:
        nonlocal num_sent
        request = load.request(num_sent % len(load.prompts))
        request.id = num_sent
        engine.add(request)
        live.add(num_sent)
        num_sent += 1

    def on_step(kind: str, duration_ns: int) -> None:
        if kind == "decode" and duration_ns > 0:
            warmup.add(duration_ns / 1e9)

    while num_sent < load.max_concurrency and time.perf_counter() - started < warmup.max_s:
        send_one()
        live -= {r.id for _ in range(2) for r in engine.step()}
    engine.log.on_step = on_step
    while not warmup.is_done and time.perf_counter() - started < warmup.max_s:
        while len(live) < load.max_concurrency:
            send_one()
        live -= {r.id for r in engine.step()}
    for request_id in live:
        engine.abort(request_id)
    settle(engine)
    engine.log.on_step = None
    engine.log.take()
    engine.phase_log.clear()
