import numpy as np
import pytest
import torch

from specbench.kernels.store_draft import store_draft, store_draft_ref, store_draft_triton


@pytest.mark.parametrize("vocab", [5, 320, 4099])
@pytest.mark.parametrize("is_mapped", [False, True])
@pytest.mark.parametrize("op", [store_draft_ref, store_draft_triton, store_draft])
def test_writes_one_column_of_its_slots(op, is_mapped, vocab, device):
    generator = torch.Generator().manual_seed(vocab)
    logits = torch.randn(4, vocab, generator=generator).to(device, torch.bfloat16)
    logits[1, 0] = float("nan")
    d2t = torch.randint(0, 100_000, (vocab,), generator=generator).to(device) if is_mapped else None
    slot_of = [5, 0, 2, 6]
    drafts = torch.full((7, 3), -77, device=device)
    op(logits, d2t, torch.tensor(slot_of, device=device), 2, drafts)
    expected = torch.full((7, 3), -77)
    for row, slot in enumerate(slot_of):
        best = int(np.nanargmax(logits[row].float().cpu().numpy()))
        expected[slot, 1] = best + (int(d2t[best]) if d2t is not None else 0)
    assert drafts.tolist() == expected.tolist()


def test_refuses_a_step_behind_the_last_draft(device):
    with pytest.raises(AssertionError, match="step 4"):
        store_draft(torch.zeros(1, 4, device=device), None, torch.zeros(1), 4, torch.zeros(2, 3))
