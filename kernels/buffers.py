"""The device buffers of a round: the contents of each request slot, and the rows of a step.

The engine owns them and keeps their addresses, so a captured graph may hold them; kernels read and write them in place.
Legend: S slots, L width of the token buffer, K drafts and P pages of a slot, E stop ids, D = K + 1 nodes of a tree with
its root, B requests of a step, T rows of a pass, W most tokens of a request in one round, X = 6 + W status columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


class SlotArgs(NamedTuple):
    """`Slots` as a kernel takes them: one argument. Rows are dense, so that a row's width is its stride."""

    n: Tensor
    tokens: Tensor
    limit: Tensor
    stop: Tensor
    done: Tensor
    drafts: Tensor
    table: Tensor
    tokens_width: int
    drafts_width: int
    table_width: int


class PassArgs(NamedTuple):
    """`PassRows` as a kernel takes them."""

    ids: Tensor
    position: Tensor
    kv_slot: Tensor
    kv_len: Tensor


@dataclass(kw_only=True, slots=True, eq=False)
class Trees:
    """The draft tree of each slot. Parents precede their children; the token of node i > 0 is drafts_SK[s, i - 1]."""

    parent_SD: Tensor
    """int32; -1 for the root, -2 for a node that does not exist (its draft is -1)."""
    depth_SD: Tensor
    """int32, edges from the root; 0 for a node that does not exist."""
    mask_SDD: Tensor
    """bool: row i sees node j, that is its ancestors and itself."""


@dataclass(kw_only=True, slots=True, eq=False)
class Slots:
    """What stays on the device between rounds, for each request slot."""

    n_S: Tensor
    """int32, tokens with target KV."""
    tokens_SL: Tensor
    """int64, prompt and output; tokens_SL[s, n] is the pending token: sampled, without KV yet."""
    limit_S: Tensor
    """int32, most tokens, prompt included."""
    stop_SE: Tensor
    """int64, padded with -1."""
    done_S: Tensor
    """int32: RUNNING, STOPPED or LENGTH (commit.py)."""
    drafts_SK: Tensor
    """int64, -1 = no draft."""
    block_table_SP: Tensor
    """int32. The key of position p lies in page block_table_SP[s, p // page_size], at offset p % page_size."""
    page_size: int
    tree: Trees | None = None

    @property
    def args(self) -> SlotArgs:
        tokens_SL, drafts_SK, table_SP = self.tokens_SL, self.drafts_SK, self.block_table_SP
        assert all(t.is_contiguous() for t in (tokens_SL, drafts_SK, table_SP, self.stop_SE)), "rows must be dense"
        widths = (tokens_SL.shape[1], drafts_SK.shape[1], table_SP.shape[1])
        return SlotArgs(self.n_S, tokens_SL, self.limit_S, self.stop_SE, self.done_S, drafts_SK, table_SP, *widths)

    def write_key_slots(self, slot_T: Tensor, at_T: Tensor, kv_slot_T: Tensor) -> None:
        """Fills the int64 key slots (page * page_size + offset) of positions; beyond the table: in the dummy page 0."""
        page_T = at_T // self.page_size
        beyond_T = page_T >= self.block_table_SP.shape[1]
        page_T.masked_fill_(beyond_T, 0)
        entry_T = self.block_table_SP[slot_T, page_T].long()
        entry_T.masked_fill_(beyond_T, 0)
        torch.mul(entry_T, self.page_size, out=kv_slot_T)
        kv_slot_T += at_T % self.page_size


@dataclass(kw_only=True, slots=True, eq=False)
class PassRows:
    """The rows of one forward pass, as kernels fill them in."""

    ids_T: Tensor
    """int64."""
    position_T: Tensor
    """int64, rotary positions."""
    kv_slot_T: Tensor
    """int64, key slots counted from the start of the cache."""
    kv_len_B: Tensor
    """int32, keys of each request, those of this pass included."""

    @classmethod
    def new(cls, num_rows: int, num_requests: int, device: torch.device, *, kv_len: int = 0) -> PassRows:
        """Harmless values: rows of token 0 at position 0 of the dummy page."""
        ids_T, position_T, kv_slot_T = (torch.zeros(num_rows, dtype=torch.int64, device=device) for _ in range(3))
        kv_len_B = torch.full((num_requests,), kv_len, dtype=torch.int32, device=device)
        return PassRows(ids_T=ids_T, position_T=position_T, kv_slot_T=kv_slot_T, kv_len_B=kv_len_B)

    @property
    def args(self) -> PassArgs:
        return PassArgs(self.ids_T, self.position_T, self.kv_slot_T, self.kv_len_B)

    @property
    def is_cuda(self) -> bool:
        return self.ids_T.is_cuda


@dataclass(kw_only=True, slots=True, eq=False)
class Rows(PassRows):
    """The rows of a step: whose they are (the layout, written by the engine) and the target's pass over them."""

    slot_B: Tensor
    """int64."""
    row_req_T: Tensor
    """int64, index into B."""
    row_off_T: Tensor
    """int32, row within its request."""
    num_drafts_B: Tensor
    """int32: K; 0 on a prompt's last chunk; -1 on an earlier chunk."""
    q_len_B: Tensor
    """int32, rows of each request."""
    base_row_B: Tensor
    """int64: the request's first row in the drafter's first pass; a prompt chunk's last."""
    block_table_BP: Tensor
    """int32, filled in like the pass."""
    tree_mask_BDD: Tensor | None = None
    """bool, of the decodes: which own rows a row sees; None: causal."""


@dataclass(kw_only=True, slots=True, eq=False)
class Outcome:
    """What acceptance reports of a step."""

    status_BX: Tensor
    """int32: accepted drafts, committed tokens, done, the new n, drafts offered, how deep they reached, then tokens."""
    sample_row_B: Tensor
    """int64: the row of its first pass that the drafter continues from."""
    path_BW: Tensor | None = None
    """int64, of trees: the path's node of each depth, 0 first; behind the last accepted node it is repeated."""
    logprobs_BWN: Tensor | None = None
    """fp32, where they are asked for: log-probabilities of the tokens beside it in the status (core/logprobs.py)."""
