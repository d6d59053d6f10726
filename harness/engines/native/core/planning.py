"""Passes of attention backends whose launches are planned on the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from specbench.harness.engines.native.core.batch import StepBatch
from specbench.harness.engines.native.core.host_view import HostView
from specbench.harness.engines.native.core.strategy import Phase
from specbench.harness.engines.native.models.forward import Attention, ForwardBatch, KVCache

Run = Callable[[StepBatch], None]
Plan = Callable[[StepBatch, HostView], None]


def attention_phase(name: str, attention: Attention, run: Run, plan: Plan) -> Phase:
    """A phase that runs a pass, planned before each launch if its backend requires that."""
    return Phase(name, run, plan if attention.is_planned else None)


def plan_pass(
    forward: ForwardBatch,
    host: HostView,
    attention: Attention,
    cache: KVCache,
    kv_lens: Sequence[int],
    q_lens: Sequence[int],
) -> None:
    """Plans each part of a pass: `kv_lens` keys and `q_lens` rows of its requests, as the host knows them."""
    first = 0
    for part in forward.parts:
        end = first + part.meta.kv_len_B.shape[0]
        attention.plan(part.meta, host.lengths(kv_lens[first:end], q_lens[first:end], first), cache)
        first = end
