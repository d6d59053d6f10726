"""One block: a workload sent through an engine, and the raw rows it left."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specbench.harness.engine.engine import Engine
from specbench.harness.engine.request import Request, SamplingParams
from specbench.harness.run.warmup import WarmUp
from specbench.workloads.base import Prompt

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

    Before that every shape is met, so that its kernels are compiled before anything is measured.
    """
    sender = _WarmUpSender(engine, load)
    _meet_shapes(sender, warmup.max_s)
    started = time.perf_counter()

    def on_step(kind: str, duration_ns: int) -> None:
        if kind == "decode" and duration_ns > 0:
            warmup.add(duration_ns / 1e9)

    engine.log.on_step = on_step
    while not warmup.is_done and time.perf_counter() - started < warmup.max_s:
        while len(sender.live) < load.max_concurrency:
            sender.send(sender.num_sent)
        sender.step()
    sender.stop()
    engine.log.on_step = None
    engine.log.take()
    engine.phase_log.clear()


class _WarmUpSender:
    """Requests of a workload under numbers of their own, so that a prompt can be sent again."""

    def __init__(self, engine: Engine, load: Load):
        self.engine, self.load = engine, load
        self.num_sent = 0
        self.live: set[int] = set()

    def send(self, index: int) -> None:
        request = self.load.request(index % len(self.load.prompts))
        request.id = self.num_sent
        self.engine.add(request)
        self.live.add(self.num_sent)
        self.num_sent += 1

    def step(self) -> None:
        self.live -= {r.id for r in self.engine.step()}

    def stop(self) -> None:
        for request_id in self.live:
            self.engine.abort(request_id)
        settle(self.engine)
        self.live.clear()


def _meet_shapes(sender: _WarmUpSender, max_s: float) -> None:
    """The shortest and the longest prompt alone, then prompt chunks beside 1, 2, ... decodes.

    On a CPU nothing is compiled and a step is dear, so `max_s` bounds it there; elsewhere a limit would leave to the
    measured blocks whatever the compiler was too slow for.
    """
    load, started = sender.load, time.perf_counter()
    by_length = sorted(range(len(load.prompts)), key=lambda index: len(load.prompts[index].token_ids))
    bounded = sender.engine.target.device.type == "cpu"
    for index in [] if bounded else [by_length[0], by_length[-1]]:
        sender.send(index)
        sender.step()
        sender.step()
        sender.stop()
    for index in range(load.max_concurrency):
        if bounded and time.perf_counter() - started >= max_s:
            break
        sender.send(index)
        sender.step()
        sender.step()
