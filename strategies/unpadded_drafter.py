"""The unpadded batch of vLLM before PR 24539: a first drafter pass over just the accepted tokens.

Legend: B requests of the step (padding included), R = sum of (a+1) accepted rows, T rows of the target's pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from specbench.harness.engines.native.core.batch import StepBatch
from specbench.harness.engines.native.core.host_view import HostView
from specbench.harness.engines.native.core.strategy import DraftHead, EngineResources, Phase
from specbench.harness.engines.native.core.upload import send_together
from specbench.harness.engines.native.models.forward import AttentionPart, ForwardBatch
from specbench.kernels.attention.base import AttentionMetadata, HostLengths

from .chain_drafter import ChainDrafter


class UnpaddedChainDrafter(ChainDrafter):
    """The rows of its first pass are known only after the host has read the accepted counts."""

    def __init__(self, head: DraftHead, num_drafts: int, resources: EngineResources):
        super().__init__(head, num_drafts, resources)
        self._max_query_len = resources.max_query_len

    def _first_phase(self) -> Phase:
        made: list[UnpaddedRows] = []  # for the launch that follows

        def prepare(b: StepBatch, host: HostView) -> None:
            made[:] = [unpadded_rows(b, host, self._max_query_len)]
            if self._attention.is_planned:
                self._attention.plan(made[0].forward.parts[0].meta, made[0].lengths(host), self._cache)

        def run(b: StepBatch) -> None:
            rows = made[0]
            self._run_first(b, rows.row_req_R, rows.forward, rows.sample_row_B, rows.gather_R)

        return Phase("draft_first", run, prepare)


@dataclass(slots=True)
class UnpaddedRows:
    """One round's ragged layout, built on the host once it has the accepted counts."""

    gather_R: Tensor  # int64, row of the target's pass
    row_req_R: Tensor  # int64
    sample_row_B: Tensor  # int64, each request's last row; 0 for padding requests
    forward: ForwardBatch  # ids are filled by the drafter
    cu_q: np.ndarray  # int32, what the metadata's tensors hold
    kv_len: np.ndarray  # int32

    def lengths(self, host: HostView) -> HostLengths:
        """Lengths for a planned attention backend."""
        return HostLengths(self.cu_q, self.kv_len, host.block_table()[: len(self.kv_len)])


def unpadded_rows(
    b: StepBatch, host: HostView, max_query_len: Callable[[HostView, list[int], Tensor], int]
) -> UnpaddedRows:
    """The rows that hold accepted tokens: a+1 of each decode, all of a prompt chunk, none of a padding request.

    While graphs are captured, a layout has no requests yet: then all rows of its padding requests count, so that every
    possible number of rows gets its graphs.
    """
    real = len(b.slots) or b.num_requests
    q_lens = np.asarray(b.q_lens[:real], dtype=np.int64)
    counts = q_lens.copy()
    if b.slots:
        counts[: b.num_decodes] = [a + 1 for a, _ in host.accepted()[: min(b.num_decodes, real)]]
    first_row = np.cumsum(q_lens) - q_lens
    cu_q = np.append(0, np.cumsum(counts)).astype(np.int32)
    request = np.repeat(np.arange(real), counts)
    gather = first_row[request] + np.arange(cu_q[-1]) - cu_q[:-1][request]
    kv_len = (np.asarray(host.num_computed[:real], dtype=np.int64) + counts).astype(np.int32)
    sample_row = np.zeros(b.num_requests, dtype=np.int64)
    sample_row[:real] = cu_q[1:] - 1

    num_rows = int(cu_q[-1])
    gather_R, row_req_R, sample_row_B = send_together((gather, request, sample_row), torch.int64, b.rows.slot_B.device)
    cu_q_B1, kv_len_B = send_together((cu_q, kv_len), torch.int32, b.rows.slot_B.device)
    max_q = max_query_len(host, counts.tolist(), cu_q_B1)
    meta = AttentionMetadata.ragged(
        cu_q_B1, kv_len_B, b.rows.block_table_BP[:real], max_q=max_q, max_kv=b.bound_of("first")
    )
    forward = ForwardBatch(
        torch.empty_like(gather_R),
        b.rows.position_T.index_select(0, gather_R),
        b.rows.kv_slot_T.index_select(0, gather_R),
        (AttentionPart(0, num_rows, meta),),
    )
    return UnpaddedRows(gather_R, row_req_R, sample_row_B, forward, cu_q, kv_len)
