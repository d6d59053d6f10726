"""Conformance 51 for trees: the fused kernels and the sequence of torch operations write the same bits."""

from types import SimpleNamespace

import pytest
import torch
from kernels.operations import counted_operations
from kernels.slots import poisoned_outcome, random_slots, rows_of
from kernels.test_accept_tree import likely_samples
from kernels.test_state_update import run_on_both
from kernels.trees import random_trees

from specbench.kernels import accept_tree, tree_rows
from specbench.kernels.buffers import Rows, Slots
from specbench.kernels.state_update import StateUpdate
from specbench.kernels.torch_update import TorchStateUpdate

OPERATIONS = ((tree_rows, "prepare_tree_rows"), (accept_tree, "accept_tree"))
UPDATES = {
    "triton": SimpleNamespace(**{name: getattr(module, f"{name}_triton") for module, name in OPERATIONS}),
    "fused": StateUpdate(),
}


@pytest.fixture(params=UPDATES)
def fused(request):
    return UPDATES[request.param]


def random_round(seed: int, size: int, depth: int, device: torch.device) -> tuple[Slots, Rows, dict]:
    """Decodes first: five in random slots, one of them done, and two padding rows; then a last and an earlier chunk."""
    generator = torch.Generator().manual_seed(seed)
    slots = random_slots(seed=seed, depth=size - 1, device=device, num_slots=9, length=size + 40)
    slots.tree = random_trees(seed=seed, num_slots=9, size=size, depth=depth, drafts_SK=slots.drafts_SK)
    order = torch.randperm(8, generator=generator).tolist()
    slot_of = [*order[:5], 8, 8, *order[5:7]]
    slots.done_S[slot_of[2]] = 1
    rows = rows_of(slots, slot_of, [size] * 7 + [size + 3, 2], [size - 1] * 7 + [0, -1])
    assert rows.tree_mask_BDD is not None
    rows.tree_mask_BDD.fill_(True)
    tokens = dict(
        sampled_BD=likely_samples(slots, slots.tree, slot_of, size, generator).to(device),
        forced_B=torch.randint(0, depth + 2, (9,), generator=generator).to(device, torch.int32),
    )
    return slots, rows, tokens


@pytest.mark.parametrize(("size", "depth"), [(2, 1), (8, 3), (13, 5)])
def test_c51_rows_of_trees(fused, size, depth, device):
    for seed in range(6):
        slots, rows, _ = random_round(seed, size, depth, device)
        both = (fused, TorchStateUpdate())
        run_on_both(both, slots, "prepare_tree_rows", lambda slots, rows: (rows, slots), rows)


@pytest.mark.parametrize("is_forced", [False, True])
@pytest.mark.parametrize(("size", "depth"), [(2, 1), (8, 3), (13, 5)])
def test_c51_acceptance_of_trees(fused, size, depth, is_forced, device):
    for seed in range(12):
        slots, rows, tokens = random_round(seed, size, depth, device)
        sampled_BD, forced_B = tokens["sampled_BD"], tokens["forced_B"] if is_forced else None
        run_on_both(
            (fused, TorchStateUpdate()),
            slots,
            "accept_tree",
            lambda slots, outcome, rows=rows, y=sampled_BD, forced=forced_B: (y, rows, slots, outcome, forced),
            poisoned_outcome(9, depth + 1, device, of_trees=True),
        )


def test_the_torch_update_of_trees_is_many_launches_and_reads_nothing_back():
    device, update = torch.device("cpu"), TorchStateUpdate()
    slots, rows, tokens = random_round(1, 8, 3, device)
    accept = (tokens["sampled_BD"], rows, slots, poisoned_outcome(9, 4, device, of_trees=True), None)
    for name, args, least in (("prepare_tree_rows", (rows, slots), 28), ("accept_tree", accept, 80)):
        names = counted_operations(lambda name=name, args=args: getattr(update, name)(*args))
        assert len(names) >= least, (name, len(names))
