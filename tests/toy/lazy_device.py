"""A device that runs late, on a CPU.

On a CPU every launch is synchronous: a host that reuses a buffer before a queued step has read it does no harm there,
and a test of outputs sees nothing. Here launches are queued and run in order, as on a GPU's stream, but as late as
possible: when the host waits for a status. A test may also let some run earlier (`LazyDevice.run`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from torch import Tensor

from specbench.harness.engines.native.core import edit_buffers, graphs
from specbench.harness.engines.native.core import engine as engine_module
from specbench.harness.engines.native.core.batch import StepBatch
from specbench.harness.engines.native.core.engine import Engine
from specbench.harness.engines.native.core.sampler import Mode
from specbench.harness.engines.native.core.status import PendingStatus
from specbench.harness.engines.native.core.strategy import Phase


class LazyDevice:
    """A queue of launches, which run in order."""

    def __init__(self) -> None:
        self._queued: deque[Callable[[], object]] = deque()
        self._num_launched = 0

    def launch(self, work: Callable[[], object]) -> int:
        """Queues the work and returns its number."""
        self._queued.append(work)
        self._num_launched += 1
        return self._num_launched

    def run(self, at_most: int) -> None:
        """Runs the oldest launches."""
        for _ in range(min(at_most, len(self._queued))):
            self._queued.popleft()()

    def wait_for(self, number: int) -> None:
        """Runs everything up to the launch with this number."""
        self.run(number - (self._num_launched - len(self._queued)))

    def synchronize(self) -> None:
        self.wait_for(self._num_launched)


class _LateStatus:
    """A PendingStatus whose copy is queued."""

    def __init__(self, device: LazyDevice, copy: Callable[[], PendingStatus]):
        self._device, self._copy = device, copy
        self._copied: PendingStatus | None = None
        self._number = device.launch(self._run)

    def _run(self) -> None:
        self._copied = self._copy()

    @property
    def is_read(self) -> bool:
        return self._copied is not None and self._copied.is_read

    def wait(self) -> tuple[list[list[int]], int]:
        self._device.wait_for(self._number)
        assert self._copied is not None
        return self._copied.wait()


@contextmanager
def lazy_device(engine: Engine, after_phase: Callable[[StepBatch], None] | None = None) -> Iterator[LazyDevice]:
    """Queues all that the engine launches on a CPU, inside the context; what is left runs at its end. `after_phase` is
    called with the step's layout when a phase has run."""
    assert engine.target.device.type == "cpu" and not engine.launcher.rounds(), "rounds keep the phases they have"
    device, state, status = LazyDevice(), engine.state, engine.views._status
    phases_of, release, write, queue = engine.builder.phases, state.release, state._memory.write, status.queue

    def run_phase(phase: Phase, batch: StepBatch) -> None:
        phase.run(batch)
        if after_phase is not None:
            after_phase(batch)

    def late(phase: Phase) -> Phase:
        assert phase.prepare is None, "the host would read lengths in mid-round"
        return replace(phase, run=lambda batch: device.launch(partial(run_phase, phase, batch)))

    def late_phases(batch: StepBatch, mode: Mode) -> list[Phase]:
        return [late(phase) for phase in phases_of(batch, mode)]

    def late_table() -> None:
        """The copy reads pinned memory when it runs: it may see what the host has written since."""
        if state._table_dirty:
            device.launch(lambda: state.block_table_SP.copy_(state._table_host_SP))
            state._table_dirty = False

    def late_send(out: Tensor, tensor: Tensor) -> None:
        """The values of now, as of a tensor that torch keeps in pinned memory until it is copied."""
        device.launch(partial(out.copy_, tensor.clone()))

    def late_send_rows(out: Tensor, *sent: Tensor) -> None:
        device.launch(partial(out.index_copy_, 0, *(tensor.clone() for tensor in sent)))

    def late_write(*arguments: Any) -> None:
        """The engine makes new lists for each call, and what they hold is packed at once: no copy is needed."""
        device.launch(partial(write, *arguments))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine.builder, "phases", late_phases)
        patch.setattr(state, "flush_block_table", late_table)
        patch.setattr(state, "release", lambda slot: device.launch(partial(release, slot)))
        patch.setattr(state._memory, "write", late_write)
        patch.setattr(status, "queue", lambda block: _LateStatus(device, partial(queue, block)))
        patch.setattr(engine_module, "send_rows_into", late_send_rows)
        for module in (graphs, edit_buffers):
            patch.setattr(module, "send_into", late_send)
        yield device
        device.synchronize()
