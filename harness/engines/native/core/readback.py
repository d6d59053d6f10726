"""Steps in flight, and the updates when the host reads one: tokens, times, the step log."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from specbench.harness.engines.native.core.host_view import SAMPLED_IDS, HostView
from specbench.harness.engines.native.core.request import FinishReason, Request
from specbench.harness.engines.native.core.step_log import StepLog
from specbench.harness.store.rows import StepRow
from specbench.kernels.commit import COMMITTED, DONE, NEW_N, NUM_STATUS_COLUMNS

_DONE_REASONS = {1: FinishReason.STOP, 2: FinishReason.LENGTH}


@dataclass(slots=True)
class InFlight:
    """A launched step whose status the host has not read."""

    step: int
    kind: str
    requests: list[Request]  # in the order of the status rows
    num_decodes: int  # of these; they come first, the others bring prompts
    host: HostView
    t_start_ns: int
    num_rows: int
    num_padded_rows: int
    num_draft_rows: int
    graph: str
    num_drafts: int  # that each decode could have: verified here, and left by the step before


class Readback:
    """Reads launched steps in order, up to a given number of steps late."""

    def __init__(
        self,
        log: StepLog,
        finish: Callable[[Request, FinishReason], None],
        accepted: Callable[[int, list[list[int]]], None],
    ):
        """`accepted` is called after each decode round with the number of drafts that its requests could have, and
        their status rows."""
        self._log = log
        self._finish = finish
        self._accepted = accepted
        self._steps: deque[InFlight] = deque()
        self._last_device_ns = 0

    def __len__(self) -> int:
        return len(self._steps)

    def add(self, step: InFlight) -> None:
        self._steps.append(step)
        for request in step.requests:
            request.num_inflight += 1

    def collect(self, lag: int, at_most: int | None = None) -> None:
        """Reads steps until at most `lag` are unread."""
        while len(self._steps) > lag and at_most != 0:
            step = self._steps.popleft()
            assert step.host.pending is not None
            # Waiting for the newest step blocks the host on work just queued; an older one is (nearly) done by now.
            if not self._steps and not step.host.pending.is_read:
                step.host.syncs.append(SAMPLED_IDS)
            self._read(step)
            at_most = None if at_most is None else at_most - 1

    def _read(self, step: InFlight) -> None:
        assert step.host.pending is not None
        rows, device_ns = step.host.pending.wait()
        host_ns = time.perf_counter_ns()
        if self._log.on_step:
            self._log.on_step(step.kind, device_ns - max(self._last_device_ns, step.t_start_ns))
        self._last_device_ns = device_ns
        logprobs: list | None = step.host.logprobs.wait()[0] if step.host.logprobs is not None else None
        # With small models the host takes as long to make a step's rows as the device takes for the step, so what they
        # share is looked up once.
        number, kind, size, syncs = step.step, step.kind, len(step.requests), step.host.syncs
        shared = step.t_start_ns, host_ns, device_ns, size, step.num_rows, step.num_padded_rows, step.num_draft_rows
        last = step.graph, len(syncs), ",".join(syncs)
        for index, (request, row) in enumerate(zip(step.requests, rows, strict=False)):  # padding rows follow
            if logprobs is not None and request.finish_reason is None:
                request.keep_logprobs(logprobs[index][: row[COMMITTED]])
            request.num_inflight -= 1
            if request.finish_reason is None:  # else a frozen row of a request that an earlier status ended
                is_prefill = index >= step.num_decodes
                accepted, committed, _, _, offered, depth = row[:NUM_STATUS_COLUMNS]
                truncated = committed < accepted + 1 and not is_prefill
                logged = StepRow(
                    number, request.id, kind, is_prefill, *shared, offered, depth, accepted, committed, truncated, *last
                )
                self._log.rows.append(logged)
                self._apply(request, is_prefill, row, host_ns, device_ns)
        if kind == "decode":
            self._accepted(step.num_drafts, rows[:size])

    def _apply(self, request: Request, is_prefill: bool, row: list[int], host_ns: int, device_ns: int) -> None:
        committed = row[COMMITTED]
        if committed or not is_prefill:
            request.num_computed = row[NEW_N]
        if committed:
            request.output_ids += row[NUM_STATUS_COLUMNS : NUM_STATUS_COLUMNS + committed]
            request.t_first_ns = request.t_first_ns or host_ns
            request.t_first_device_ns = request.t_first_device_ns or device_ns
            request.t_last_ns, request.t_last_device_ns = host_ns, device_ns
        if row[DONE]:
            self._finish(request, _DONE_REASONS[row[DONE]])
