"""The engine: owns the loop, the KV pages, the round state and the graphs.

    engine = Engine(config, target, strategy, backend)
    engine.add(request)
    while engine.has_work: finished = engine.step()

`step` launches a decode round or a mixed step and reads the status of earlier ones, up to `status_lag` rounds late.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch

from specbench.harness.engines.native.core.batch import StepBatch
from specbench.harness.engines.native.core.clock import NullClock, PhaseClock, host_clock
from specbench.harness.engines.native.core.config import EngineConfig
from specbench.harness.engines.native.core.edit_buffers import edits_of
from specbench.harness.engines.native.core.host_view import HostView, HostViews
from specbench.harness.engines.native.core.launcher import Launcher
from specbench.harness.engines.native.core.layouts import MixedEntry
from specbench.harness.engines.native.core.logprobs import logprobs_of_prompt
from specbench.harness.engines.native.core.pages import PageAllocator
from specbench.harness.engines.native.core.parts import make_builder
from specbench.harness.engines.native.core.readback import InFlight, Readback
from specbench.harness.engines.native.core.request import FinishReason, Request
from specbench.harness.engines.native.core.sampler import SamplingMode
from specbench.harness.engines.native.core.scheduler import Scheduler
from specbench.harness.engines.native.core.state import RoundState
from specbench.harness.engines.native.core.status import StatusReader
from specbench.harness.engines.native.core.step_log import StepLog
from specbench.harness.engines.native.core.strategy import AcceptanceOverride, Strategy
from specbench.harness.engines.native.core.target_cache import CacheMemory, OwnMemory
from specbench.harness.engines.native.core.upload import send_rows_into
from specbench.harness.engines.native.models.llama import LlamaModel
from specbench.harness.engines.ranges import LATE_STATUS, PREPARE, STATUS, NullRanges, Ranges
from specbench.kernels.attention.base import AttentionBackend
from specbench.kernels.state_update import StateUpdate


class Engine:
    def __init__(
        self,
        config: EngineConfig,
        target: LlamaModel,
        strategy: Strategy,
        attention_backend: AttentionBackend,
        acceptance: AcceptanceOverride | None = None,
        ranges: Ranges | None = None,
        *,
        drafter_backend: AttentionBackend | None = None,
        update: StateUpdate | None = None,
        cache_memory: CacheMemory | None = None,
    ):
        """`drafter_backend`: attention of the drafter if it differs from the target's; `update`: how state advances
        between passes (kernels/state_update.py), fused kernels by default; `cache_memory`: where KV caches are
        allocated, by default in the engine's own memory."""
        self.config = config
        self.target = target
        self.strategy = strategy
        self.ranges: Ranges = ranges or NullRanges()
        self.clock: PhaseClock = host_clock() if target.device.type == "cpu" else NullClock()
        self.state = RoundState(
            max_num_seqs=config.max_num_seqs,
            max_model_len=config.max_model_len,
            num_drafts=strategy.num_drafts,
            page_size=config.page_size,
            device=target.device,
            lookahead=strategy.lookahead,
            tree=strategy.tree,
        )
        self._num_pages = config.num_pages or config.pages_for_all(self.state.lookahead.overhang)
        self.allocator = PageAllocator(self._num_pages, config.page_size)
        self.scheduler = Scheduler(config, self.allocator, strategy.num_drafts, self.state.lookahead)
        self._acceptance = acceptance
        self._forced_SL = torch.zeros_like(self.state.tokens_SL, dtype=torch.int32) if acceptance else None
        self.builder = make_builder(
            config,
            target,
            self.state,
            strategy,
            backend=attention_backend,
            drafter_backend=drafter_backend or attention_backend,
            update=update or StateUpdate(),
            num_pages=self._num_pages,
            memory=cache_memory or OwnMemory(),
            forced_SL=self._forced_SL,
        )
        self.drafter = self.builder.drafter
        self.draft_counts = strategy.draft_counts()
        self.views = HostViews(self.state, StatusReader(target.device))
        self.launcher = Launcher(config, self.builder, lambda b: self.views.of(b, []), self.draft_counts.choices)
        self._num_left = 0  # most drafts that the newest step leaves for a request
        self.log = StepLog()
        self.phase_log: list[tuple[int, str, int]] = []  # step, phase, ns; empty without a clock
        self.readback = Readback(self.log, self._finish, self.draft_counts.accepted)
        self._aborts: list[int] = []
        self._next_step = 0
        self._finished: list[Request] = []

    # -- requests ----------------------------------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        return bool(self.scheduler.waiting or self.scheduler.running or self.readback)

    @property
    def num_steps(self) -> int:
        """Steps launched so far; the next one has this number."""
        return self._next_step

    def add(self, request: Request) -> None:
        """Queues a request. ValueError if it can never fit."""
        request.check_prompt(self.config.max_model_len, self.target.config.vocab_size)
        if request.sampling.logprobs is not None and self._acceptance is not None:
            raise ValueError("logprobs: are not allowed with forced acceptance, whose tokens are not the target's")
        self.scheduler.add(request)
        request.t_submit_ns = time.perf_counter_ns()

    def abort(self, request_id: int) -> None:
        """Ends a request at the next step; it keeps the tokens that the host has seen by then."""
        # An id that is unknown, or has left, must not be kept here for a later request with the same id.
        if any(r.id == request_id for r in [*self.scheduler.running, *self.scheduler.waiting]):
            self._aborts.append(request_id)

    # -- the loop ----------------------------------------------------------------------------------------------------

    def step(self) -> list[Request]:
        """One unit of progress; returns the requests that finished."""
        if self._aborts:
            self._apply_aborts()
        if self.scheduler.wants_mixed_step():
            self._collect(self._lag())
            self._launch_mixed_step()
            self._collect(self._lag())
        elif self.scheduler.can_progress():
            self._launch_decode_round()
            self._collect(self._lag())
        else:
            self._collect(0, at_most=1)
        finished, self._finished = self._finished, []
        return finished

    def _collect(self, lag: int, at_most: int | None = None) -> None:
        # The device has more work queued after an older step: such a wait delays the host but causes no gap.
        with self.ranges.range(LATE_STATUS if lag else STATUS):
            self.readback.collect(lag, at_most)

    def _lag(self) -> int:
        return min(self.config.status_lag, 1) if self.scheduler.waiting else self.config.status_lag

    def _apply_aborts(self) -> None:
        self._collect(0)
        doomed, self._aborts = set(self._aborts), []
        for request in [r for r in [*self.scheduler.running, *self.scheduler.waiting] if r.id in doomed]:
            if request.slot is not None:
                self.state.release(request.slot)
            self._finish(request, FinishReason.ABORT)

    def _launch_decode_round(self) -> None:
        running = self.scheduler.running
        while not self.scheduler.reserve(running):
            if self.readback:
                self._collect(0)  # a finished request may free what is missing
                if not running:
                    return
                continue
            self._preempt_last()
        with self.ranges.range(f"step {self._next_step}"):
            with self.ranges.range(PREPARE):
                self.write_grants()
                start = time.perf_counter_ns()
                mode = SamplingMode.of([r.sampling for r in running])
                decode_round = self.launcher.round_for(len(running), mode, self.draft_counts.choose(len(running)))
                decode_round.assign(tuple(r.slot for r in running if r.slot is not None), self.state)
            batch = decode_round.batch
            host = self.views.of(batch, running)
            decode_round.launch(self.ranges, self.clock, host)
        self.phase_log += [(self._next_step, name, ns) for name, ns in self.clock.read()]
        self._queue("decode", list(running), len(running), batch, host, start, decode_round.graph)

    def _preempt_last(self) -> None:
        slot = self.scheduler.running[-1].slot
        assert slot is not None
        self.state.release(slot)
        self.scheduler.preempt_last()

    def _launch_mixed_step(self) -> None:
        while not self.scheduler.reserve([r for r in self.scheduler.running if not r.is_prefilling]):
            if self.readback:
                self._collect(0)  # a finished request may free what is missing
            else:
                self._preempt_last()
        num_drafts = self.draft_counts.choose(self.scheduler.num_soon)
        rows = self.scheduler.plan_mixed_step(num_drafts)
        self._assign_admitted()
        self.write_grants()
        start = time.perf_counter_ns()
        requests = [row.request for row in rows]
        entries = [MixedEntry.of(row, self.state.lookahead.emitted) for row in rows]
        mode = SamplingMode.of([r.sampling for r in requests])
        with self.ranges.range(f"step {self._next_step}"), self.ranges.range("prefill"):
            batch, host, graph = self.launcher.launch_mixed(
                entries, mode, self.ranges, lambda b: self.views.of(b, requests), num_drafts
            )
        num_decodes = sum(not row.is_prefill for row in rows)
        self._queue("mixed", requests, num_decodes, batch, host, start, graph)
        for row in rows:
            if row.is_prefill:
                row.request.num_computed += row.num_rows

    def _assign_admitted(self) -> None:
        admitted, self.scheduler.admitted = self.scheduler.admitted, []
        for request in admitted:
            self.state.edits.make_room(edits_of([request.sampling]), self.target.config.vocab_size)
            if (num := request.sampling.prompt_logprobs) is not None and not request.prompt_logprobs:
                request.prompt_logprobs = logprobs_of_prompt(self.target, request.prompt_ids, num)
        self._force_acceptance(admitted)
        self.state.assign(admitted, self.config.max_model_len)

    def _force_acceptance(self, admitted: Sequence[Request]) -> None:
        if not admitted or self._acceptance is None or self._forced_SL is None:
            return
        table_BL = self._acceptance.table([r.sampling.seed for r in admitted], self._forced_SL.shape[1])
        send_rows_into(self._forced_SL, torch.tensor([r.slot for r in admitted]), table_BL)

    def write_grants(self) -> None:
        for grant in self.scheduler.grants:
            assert grant.request.slot is not None
            self.state.add_pages(grant.request.slot, grant.first, grant.pages)
        self.scheduler.grants.clear()
        self.state.flush_block_table()

    def _queue(
        self,
        kind: str,
        requests: list[Request],
        num_decodes: int,
        batch: StepBatch,
        host: HostView,
        start_ns: int,
        graph: str,
    ) -> None:
        step, self._next_step = self._next_step, self._next_step + 1
        num_draft_rows, num_drafts = batch.work.num_draft_rows, min(batch.num_drafts, self._num_left)
        self._num_left = self.drafter.num_left(batch.num_drafts) if self.drafter else 0
        num_rows = sum(batch.q_lens[: len(requests)])  # padding follows
        launched = step, kind, requests, num_decodes, host, start_ns
        self.readback.add(InFlight(*launched, num_rows, batch.num_rows, num_draft_rows, graph, num_drafts))

    def _finish(self, request: Request, reason: FinishReason) -> None:
        request.finish_reason = reason
        self.scheduler.remove(request)
        self._finished.append(request)
