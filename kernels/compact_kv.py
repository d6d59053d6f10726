"""Keys and values of an accepted tree path, moved together behind the request's older ones, in all layers at once.

Legend: L layers, P pages, N positions of a page, H KV heads, D head dimension, B requests, T pages of a request's
table, W = tree depth + 1 nodes of a path with its root, X status columns.
Verification stores node i at position n + i; the next round reads the path's node of depth j at n + j.
"""

import torch
from torch import Tensor

from specbench.kernels.commit import ACCEPTED, COMMITTED, NEW_N, NUM_STATUS_COLUMNS
from specbench.kernels.triton_support import dispatch, tl, triton

_MAX_ELEMENTS = 8192  # of keys that one program holds at a time, over the nodes of the path


def compact_kv_ref(
    k_LPNHD: Tensor, v_LPNHD: Tensor, path_BW: Tensor, status_BX: Tensor, block_table_BT: Tensor
) -> None:
    """Moves the entry at position n + path_BW[b, j] to n + j, for j = 1 .. a of each request.

    a and n (before the round: the new n less the committed count) are read from the round's status block, so that
    frozen slots and prompt chunks (a = 0) move nothing. Sources are never before their destinations and both ascend:
    they may overlap.
    """
    width, page_size = path_BW.shape[1], k_LPNHD.shape[2]
    accepted_B1 = status_BX[:, ACCEPTED].unsqueeze(1)
    n_B1 = (status_BX[:, NEW_N] - status_BX[:, COMMITTED]).long().unsqueeze(1)
    step_W = torch.arange(width, device=path_BW.device)
    # Steps behind the accepted ones stay where they are: onto themselves, but not onto a node that moves.
    moves_BW = (step_W > 0) & (step_W <= accepted_B1) & (path_BW != step_W)
    request, step = moves_BW.nonzero(as_tuple=True)

    def slots(position: Tensor) -> tuple[Tensor, Tensor]:
        return block_table_BT[request, position // page_size].long(), position % page_size

    source = slots(n_B1[request, 0] + path_BW[request, step])
    destination = slots(n_B1[request, 0] + step)
    for cache in (k_LPNHD, v_LPNHD):
        cache[(slice(None), *destination)] = cache[(slice(None), *source)]


def compact_kv_triton(
    k_LPNHD: Tensor, v_LPNHD: Tensor, path_BW: Tensor, status_BX: Tensor, block_table_BT: Tensor
) -> None:
    num_layers, _, page_size, num_heads, head_dim = k_LPNHD.shape
    num_requests, width = path_BW.shape
    row = num_heads * head_dim
    assert k_LPNHD.stride() == v_LPNHD.stride() and k_LPNHD.stride()[3:] == (head_dim, 1), "keys must lie densely"
    assert status_BX.shape[1] == NUM_STATUS_COLUMNS + width, "status is [B, 6 + W]"
    assert all(x.is_contiguous() for x in (path_BW, status_BX, block_table_BT)), "rows must be dense"
    if num_requests == 0:
        return
    block_w = triton.next_power_of_2(width)
    block_c = min(triton.next_power_of_2(row), max(_MAX_ELEMENTS // block_w, 16))
    _compact_kv_kernel[(triton.cdiv(row, block_c), num_requests, num_layers)](
        k_LPNHD,
        v_LPNHD,
        path_BW,
        status_BX,
        block_table_BT,
        block_table_BT.shape[1],
        k_LPNHD.stride()[:3],
        W=width,
        ROW=row,
        PAGE=page_size,
        BLOCK_W=block_w,
        BLOCK_C=block_c,
        num_warps=4,
    )


compact_kv = dispatch(compact_kv_ref, compact_kv_triton)


@triton.jit
def _compact_kv_kernel(
    k_ptr,
    v_ptr,
    path_ptr,
    status_ptr,
    table_ptr,
    table_width,
    strides,
    W: tl.constexpr,
    ROW: tl.constexpr,
    PAGE: tl.constexpr,
    BLOCK_W: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    """One layer and request, and BLOCK_C of the elements of a position: all of its path is held before any is written.

    Programs share no element, so a barrier inside the program is all the order that overlapping moves need.
    """
    stride_layer, stride_page, stride_position = strides
    first = tl.program_id(0) * BLOCK_C
    request = tl.program_id(1).to(tl.int64)
    layer = tl.program_id(2).to(tl.int64)
    status_at = status_ptr + request * (6 + W)
    accepted = tl.load(status_at)
    step = tl.arange(0, BLOCK_W)
    node = tl.load(path_ptr + request * W + step, mask=step < W, other=0).to(tl.int32)
    moves = (step > 0) & (step <= accepted) & (step < W) & (node != step)
    if tl.max(moves.to(tl.int32), axis=0) > 0:
        n = tl.load(status_at + 3) - tl.load(status_at + 1)
        row_ptr = table_ptr + request * table_width
        source = _offsets(row_ptr, n + node, table_width, stride_page, stride_position, PAGE, moves)
        target = _offsets(row_ptr, n + step, table_width, stride_page, stride_position, PAGE, moves)
        element = first + tl.arange(0, BLOCK_C)
        inside = moves[:, None] & (element < ROW)[None, :]
        source = layer * stride_layer + source[:, None] + element[None, :]
        target = layer * stride_layer + target[:, None] + element[None, :]
        keys = tl.load(k_ptr + source, mask=inside, other=0.0)
        values = tl.load(v_ptr + source, mask=inside, other=0.0)
        tl.debug_barrier()
        tl.store(k_ptr + target, keys, mask=inside)
        tl.store(v_ptr + target, values, mask=inside)


@triton.jit
def _offsets(row_ptr, position, table_width, stride_page, stride_position, PAGE: tl.constexpr, mask):
    """The offset of each position's key within a layer, int64; outside the table: in the dummy page 0."""
    index = position // PAGE
    page = tl.load(row_ptr + index, mask=mask & (index < table_width), other=0).to(tl.int64)
    return page * stride_page + (position % PAGE) * stride_position
