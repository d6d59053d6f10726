"""The device state between rounds, for each request slot, and the host's writes to it.

Legend: S slots (the last one is the dummy slot of padding rows), P pages per slot.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from specbench.harness.engines.native.core.edit_buffers import EDIT_FIELDS, EditBuffers, edit_fields
from specbench.harness.engines.native.core.lookahead import Lookahead
from specbench.harness.engines.native.core.pages import DUMMY_PAGE
from specbench.harness.engines.native.core.request import Request
from specbench.harness.engines.native.core.slot_memory import Field, SlotMemory
from specbench.harness.engines.native.core.tree import TreeShape, TreeState
from specbench.harness.spec.sampling import MAX_STOP_IDS
from specbench.kernels.buffers import Slots
from specbench.kernels.commit import RUNNING, STOPPED


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
        i32, i64, f32 = torch.int32, torch.int64, torch.float32
        # All that `assign` writes, in the order of `_fields`.
        fields = {
            "n_S": Field(i32),
            "limit_S": Field(i32),
            "stop_SE": Field(i64, MAX_STOP_IDS, initial=-1),
            "done_S": Field(i32, initial=STOPPED),
            "drafts_SK": Field(i64, num_drafts, initial=-1),
            "temperature_S": Field(f32),
            "top_k_S": Field(i32),
            "top_p_S": Field(f32, initial=1),
            "seed_S": Field(i64),
            **EDIT_FIELDS,
        }
        self._memory = memory = SlotMemory(num_slots, width, fields, device)
        super().__init__(
            tokens_SL=memory["tokens_SL"],
            n_S=memory["n_S"],
            limit_S=memory["limit_S"],
            stop_SE=memory["stop_SE"],
            done_S=memory["done_S"],
            drafts_SK=memory["drafts_SK"],
            block_table_SP=torch.zeros(num_slots, pages, dtype=i32, device=device),
            page_size=page_size,
            tree=TreeState(num_slots, tree, device) if tree else None,
        )
        self._no_drafts_K = (-1,) * num_drafts
        self.dummy_slot = max_num_seqs
        self.device = device
        self.max_kv = width
        self.depth = tree.depth if tree else num_drafts  # most drafts that one round can accept
        self.temperature_S = memory["temperature_S"]
        self.top_k_S, self.top_p_S, self.seed_S = memory["top_k_S"], memory["top_p_S"], memory["seed_S"]
        self.edits = EditBuffers(memory, num_slots, device)
        # The host's copy of the block table; sent whole, and only when it changed. A copy that is still queued may see
        # later entries. For a running slot, entries are only appended. A slot whose request has ended may already have
        # the next one's pages while a launched step still has the frozen row of the last: that row commits nothing, and
        # every page that it may write is written anew by a later step before it is read. This would not hold if
        # requests shared pages.
        self._table_host_SP = torch.zeros(num_slots, pages, dtype=torch.int32, pin_memory=device.type == "cuda")
        self._table_SP = self._table_host_SP.numpy()  # the same memory; a write of few entries costs less than torch's
        self._table_dirty = False

    def path_drafts(self, num_drafts: int) -> int:
        """Most drafts that a round can accept which verifies `num_drafts`: on a tree, those of one path."""
        return num_drafts if self.tree is None else self.depth

    def host_block_table(self, slots: Sequence[int]) -> np.ndarray:
        """int32 [len(slots), P]: the pages as the host assigned them."""
        return self._table_SP[list(slots)]

    def assign(self, requests: Sequence[Request], max_model_len: int) -> None:
        """Starts requests in their slots: all tokens they have, nothing computed."""
        if not requests:
            return
        slots = [r.slot for r in requests if r.slot is not None]
        assert len(slots) == len(requests) and self.dummy_slot not in slots
        for slot, request in zip(slots, requests, strict=True):
            self.edits.assign(slot, request.sampling)
            self._table_SP[slot] = DUMMY_PAGE
        self._table_dirty = True
        tokens = [(*r.prompt_ids, *r.output_ids) for r in requests]
        self._memory.write(slots, tokens, [self._fields(r, r.limit(max_model_len)) for r in requests])

    def _fields(self, request: Request, limit: int) -> tuple[float, ...]:
        """Values of the fields, in their order."""
        sampling = request.sampling
        return (
            0,  # n
            limit,
            *sampling.stop_token_ids,
            *[-1] * (MAX_STOP_IDS - len(sampling.stop_token_ids)),
            RUNNING,
            *self._no_drafts_K,
            sampling.temperature,
            sampling.top_k,
            sampling.top_p,
            sampling.seed,
            *edit_fields(sampling, len(request.prompt_ids)),
        )

    def release(self, slot: int) -> None:
        """Freezes a slot: kernels no longer commit anything for it."""
        self.done_S[slot].fill_(STOPPED)

    def add_pages(self, slot: int, first: int, pages: list[int]) -> None:
        self._table_SP[slot, first : first + len(pages)] = pages
        self._table_dirty = True

    def flush_block_table(self) -> None:
        """Sends the block table to the device if it changed."""
        if self._table_dirty:
            self.block_table_SP.copy_(self._table_host_SP, non_blocking=True)
            self._table_dirty = False
