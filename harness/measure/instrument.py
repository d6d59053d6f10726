"""Phase times of captured rounds, from a second capture with events at the phase boundaries.

These say how a round splits. They never stand for its speed: events inside a graph cost time of their own.
"""

from __future__ import annotations

import torch

from specbench.harness.engine.engine import Engine
from specbench.harness.engine.sampler import SamplingMode

from .drive import Load, settle
from .phase_clock import END, NullClock

_NUM_ROUNDS = 20


def instrumented_phases(engine: Engine, load: Load) -> list[dict]:
    """Rows of `phases.parquet` with `instrumented` set, for the largest batch; empty where rounds are not captured.

    The requests are the workload's own, so that lengths and acceptance are those of the run.
    """
    if engine.config.graph == "none":
        return []
    num_requests = min(engine.config.max_num_seqs, len(load.prompts))
    for index in range(num_requests):
        engine.add(load.request(index))
    while engine.scheduler.wants_mixed_step():
        engine.step()
    rows: list[dict] = []
    running = list(engine.scheduler.running)
    if running:
        mode = SamplingMode.of([r.sampling for r in running])
        probe = engine.launcher.instrumented(len(running), mode)
        rows = _replay(engine, probe)
    for request in list(engine.scheduler.running):
        engine.abort(request.id)
    settle(engine)
    engine.log.take()
    return rows


def _replay(engine: Engine, probe) -> list[dict]:
    slots = [r.slot for r in engine.scheduler.running]
    probe.batch.slot_B.copy_(torch.tensor(slots, dtype=torch.int64))
    # The rounds write ahead of what the scheduler knows, so pages for all of them are taken first.
    for request in engine.scheduler.running:
        request.num_inflight += _NUM_ROUNDS
    if not engine.scheduler.reserve(engine.scheduler.running):
        return []
    engine.write_grants()
    rows = []
    for index in range(_NUM_ROUNDS):
        probe.launch(engine.ranges, NullClock())
        for name, ns in probe.inner_phases():
            if name != END:
                row = dict(step=-1 - index, phase=name, duration_ns=ns, instrumented=True, source="external_event")
                rows.append(row)
    for request in engine.scheduler.running:
        request.num_inflight -= _NUM_ROUNDS
    return rows
