"""Planning a pass over the step's own rows, for attention backends whose launches are planned on the host."""

from __future__ import annotations

from specbench.harness.models.llama import Attention, KVCache
from specbench.kernels.attention.base import PlannedAttentionBackend

from .batch import StepBatch
from .host_view import HostView


def plan_rows(batch: StepBatch, host: HostView, attention: Attention, cache: KVCache, *, of_target: bool) -> None:
    """Plans the attention of the step's own rows where the backend wants lengths from the host."""
    backend: PlannedAttentionBackend = attention.backend  # type: ignore[assignment]
    forward = batch.target_forward() if of_target else batch.drafter_forward()
    first = 0
    for part in forward.parts:
        end = first + part.meta.kv_len_B.shape[0]
        q_lens = batch.q_lens[first:end]
        kv_len = [n + q for n, q in zip(host.num_computed[first:end], q_lens, strict=True)]
        backend.plan(part.meta, host.lengths(kv_len, q_lens, first), attention.geometry(cache))
        first = end
