"""Rows of a first drafter pass over just the accepted tokens: the unpadded batch of vLLM before PR 24539.

Legend: B requests of the step (padding included), R = sum of (a+1) accepted rows, T rows of the target's pass.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from specbench.harness.engine.batch import StepBatch
from specbench.harness.engine.host_view import HostView
from specbench.harness.engine.state import send
from specbench.harness.engine.sync_policy import LaunchSizes
from specbench.harness.models.llama import AttentionPart, ForwardBatch
from specbench.kernels.attention.base import AttentionMetadata, HostLengths


@dataclass(slots=True)
class UnpaddedRows:
    """One round's ragged layout; made on the host once the accepted counts are there."""

    gather_R: Tensor  # int64, row of the target's pass
    row_req_R: Tensor  # int64
    sample_row_B: Tensor  # int64, each request's last row; 0 for padding requests
    forward: ForwardBatch  # ids are filled by the drafter
    lengths: HostLengths


def unpadded_rows(b: StepBatch, host: HostView, sizes: LaunchSizes) -> UnpaddedRows:
    """The rows that hold accepted tokens: a+1 of each decode, all of a prompt chunk, none of a padding request."""
    real = len(b.slots) or 1  # while a round is captured, a padding request stands for them
    q_lens = np.asarray(b.q_lens[:real], dtype=np.int64)
    counts = q_lens.copy()
    counts[: b.num_decodes] = [a + 1 for a, _ in host.accepted()[: min(b.num_decodes, real)]]
    first_row = np.cumsum(q_lens) - q_lens
    cu_q = np.append(0, np.cumsum(counts)).astype(np.int32)
    request = np.repeat(np.arange(real), counts)
    gather = first_row[request] + np.arange(cu_q[-1]) - cu_q[:-1][request]
    kv_len = (np.asarray(host.num_computed[:real], dtype=np.int64) + counts).astype(np.int32)
    sample_row = np.zeros(b.num_requests, dtype=np.int64)
    sample_row[:real] = cu_q[1:] - 1

    device = b.slot_B.device
    gather_R, cu_q_B1 = _sent(gather, torch.int64, device), _sent(cu_q, torch.int32, device)
    meta = AttentionMetadata(
        cu_q_B1=cu_q_B1,
        kv_len_B=_sent(kv_len, torch.int32, device),
        block_table_BP=b.block_table_BP[:real],
        max_q=sizes.max_query_len(host, counts.tolist(), cu_q_B1),
        max_kv=b.max_kv,
        uniform=False,
    )
    num_rows = int(cu_q[-1])
    forward = ForwardBatch(
        torch.empty(num_rows, dtype=torch.int64, device=device),
        b.position_T.index_select(0, gather_R),
        b.kv_slot_T.index_select(0, gather_R),
        (AttentionPart(0, num_rows, meta),),
    )
    table_BP = host.block_table()[:real]
    return UnpaddedRows(
        gather_R,
        _sent(request, torch.int64, device),
        _sent(sample_row, torch.int64, device),
        forward,
        HostLengths(cu_q, kv_len, table_BP),
    )


def _sent(values: np.ndarray, dtype: torch.dtype, device: torch.device) -> Tensor:
    return send(torch.from_numpy(values).to(dtype), device)
