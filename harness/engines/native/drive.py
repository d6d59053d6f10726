"""The engine's loop under a load: warm-up, and one block from its first request to its last."""

from __future__ import annotations

import time
from collections.abc import Sequence

from specbench.harness.engines.base import RowSink
from specbench.harness.engines.load import Load, PromptRequest
from specbench.harness.engines.native.core.engine import Engine
from specbench.harness.engines.native.core.logprobs import TokenLogprobs
from specbench.harness.engines.native.core.request import Request
from specbench.harness.engines.no_gc import no_collection
from specbench.harness.engines.warmup import WarmUp
from specbench.harness.store.rows import LogprobRow, PhaseRow, RequestRow

from .stop_strings import Decode, StopStrings


def native_request(prompt: PromptRequest) -> Request:
    return Request(prompt.id, prompt.prompt_ids, prompt.sampling)


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


def logprob_rows(request: Request, num_kept: int) -> list[LogprobRow]:
    """Rows for the requested parts; for the output, its first `num_kept` tokens."""
    parts: dict[str, Sequence[TokenLogprobs | None]] = {
        "prompt": request.prompt_logprobs,
        "output": request.logprobs[:num_kept],
    }
    rows = []
    for part, entries in parts.items():
        known = [one for one in entries if one is not None]
        if known:
            ids = [token for one in known for token, _ in one.top]
            values = [value for one in known for _, value in one.top]
            rows.append(LogprobRow(request.id, part, [one.logprob for one in known], ids, values))
    return rows


def run_block(engine: Engine, load: Load, sink: RowSink, decode: Decode | None = None) -> None:
    """Sends every prompt once and waits for all, unless the sink cancels. The engine must be idle.

    Steps, phases and log-probabilities are handed over after the last step, since nothing may come between two steps;
    this includes those of an interrupted block.
    """
    assert not engine.has_work, "the engine is still busy with an earlier block"
    clear(engine)
    engine.views.align_clocks()
    ended: list[tuple[Request, int]] = []
    strings = StopStrings(load.stop, decode)
    try:
        with no_collection():
            _send_all(engine, load, sink, strings, ended)
    finally:
        if logprobs := [row for request, num_kept in ended for row in logprob_rows(request, num_kept)]:
            sink.add_logprobs(logprobs)
        sink.add_steps(strings.kept_steps(engine.log.take()))
        source = engine.clock.source
        sink.add_phases([PhaseRow(step, name, ns, False, source) for step, name, ns in engine.phase_log])


def _send_all(
    engine: Engine, load: Load, sink: RowSink, strings: StopStrings, ended: list[tuple[Request, int]]
) -> None:
    """`ended`: gets each request and the number of its tokens that were kept."""
    group, keeps_time = engine.target.group, any(load.arrival_s)
    start_ns = slot_free_ns = time.perf_counter_ns()
    due_ns = [start_ns + round(at_s * 1e9) for at_s in load.arrival_s]
    pending = list(range(len(load) - 1, -1, -1))
    in_flight = 0

    def is_due(at_ns: int) -> bool:
        return not keeps_time or group.agree(time.perf_counter_ns() >= at_ns)

    while (pending or in_flight) and not sink.cancelled:
        while pending and in_flight < load.max_concurrency and is_due(due_ns[pending[-1]]):
            index = pending.pop()
            request = native_request(load.request(index))
            engine.add(request)
            if keeps_time:  # when a client of a server would have sent it: the wait for a running step is the engine's
                request.t_submit_ns = max(due_ns[index], slot_free_ns)
            strings.add(request)
            in_flight += 1
        if not engine.has_work:
            time.sleep(max(0.0, min(0.01, (due_ns[pending[-1]] - time.perf_counter_ns()) / 1e9)))
            continue
        finished = engine.step()
        if finished and in_flight == load.max_concurrency:
            slot_free_ns = time.perf_counter_ns()
        strings.look(engine)
        for request in finished:
            in_flight -= 1
            row = strings.kept(request, request_row(request, load.prompts[request.id].id), engine.log.rows)
            ended.append((request, row.num_output_tokens))
            sink.request(row)
    empty(engine)


def clear(engine: Engine) -> None:
    """Drops the rows of earlier work."""
    engine.log.take()
    engine.phase_log.clear()


def empty(engine: Engine) -> None:
    """Ends all remaining requests, and reads what is still in flight: rounds launched before the host knew that their
    requests had finished."""
    for request in [*engine.scheduler.running, *engine.scheduler.waiting]:
        engine.abort(request.id)
    settle(engine)


def settle(engine: Engine) -> None:
    """Reads the steps still in flight."""
    while engine.has_work:
        engine.step()


def warm_up(engine: Engine, load: Load, warmup: WarmUp) -> None:
    """Sends the workload's prompts, repeatedly if needed, until decode rounds are stable or time is up. First every
    shape is launched once, so that its kernels are compiled before anything is measured."""
    sender = _WarmUpSender(engine, load)
    _meet_shapes(sender, warmup.max_s)
    engine.views.align_clocks()
    started = time.perf_counter()

    def on_step(kind: str, duration_ns: int) -> None:
        if kind == "decode" and duration_ns > 0:
            warmup.add(duration_ns / 1e9)

    engine.log.on_step = on_step
    group = engine.target.group
    while not group.agree(warmup.is_done or time.perf_counter() - started >= warmup.max_s):
        while len(sender.live) < load.max_concurrency:
            sender.send(sender.num_sent)
        sender.step()
    sender.stop()
    engine.log.on_step = None
    clear(engine)


class _WarmUpSender:
    """Requests of a workload with new ids, so that a prompt can be sent again."""

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
    """The shortest and the longest prompt alone, then prompt chunks together with 1, 2, ... decodes.

    On a CPU nothing is compiled and steps are expensive, so `max_s` bounds it there. Elsewhere a limit would leave
    remaining compilations to the measured blocks.
    """
    load, started = sender.load, time.perf_counter()
    by_length = sorted(range(len(load)), key=lambda index: len(load.prompts[index].token_ids))
    group, bounded = sender.engine.target.group, sender.engine.target.device.type == "cpu"
    for index in [] if bounded else [by_length[0], by_length[-1]]:
        sender.send(index)
        sender.step()
        sender.step()
        sender.stop()
    for index in range(load.max_concurrency):
        if bounded and group.agree(time.perf_counter() - started >= max_s):
            break
        sender.send(index)
        sender.step()
        sender.step()
