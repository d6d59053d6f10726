"""The engine's loop under a load: warm-up, and one block from its first request to its last."""

from __future__ import annotations

import time

from specbench.harness.engines.base import RowSink
from specbench.harness.engines.load import Load, PromptRequest
from specbench.harness.engines.native.core.engine import Engine
from specbench.harness.engines.native.core.request import Request
from specbench.harness.engines.warmup import WarmUp
from specbench.harness.store.rows import PhaseRow, RequestRow


def native_request(asked: PromptRequest) -> Request:
    return Request(asked.id, asked.prompt_ids, asked.sampling)


def request_row(request: Request, prompt_id: str) -> RequestRow:
    assert request.finish_reason is not None
    return RequestRow(
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


def run_block(engine: Engine, load: Load, sink: RowSink) -> None:
    """Sends every prompt once and waits for all, unless the sink wants no more. The engine must be idle.

    Steps and phases are handed over behind the last step, since nothing may stand between two of them; those of a
    block that is cut short, too.
    """
    assert not engine.has_work, "the engine is still busy with an earlier block"
    clear(engine)
    try:
        _send_all(engine, load, sink)
    finally:
        sink.add_steps(engine.log.take())
        source = engine.clock.source
        sink.add_phases([PhaseRow(step, name, ns, False, source) for step, name, ns in engine.phase_log])


def _send_all(engine: Engine, load: Load, sink: RowSink) -> None:
    pending = list(range(len(load) - 1, -1, -1))
    in_flight = 0
    start = time.perf_counter()
    while (pending or in_flight) and not sink.cancelled:
        while (
            pending and in_flight < load.max_concurrency and time.perf_counter() - start >= load.arrival_s[pending[-1]]
        ):
            engine.add(native_request(load.request(pending.pop())))
            in_flight += 1
        if not engine.has_work:
            time.sleep(max(0.0, min(0.01, load.arrival_s[pending[-1]] - (time.perf_counter() - start))))
            continue
        for request in engine.step():
            in_flight -= 1
            sink.request(request_row(request, load.prompts[request.id].id))
    empty(engine)


def clear(engine: Engine) -> None:
    """Forgets the rows of what ran before."""
    engine.log.take()
    engine.phase_log.clear()


def empty(engine: Engine) -> None:
    """Ends whatever is left, and reads what is still in flight: rounds launched before the host knew that their
    requests had finished."""
    for request in [*engine.scheduler.running, *engine.scheduler.waiting]:
        engine.abort(request.id)
    settle(engine)


def settle(engine: Engine) -> None:
    """Reads what is still in flight."""
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
    clear(engine)


class _WarmUpSender:
    """Requests of a workload under numbers of their own, so that a prompt can be sent again."""

    def __init__(self, engine: Engine, load: Load):
        self.engine, self.load = engine, load
        self.num_sent = 0
        self.live: set[int] = set()

    def send(self, index: int) -> None:
        request = native_request(self.load.request(index % len(self.load)))
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
    by_length = sorted(range(len(load)), key=lambda index: len(load.prompts[index].token_ids))
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
