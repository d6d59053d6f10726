"""The engine: owns the loop, the KV pages, the round state and the graphs.

    engine = Engine(config, target, strategy)
    engine.add(request)
    while engine.has_work: finished = engine.step()

`step` launches a decode round or a mixed step and reads the status of earlier ones, up to `status_lag` rounds late.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

import torch

from specbench.harness.measure.phase_clock import HostClock, NullClock, PhaseClock
from specbench.harness.measure.ranges import NullRanges, Ranges
from specbench.harness.models.heads import make_head
from specbench.harness.models.llama import Attention, KVCache, LlamaModel
from specbench.kernels.accept_chain import NUM_STATUS_COLUMNS
from specbench.kernels.attention.base import AttentionBackend

from .batch import MixedEntry, StepBatch, mixed_batch
from .config import EngineConfig
from .graphs import CapturedRound, EagerRound, RoundLauncher, split_round
from .pages import PageAllocator
from .request import FinishReason, Request
from .round import RoundBuilder
from .sampler import SamplingMode
from .scheduler import ScheduledRows, Scheduler
from .state import RoundState
from .status import DeviceTimeline, PendingStatus, StatusReader
from .step_log import StepLog, StepRow
from .strategy import AcceptanceOverride, DraftHead, EngineResources, Strategy

_DONE_REASONS = {1: FinishReason.STOP, 2: FinishReason.LENGTH}


@dataclass(slots=True)
class _InFlight:
    """A launched step whose status the host has not read."""

    requests: list[Request]  # in the order of the status rows
    pending: PendingStatus
    step: int
    kind: str
    t_start_ns: int
    num_rows: int
    num_padded_rows: int
    graph: str


class Engine:
    def __init__(
        self,
        config: EngineConfig,
        target: LlamaModel,
        strategy: Strategy,
        attention_backend: AttentionBackend,
        acceptance: AcceptanceOverride | None = None,
        ranges: Ranges | None = None,
    ):
        self.config = config
        self.target = target
        self.strategy = strategy
        device = target.device
        self._backend = attention_backend
        self.ranges: Ranges = ranges or NullRanges()
        self.clock: PhaseClock = HostClock() if device.type == "cpu" else NullClock()
        self.state = RoundState(
            max_num_seqs=config.max_num_seqs,
            max_model_len=config.max_model_len,
            num_drafts=strategy.num_drafts,
            page_size=config.page_size,
            device=device,
        )
        self._num_pages = config.num_pages or self._pages_for_all()
        self.allocator = PageAllocator(self._num_pages, config.page_size)
        self.scheduler = Scheduler(
            self.allocator,
            max_num_seqs=config.max_num_seqs,
            max_num_batched_tokens=config.max_num_batched_tokens,
            max_model_len=config.max_model_len,
            num_drafts=strategy.num_drafts,
        )
        self._acceptance = acceptance
        self._forced_SL = torch.zeros_like(self.state.tokens_SL, dtype=torch.int32) if acceptance else None
        caches = [self._new_kv_cache(target.config.num_kv_heads, target.config.head_dim) for _ in target.layers]
        resources = EngineResources(target, self.state, self._load_head, self._new_kv_cache, self._new_attention)
        self.drafter = strategy.make_drafter(resources)
        self.builder = RoundBuilder(
            target, self._new_attention(target), caches, self.state, self.drafter, self._forced_SL
        )
        self.launcher = RoundLauncher(config.graph, self.builder, self.state, config.max_num_seqs)
        self.log = StepLog()
        self.phase_log: list[tuple[int, str, int]] = []  # step, phase, ns; empty without a clock
        self.timeline = DeviceTimeline(device)
        self._status = StatusReader(device)
        self._inflight: deque[_InFlight] = deque()
        self._aborts: list[int] = []
        self._loaded: dict[int, tuple[int, ...]] = {}  # slots last written into each round's layout
        self._next_step = 0
        self._finished: list[Request] = []
        self._last_device_ns = 0

    # -- construction ------------------------------------------------------------------------------------------------

    def _pages_for_all(self) -> int:
        """Enough for every slot at full length, plus the dummy page: then nothing is ever preempted."""
        per_request = -(-(self.config.max_model_len + self.strategy.num_drafts) // self.config.page_size)
        return 1 + self.config.max_num_seqs * per_request

    def _new_kv_cache(self, num_kv_heads: int, head_dim: int) -> KVCache:
        shape = (self._num_pages, self.config.page_size, num_kv_heads, head_dim)
        # Zeros, not empty: masked keys are multiplied by zero probability, and 0 * NaN would leak.
        dtype, device = self.target.dtype, self.target.device
        return KVCache(torch.zeros(shape, dtype=dtype, device=device), torch.zeros(shape, dtype=dtype, device=device))

    def _load_head(self, head: str, strategy: str) -> DraftHead:
        return make_head(head, self.target, strategy)

    def _new_attention(self, model) -> Attention:
        return model.attention(self._backend, self.state.max_kv)

    # -- requests ----------------------------------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        return bool(self.scheduler.waiting or self.scheduler.running or self._inflight)

    def add(self, request: Request) -> None:
        """Queues a request. ValueError if it can never fit."""
        longest = self.config.max_model_len - 1
        if not 1 <= len(request.prompt_ids) <= longest:
            raise ValueError(
                f"prompt: request {request.id} has {len(request.prompt_ids)} tokens; allowed: 1 to {longest} "
                f"(max_model_len {self.config.max_model_len} less one output token)"
            )
        vocab = self.target.config.vocab_size
        if not all(0 <= token < vocab for token in request.prompt_ids):
            raise ValueError(f"prompt: request {request.id} has token ids outside 0..{vocab - 1}")
        self.scheduler.add(request)
        request.t_submit_ns = time.perf_counter_ns()

    def abort(self, request_id: int) -> None:
        """Ends a request at the next step; it keeps the tokens that the host has seen by then."""
        # An id that is unknown, or has left, must not wait here for a later request of the same name.
        if any(r.id == request_id for r in [*self.scheduler.running, *self.scheduler.waiting]):
            self._aborts.append(request_id)

    # -- the loop ----------------------------------------------------------------------------------------------------

    def step(self) -> list[Request]:
        """One unit of progress; returns the requests that finished."""
        if self._aborts:
            self._apply_aborts()
        if self.scheduler.wants_mixed_step():
            self._drain()
            self._launch_mixed_step()
        elif self._can_progress():
            self._launch_decode_round()
            self._collect(self._lag())
        else:
            self._collect(0, at_most=1)
        finished, self._finished = self._finished, []
        return finished

    def _lag(self) -> int:
        return min(self.config.status_lag, 1) if self.scheduler.waiting else self.config.status_lag

    def _can_progress(self) -> bool:
        """Whether some running request is not certain to be finished by the rounds already in flight."""
        most = self.config.max_model_len
        return any(r.num_tokens + r.num_inflight < r.limit(most) for r in self.scheduler.running)

    def _apply_aborts(self) -> None:
        self._drain()
        doomed, self._aborts = set(self._aborts), []
        for request in [r for r in [*self.scheduler.running, *self.scheduler.waiting] if r.id in doomed]:
            if request.slot is not None:
                self.state.release(request.slot)
            self._finish(request, FinishReason.ABORT)

    def _launch_decode_round(self) -> None:
        running = self.scheduler.running
        while not self.scheduler.reserve(running):
            if self._inflight:
                self._drain()  # a finished request may free what is missing
                if not running:
                    return
                continue
            self._preempt_last()
        self.write_grants()
        start = time.perf_counter_ns()
        decode_round = self.launcher.round_for(len(running), SamplingMode.of([r.sampling for r in running]))
        self._load_slots(decode_round, running)
        with self.ranges.range(f"step {self._next_step}"):
            decode_round.launch(self.ranges, self.clock)
        self.phase_log += [(self._next_step, name, ns) for name, ns in self.clock.read()]
        for request in running:
            request.num_inflight += 1
        q = self.strategy.num_drafts + 1
        batch = decode_round.batch
        self._queue(list(running), batch, "decode", start, len(running) * q, batch.num_rows, decode_round.graph)

    def _preempt_last(self) -> Request:
        slot = self.scheduler.running[-1].slot
        assert slot is not None
        self.state.release(slot)
        return self.scheduler.preempt_last()

    def _load_slots(self, decode_round: EagerRound | CapturedRound, running: list[Request]) -> None:
        slots = tuple(r.slot for r in running)
        if self._loaded.get(id(decode_round)) != slots:
            padding = [self.state.dummy_slot] * (decode_round.batch.num_requests - len(slots))
            decode_round.batch.slot_B.copy_(self.state.upload([*slots, *padding], torch.int64))
            self._loaded[id(decode_round)] = slots  # type: ignore[assignment]

    def _launch_mixed_step(self) -> None:
        decoding = [r for r in self.scheduler.running if not r.is_prefilling]
        while not self.scheduler.reserve(decoding):
            preempted = self._preempt_last()
            decoding = [r for r in decoding if r is not preempted]
        rows = self.scheduler.plan_mixed_step()
        for request in self.scheduler.admitted:
            self._assign(request)
        self.scheduler.admitted.clear()
        self.write_grants()
        if not rows:
            return
        start = time.perf_counter_ns()
        batch = mixed_batch(self.state, [self._entry(r) for r in rows])
        phases = self.builder.phases(batch, SamplingMode.of([r.request.sampling for r in rows]))
        with self.ranges.range(f"step {self._next_step}"), self.ranges.range("prefill"):
            for segment in split_round("none", phases):
                with self.ranges.range(segment.name):
                    segment.run(batch, NullClock())
        for row in rows:
            row.request.num_inflight += 1
            if row.is_prefill and row.request.num_computed + row.num_rows < row.request.num_prefill:
                row.request.num_computed += row.num_rows
        self._queue([row.request for row in rows], batch, "mixed", start, batch.num_rows, batch.num_rows, "none")
        self._drain()

    def _entry(self, row: ScheduledRows) -> MixedEntry:
        request = row.request
        assert request.slot is not None
        after = request.num_computed + row.num_rows
        return MixedEntry(request.slot, row.num_rows, row.is_prefill, after >= request.num_prefill, after)

    def _assign(self, request: Request) -> None:
        self.state.assign(request, request.limit(self.config.max_model_len))
        if self._acceptance is not None and self._forced_SL is not None:
            row_L = self._acceptance.table_row(request.sampling.seed, self._forced_SL.shape[1])
            self._forced_SL[request.slot].copy_(row_L)

    def write_grants(self) -> None:
        for grant in self.scheduler.grants:
            assert grant.request.slot is not None
            self.state.add_pages(grant.request.slot, grant.first, grant.pages)
        self.scheduler.grants.clear()
        self.state.flush_block_table()

    # -- reading back ------------------------------------------------------------------------------------------------

    def _queue(
        self,
        requests: list[Request],
        batch: StepBatch,
        kind: str,
        start_ns: int,
        num_rows: int,
        num_padded_rows: int,
        graph: str,
    ) -> None:
        pending = self.queue_status(batch)
        step, self._next_step = self._next_step, self._next_step + 1
        self._inflight.append(_InFlight(requests, pending, step, kind, start_ns, num_rows, num_padded_rows, graph))

    def queue_status(self, batch: StepBatch) -> PendingStatus:
        """Starts the copy of a launched step's status block to the host."""
        return self._status.queue(batch.status_BX)

    def _drain(self) -> None:
        self._collect(0)

    def _collect(self, lag: int, at_most: int | None = None) -> None:
        """Reads steps until at most `lag` are unread."""
        while len(self._inflight) > lag and at_most != 0:
            # Waiting for the newest step leaves the device without work until the host acts; an older one does not.
            num_syncs = 1 if len(self._inflight) == 1 else 0
            self._read(self._inflight.popleft(), num_syncs)
            at_most = None if at_most is None else at_most - 1

    def _read(self, step: _InFlight, num_syncs: int) -> None:
        rows, device_ns = step.pending.wait(self.timeline)
        host_ns = time.perf_counter_ns()
        if self.log.on_step:
            self.log.on_step(step.kind, device_ns - max(self._last_device_ns, step.t_start_ns))
        self._last_device_ns = device_ns
        for request, row in zip(step.requests, rows, strict=False):  # padding rows follow
            accepted, committed, done, n, num_proposed = row[:NUM_STATUS_COLUMNS]
            request.num_inflight -= 1
            if request.finish_reason is not None:
                continue  # a frozen row of a request that an earlier status ended
            is_prefill = request.is_prefilling
            if committed or not is_prefill:
                request.num_computed = n
            tokens = row[NUM_STATUS_COLUMNS : NUM_STATUS_COLUMNS + committed]
            request.output_ids += tokens
            if tokens:
                request.t_first_ns = request.t_first_ns or host_ns
                request.t_first_device_ns = request.t_first_device_ns or device_ns
                request.t_last_ns, request.t_last_device_ns = host_ns, device_ns
            self.log.rows.append(
                StepRow(
                    step.step,
                    request.id,
                    step.kind,
                    is_prefill,
                    step.t_start_ns,
                    host_ns,
                    device_ns,
                    len(step.requests),
                    step.num_rows,
                    step.num_padded_rows,
                    num_proposed,
                    accepted,
                    committed,
                    committed < accepted + 1 and not is_prefill,
                    step.graph,
                    num_syncs,
                )
            )
            if done:
                self._finish(request, _DONE_REASONS[done])

    def _finish(self, request: Request, reason: FinishReason) -> None:
        request.finish_reason = reason
        self.scheduler.remove(request)
        self._finished.append(request)
