"""Host synchronisation policies: what the host waits for in a round, and what it does with the values.

none    nothing; status blocks are read late (engine.py)
single  one read of the accepted tokens: before the drafter where its launch needs them, else once it is queued
        (vLLM PR 20078, padded batches of PR 24539)
multi   the reads of vLLM 0.9.2: sampled ids to the host, next tokens and lengths made there and sent back, launch
        bounds by `.max().item()`, drafts to the host and back. Every value read is one that a later launch uses.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from .batch import StepBatch
from .host_view import HostView
from .state import RoundState

MAX_SEQ_LEN, MAX_QUERY_LEN, DRAFT_IDS = "max_seq_len", "max_query_len", "draft_ids"


class LaunchSizes(Protocol):
    """Bounds of launches whose sizes depend on acceptance."""

    def max_query_len(self, host: HostView, q_lens: list[int], cu_q_B1: Tensor) -> int:
        """Most rows of one request: from the host's own list, or read from the device."""
        ...


class HostSizes:
    """The host computes its own copy of what the device has."""

    def max_query_len(self, host: HostView, q_lens: list[int], cu_q_B1: Tensor) -> int:
        return max(q_lens)


class DeviceSizes:
    """The host asks the device, as engines did before PR 20078."""

    def max_query_len(self, host: HostView, q_lens: list[int], cu_q_B1: Tensor) -> int:
        return host.read(MAX_QUERY_LEN, (cu_q_B1[1:] - cu_q_B1[:-1]).max())  # type: ignore[return-value]


class MultiSync:
    """The host's work between target and drafter, and after the drafter, of `sync=multi`."""

    def __init__(self, state: RoundState, drafts_in_graphs: bool):
        """`drafts_in_graphs`: the drafter's launches are captured with their bounds, so none is read."""
        self._state = state
        self._drafts_in_graphs = drafts_in_graphs
        self._drafts: dict[int, list[int]] = {}  # by slot: what the host read, to be sent with the next round

    def after_accept(self, batch: StepBatch, host: HostView) -> None:
        """Next tokens and lengths are made on the host and sent to the device, where the drafter reads them."""
        s = self._state
        slots, lengths, tokens = [], [], []
        for slot, (_, n), emitted in zip(batch.slots, host.accepted(), host.emitted(), strict=False):
            if emitted:
                slots.append(slot)
                lengths.append(n)
                tokens.append(emitted[-1])
        if slots:
            slot_R, n_R = _upload(slots, s.device), _upload(lengths, s.device)
            s.tokens_SL.index_put_((slot_R, n_R), _upload(tokens, s.device))
            s.n_S.index_copy_(0, slot_R, n_R.to(s.n_S.dtype))
        if self._drafts_in_graphs:
            return
        n_B = s.n_S.index_select(0, batch.slot_B)
        batch.bound_lengths(int(host.read(MAX_SEQ_LEN, n_B.max())))  # type: ignore[call-overload]

    def read_drafts(self, batch: StepBatch, host: HostView) -> None:
        rows = host.read(DRAFT_IDS, self._state.drafts_SK.index_select(0, batch.slot_B))
        self._drafts = dict(zip(batch.slots, rows, strict=False))

    def send_drafts(self, batch: StepBatch, host: HostView) -> None:
        """The drafts of the last round that these requests were in, from the host's lists."""
        known = [slot for slot in batch.slots if slot in self._drafts]
        if known:
            drafts_RK = _upload([self._drafts[slot] for slot in known], self._state.device)
            self._state.drafts_SK.index_copy_(0, _upload(known, self._state.device), drafts_RK)
        self._drafts = {}


def _upload(values: list, device: torch.device) -> Tensor:
    """From pageable memory, as the engines of that time did."""
    return torch.tensor(values, dtype=torch.int64).to(device, non_blocking=True)
