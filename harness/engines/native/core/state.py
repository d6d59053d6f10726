"""The device state between rounds, for each request slot, and the host's writes to it.

Legend: S slots (the last one is the dummy slot of padding rows), P pages per slot.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from specbench.harness.engines.native.core.edit_buffers import EditBuffers
from specbench.harness.engines.native.core.lookahead import Lookahead
from specbench.harness.engines.native.core.pages import DUMMY_PAGE
from specbench.harness.engines.native.core.request import Request
from specbench.harness.engines.native.core.tree import TreeShape, TreeState
from specbench.harness.spec.sampling import MAX_STOP_IDS
from specbench.kernels.buffers import Slots

_ALIGNED_BYTES = 16


class RoundState(Slots):
    """One engine's slots. Their addresses never change."""

    tree: TreeState | None

    def __init__(
        self,
        *,
        max_num_seqs: int,
        max_model_len: int,
        num_drafts: int,
        page_size: int,
        device: torch.device,
        lookahead: Lookahead,
        tree: TreeShape | None = None,
    ):
        num_slots = max_num_seqs + 1
        self.lookahead = lookahead
        width = max_model_len + lookahead.reach + 2
        pages = -(-width // page_size)

        def zeros(*shape: int, dtype: torch.dtype) -> Tensor:
            return torch.zeros(*shape, dtype=dtype, device=device)

        super().__init__(
            tokens_SL=zeros(num_slots, width, dtype=torch.int64),
            n_S=zeros(num_slots, dtype=torch.int32),
            limit_S=zeros(num_slots, dtype=torch.int32),
            stop_SE=zeros(num_slots, MAX_STOP_IDS, dtype=torch.int64).fill_(-1),
            done_S=zeros(num_slots, dtype=torch.int32).fill_(1),
            drafts_SK=zeros(num_slots, num_drafts, dtype=torch.int64).fill_(-1),
            block_table_SP=zeros(num_slots, pages, dtype=torch.int32),
            page_size=page_size,
            tree=TreeState(num_slots, tree, device) if tree else None,
        )
        self.dummy_slot = max_num_seqs
        self.device = device
        self.max_kv = width
        self.depth = tree.depth if tree else num_drafts  # most drafts that one round can accept
        self.temperature_S = zeros(num_slots, dtype=torch.float32)
        self.top_k_S = zeros(num_slots, dtype=torch.int32)
        self.top_p_S = zeros(num_slots, dtype=torch.float32).fill_(1.0)
        self.seed_S = zeros(num_slots, dtype=torch.int64)
        self.edits = EditBuffers(num_slots, device)
        # The host's copy of the block table; sent whole, and only when it changed. Entries are only ever appended for a
        # running slot, so a copy that is still queued may safely see later entries.
        self._table_host_SP = torch.zeros(num_slots, pages, dtype=torch.int32, pin_memory=device.type == "cuda")
        self._table_dirty = False

    def path_drafts(self, num_drafts: int) -> int:
        """Most drafts that a round can accept which verifies `num_drafts`: on a tree, those of one path."""
        return num_drafts if self.tree is None else self.depth

    def host_block_table(self, slots: Sequence[int]) -> np.ndarray:
        """int32 [len(slots), P]: the pages as the host assigned them."""
        return self._table_host_SP.numpy()[list(slots)]

    def upload(self, values: list, dtype: torch.dtype) -> Tensor:
        """A host list as a device tensor, without waiting for the device."""
        return send(torch.tensor(values, dtype=dtype), self.device)

    def assign(self, request: Request, limit: int) -> None:
        """Starts a request in its slot: all tokens it has, nothing computed."""
        slot = request.slot
        assert slot is not None and slot != self.dummy_slot
        sampling = request.sampling
        ids = [*request.prompt_ids, *request.output_ids]
        self.tokens_SL[slot, : len(ids)].copy_(self.upload(ids, torch.int64))
        stops = [*sampling.stop_token_ids, *[-1] * (MAX_STOP_IDS - len(sampling.stop_token_ids))]
        self.stop_SE[slot].copy_(self.upload(stops, torch.int64))
        self.n_S[slot].fill_(0)
        self.limit_S[slot].fill_(limit)
        self.drafts_SK[slot].fill_(-1)
        self.temperature_S[slot].fill_(sampling.temperature)
        self.top_k_S[slot].fill_(sampling.top_k)
        self.top_p_S[slot].fill_(sampling.top_p)
        self.seed_S[slot].fill_(sampling.seed)
        self.edits.assign(slot, sampling, len(request.prompt_ids))
        self.done_S[slot].fill_(0)
        self._table_host_SP[slot].fill_(DUMMY_PAGE)
        self._table_dirty = True

    def release(self, slot: int) -> None:
        """Freezes a slot: kernels no longer commit anything for it."""
        self.done_S[slot].fill_(1)

    def add_pages(self, slot: int, first: int, pages: list[int]) -> None:
        self._table_host_SP[slot, first : first + len(pages)] = torch.tensor(pages, dtype=torch.int32)
        self._table_dirty = True

    def flush_block_table(self) -> None:
        """Sends the block table to the device if it changed."""
        if self._table_dirty:
            self.block_table_SP.copy_(self._table_host_SP, non_blocking=True)
            self._table_dirty = False


def send_together(arrays: Sequence[list[int] | np.ndarray], dtype: torch.dtype, device: torch.device) -> list[Tensor]:
    """Each array as a tensor of its own on the device, all in one copy. Each is aligned to 16 bytes, because Triton
    would compile a second kernel for unaligned ones."""
    step = _ALIGNED_BYTES // dtype.itemsize
    starts = [0, *accumulate(-(-len(values) // step) * step for values in arrays)]
    host = torch.zeros(starts[-1], dtype=dtype)
    for start, values in zip(starts, arrays, strict=False):
        host.numpy()[start : start + len(values)] = values
    joined = send(host, device)
    return [joined[start : start + len(values)] for start, values in zip(starts, arrays, strict=False)]


def send(tensor: Tensor, device: torch.device) -> Tensor:
    """Host to device without a synchronisation: through pinned memory, which torch keeps until the copy has run."""
    if device.type != "cuda":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)
