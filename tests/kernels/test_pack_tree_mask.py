"""Tree masks as bits, against a look at every bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from kernels.paged_steps import Case, bit, make_step

from specbench.kernels.attention.pack_tree_mask import (
    PackedTreeMask,
    pack_tree_mask,
    pack_tree_mask_ref,
    pack_tree_mask_triton,
)


@pytest.mark.parametrize(("q", "num_masked"), [(1, 1), (3, 3), (5, 13), (9, 9), (33, 40)])
@pytest.mark.parametrize("op", [pack_tree_mask_ref, pack_tree_mask_triton, pack_tree_mask])
def test_bits_of_all_keys(op, q, num_masked, device):
    torch.manual_seed(q)
    mask_BQM = torch.rand(3, q, num_masked) < 0.5
    kv_lens = [num_masked, num_masked + 7, num_masked + 300]
    bits_BN = torch.full((3, q * max(kv_lens) // 8 + 4), 0xA5, dtype=torch.uint8)
    op(*(moved := [x.to(device) for x in (mask_BQM, torch.tensor(kv_lens, dtype=torch.int32), bits_BN)]))
    for b, kv_len in enumerate(kv_lens):
        packed = moved[2][b].tolist()
        for row, key in np.ndindex(q, kv_len):
            own = key - (kv_len - num_masked)
            assert bit(packed, row * kv_len + key) == (own < 0 or bool(mask_BQM[b, row, own])), (b, row, key)
        assert set(packed[-(-q * kv_len // 8) :]) == {0xA5}, "bytes behind the request's bits were written"


@pytest.mark.parametrize(("q", "row_bits"), [(1, 32), (8, 32), (33, 64), (64, 64)])
@pytest.mark.parametrize("op", [pack_tree_mask_ref, pack_tree_mask_triton])
def test_bits_of_masked_keys_in_words(op, q, row_bits, device):
    torch.manual_seed(q)
    mask_BQM = torch.rand(2, q, q) < 0.5
    bits_BN = torch.full((2, q * row_bits // 8), 0xA5, dtype=torch.uint8, device=device)
    op(mask_BQM.to(device), torch.tensor([q, q + 50], dtype=torch.int32, device=device), bits_BN, row_bits)
    for b in range(2):
        packed = bits_BN[b].tolist()
        for row, j in np.ndindex(q, row_bits):
            assert bit(packed, row * row_bits + j) == (j < q and bool(mask_BQM[b, row, j]))


def test_only_the_first_layer_packs():
    step = make_step(Case(lengths=((3, 20), (3, 9)), num_masked=3, head_dim=16), torch.device("cpu"))
    meta, mask_BQM = step.meta, step.meta.tree_mask_BQM
    assert mask_BQM is not None
    packed = PackedTreeMask(meta, over_all_keys=False)
    mask_BQM.fill_(True)
    packed.update(meta, step.k_cache)
    assert packed.bits_BN.view(torch.int32).tolist() == [[7, 7, 7]] * 2
    mask_BQM.fill_(False)
    packed.update(meta, step.v_cache)  # another layer of the same pass
    assert packed.bits_BN.view(torch.int32).tolist() == [[7, 7, 7]] * 2
    packed.update(meta, step.k_cache)  # the next pass
    assert not packed.bits_BN.any()
    packed.forget_layers()
    mask_BQM.fill_(True)
    packed.update(meta, step.v_cache)
    assert packed.bits_BN.any()
