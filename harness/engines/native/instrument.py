"""Phase times of captured rounds, from a second capture with events at the phase boundaries.

They show how a round splits, but never count as its speed: events inside a graph cost time themselves.
"""

from __future__ import annotations

import torch

from specbench.harness.engines.load import Load
from specbench.harness.engines.native.core.clock import GAP, EventClock, NullClock
from specbench.harness.engines.native.core.engine import Engine
from specbench.harness.engines.native.core.graphs import DecodeRound
from specbench.harness.engines.native.core.sampler import SamplingMode
from specbench.harness.store.rows import PhaseRow

from .drive import empty, native_request

_NUM_PAIRS = 15


def instrumented_phases(engine: Engine, load: Load) -> list[PhaseRow]:
    """Rows of `phases.parquet` with `instrumented` set, for the largest batch; empty if rounds are not captured, or
    if their number of drafts changes. The requests are the workload's own, so that lengths and acceptance match the
    run."""
    if engine.config.graph.decode_modes - {"full", "one"} or len(engine.draft_counts.choices) > 1:
        return []
    num_requests = min(engine.config.max_num_seqs, len(load))
    for index in range(num_requests):
        engine.add(native_request(load.request(index)))
    while engine.scheduler.wants_mixed_step():
        engine.step()
    rows: list[PhaseRow] = []
    running = list(engine.scheduler.running)
    if running:
        mode = SamplingMode.of([r.sampling for r in running])
        probes = [engine.launcher.instrumented(len(running), mode) for _ in range(2)]
        # With the host between launches, events would show the host, not the round.
        rows = [] if probes[0].needs_host else _replay(engine, (probes[0], probes[1]))
    empty(engine)
    engine.log.take()
    return rows


def _replay(engine: Engine, probes: tuple[DecodeRound, DecodeRound]) -> list[PhaseRow]:
    """Replays the probes in turn, each followed by its status copy as in the engine's loop, so that the device time
    between two rounds is seen as well."""
    running = engine.scheduler.running
    slots = torch.tensor([r.slot for r in running], dtype=torch.int64)
    # The rounds write ahead of what the scheduler knows, so pages for all of them are taken first.
    for request in running:
        request.num_inflight += 2 * _NUM_PAIRS
    has_pages = engine.scheduler.reserve(running)
    engine.write_grants()
    rows: list[PhaseRow] = []
    for index in range(_NUM_PAIRS if has_pages else 0):
        for probe in probes:
            probe.batch.rows.slot_B.copy_(slots)
        for probe in probes:
            probe.launch(engine.ranges, NullClock(), engine.views.of(probe.batch, running))
        for which, probe in enumerate(probes):
            rows += [_row(-1 - 2 * index - which, name, ns) for name, ns in probe.inner_clock.read()]
        if engine.config.sync == "none":
            first, second = (probe.inner_clock for probe in probes)
            assert isinstance(first, EventClock) and isinstance(second, EventClock)
            rows.append(_row(-1 - 2 * index, GAP, first.ns_until(second)))
    for request in running:
        request.num_inflight -= 2 * _NUM_PAIRS
    return rows


def _row(step: int, phase: str, duration_ns: int) -> PhaseRow:
    return PhaseRow(step, phase, duration_ns, instrumented=True, source="external_event")
