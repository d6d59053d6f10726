"""The host's part of a round as in vLLM 0.9.2 (`sync=multi`): several blocking reads, each of a value that is used.

Sampled ids go to the host, next tokens and lengths are made there and sent back, launches are bounded by maxima read
from the device, drafts go to the host and back. A later engine waits once (vLLM PR 20078, padded batches of PR 24539).
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

import torch
from torch import Tensor

from specbench.harness.engines.native.core.batch import StepBatch
from specbench.harness.engines.native.core.host_view import HostView
from specbench.harness.engines.native.core.state import RoundState
from specbench.harness.engines.native.core.strategy import Phase

MAX_SEQ_LEN, MAX_QUERY_LEN, DRAFT_IDS = "max_seq_len", "max_query_len", "draft_ids"


def read_max_query_len(host: HostView, q_lens: list[int], cu_q_B1: Tensor) -> int:
    """Maximum rows of one request; read from the device, although the host has its own list."""
    return host.read(MAX_QUERY_LEN, (cu_q_B1[1:] - cu_q_B1[:-1]).max())  # type: ignore[return-value]


class MultiSync:
    """The host's work between target and drafter, and after the drafter."""

    def __init__(self, state: RoundState, bounded_parts: Set[str], captured_parts: Set[str]):
        """`bounded_parts`: the drafter's parts that take the bound of their launches from the layout. `captured_parts`
        have it in their graphs in decode rounds; if no others are left, no length is read."""
        self._state = state
        self._mixed_parts = bounded_parts
        self._decode_parts = bounded_parts - captured_parts
        self._drafts: dict[int, list[int]] = {}  # by slot: what the host read, to be sent with the next round

    def phases(self, target: list[Phase], drafting: list[Phase]) -> list[Phase]:
        """The round with the host between target and drafter, and after the drafter."""
        if not drafting:
            return [*target, Phase("sampled_ids", _nothing, _wait)]
        return [
            replace(target[0], prepare=self.send_drafts),
            *target[1:],
            Phase("next_tokens", _nothing, self.after_accept),
            *drafting,
            Phase(DRAFT_IDS, _nothing, self.read_drafts),
        ]

    def after_accept(self, batch: StepBatch, host: HostView) -> None:
        """Next tokens and lengths are made on the host and sent to the device, where the drafter reads them."""
        s = self._state
        known = [
            (slot, n, emitted[-1])
            for slot, (_, n), emitted in zip(batch.slots, host.accepted(), host.emitted(), strict=False)
            if emitted
        ]
        if known:
            slot_R, n_R, token_R = _upload(list(zip(*known, strict=True)), s.device)
            s.tokens_SL.index_put_((slot_R, n_R), token_R)
            s.n_S.index_copy_(0, slot_R, n_R.to(s.n_S.dtype))
        parts = self._decode_parts if batch.advance_B is None else self._mixed_parts
        if parts:
            n_B = s.n_S.index_select(0, batch.rows.slot_B)
            batch.bound_drafter(parts, int(host.read(MAX_SEQ_LEN, n_B.max())))  # type: ignore[call-overload]

    def read_drafts(self, batch: StepBatch, host: HostView) -> None:
        rows = host.read(DRAFT_IDS, self._state.drafts_SK.index_select(0, batch.rows.slot_B))
        self._drafts = dict(zip(batch.slots, rows, strict=False))

    def send_drafts(self, batch: StepBatch, host: HostView) -> None:
        """The drafts of the last round that these requests were in, from the host's lists."""
        known = [slot for slot in batch.slots if slot in self._drafts]
        if known:
            rows = _upload([[slot, *self._drafts[slot]] for slot in known], self._state.device)
            self._state.drafts_SK.index_copy_(0, rows[:, 0], rows[:, 1:])
        self._drafts = {}


def _upload(values: list, device: torch.device) -> Tensor:
    """Copies from pageable memory, as the engines of that time did; related values in one copy."""
    return torch.tensor(values, dtype=torch.int64).to(device, non_blocking=True)


def _wait(b: StepBatch, host: HostView) -> None:
    host.status()


def _nothing(b: StepBatch) -> None:
    """A phase with host work only."""
