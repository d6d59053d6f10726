"""Conformance 51 for trees: the fused kernels and the sequence of torch operations write the same bits."""

from types import SimpleNamespace

import pytest
import torch
from kernels.operations import counted_operations
from kernels.slots import Slots, random_slots
from kernels.test_accept_tree import likely_samples
from kernels.test_state_update import Sides, poisoned
from kernels.trees import Trees, random_trees

from specbench.kernels import accept_tree, tree_rows
from specbench.kernels.state_update import FusedStateUpdate, TorchStateUpdate

OPERATIONS = ((tree_rows, "prepare_tree_rows"), (accept_tree, "accept_tree"))
UPDATES = {
    "ref": SimpleNamespace(**{name: getattr(module, f"{name}_ref") for module, name in OPERATIONS}),
    "triton": SimpleNamespace(**{name: getattr(module, f"{name}_triton") for module, name in OPERATIONS}),
    "fused": FusedStateUpdate(),
}


@pytest.fixture(params=UPDATES)
def fused(request):
    return UPDATES[request.param]


def random_round(seed: int, size: int, depth: int, device: torch.device) -> tuple[Slots, Trees, dict]:
    """Decodes first: five in random slots, one of them done, and two padding rows; then a last and an earlier chunk."""
    generator = torch.Generator().manual_seed(seed)
    slots = random_slots(seed=seed, depth=size - 1, device=device, num_slots=9, length=size + 40)
    trees = random_trees(seed=seed, num_slots=9, size=size, depth=depth, drafts_SK=slots.drafts_SK)
    order = torch.randperm(8, generator=generator).tolist()
    slot_of = [*order[:5], 8, 8, *order[5:7]]
    slots.done_S[slot_of[2]] = 1
    lengths = [size] * 7 + [size + 3, 2]
    rows = [(r, j) for r, q in enumerate(lengths) for j in range(q)]
    int32 = dict(dtype=torch.int32, device=device)
    inputs = dict(
        slot_B=torch.tensor(slot_of, device=device),
        row_req_T=torch.tensor([r for r, _ in rows], device=device),
        row_off_T=torch.tensor([j for _, j in rows], **int32),
        num_drafts_B=torch.tensor([size - 1] * 7 + [0, -1], **int32),
        q_len_B=torch.tensor(lengths, **int32),
        base_row_B=torch.arange(9, device=device) * 10,
        sampled_BD=likely_samples(slots, trees, slot_of, size, generator).to(device),
        forced_B=torch.randint(0, depth + 2, (9,), generator=generator).to(**int32),
    )
    return slots, trees, inputs


def row_arguments(i: dict, trees: Trees):
    layout = [i[name] for name in ("slot_B", "row_req_T", "row_off_T", "num_drafts_B", "q_len_B")]
    return lambda s, outs: (
        *(*layout, s.n_S, s.tokens_SL, s.drafts_SK, trees.depth_SD, trees.mask_SDD, s.block_table_SP, s.page_size),
        *outs,
    )


def row_outputs(i: dict, slots: Slots, size: int, device: torch.device) -> list[torch.Tensor]:
    rows, pages = len(i["row_req_T"]), slots.block_table_SP.shape[1]
    return [
        *(poisoned(rows, dtype=torch.int64, device=device) for _ in range(3)),
        poisoned(9, dtype=torch.int32, device=device),
        poisoned(9, pages, dtype=torch.int32, device=device),
        torch.ones(7, size, size, dtype=torch.bool, device=device),
    ]


def accept_arguments(i: dict, trees: Trees, is_forced: bool):
    given = [i[name] for name in ("sampled_BD", "slot_B", "num_drafts_B", "base_row_B")]
    return lambda s, outs: (
        *(*given, i["forced_B"] if is_forced else None),
        *(s.n_S, s.tokens_SL, s.limit_S, s.stop_SE, s.done_S, s.drafts_SK, trees.parent_SD, trees.depth_SD),
        *outs,
    )


def accept_outputs(depth: int, device: torch.device) -> list[torch.Tensor]:
    return [
        poisoned(9, 7 + depth, dtype=torch.int32, device=device),
        poisoned(9, dtype=torch.int64, device=device),
        poisoned(9, depth + 1, dtype=torch.int64, device=device),
    ]


@pytest.mark.parametrize(("size", "depth"), [(2, 1), (8, 3), (13, 5)])
def test_c51_rows_of_trees(fused, size, depth, device):
    for seed in range(6):
        slots, trees, i = random_round(seed, size, depth, device)
        outputs = row_outputs(i, slots, size, device)
        Sides(slots).run((fused, TorchStateUpdate()), "prepare_tree_rows", row_arguments(i, trees), outputs)


@pytest.mark.parametrize("is_forced", [False, True])
@pytest.mark.parametrize(("size", "depth"), [(2, 1), (8, 3), (13, 5)])
def test_c51_acceptance_of_trees(fused, size, depth, is_forced, device):
    for seed in range(12):
        slots, trees, i = random_round(seed, size, depth, device)
        arguments = accept_arguments(i, trees, is_forced)
        Sides(slots).run((fused, TorchStateUpdate()), "accept_tree", arguments, accept_outputs(depth, device))


def test_the_torch_update_of_trees_is_many_launches_and_reads_nothing_back():
    device, update = torch.device("cpu"), TorchStateUpdate()
    slots, trees, i = random_round(1, 8, 3, device)
    rows = row_arguments(i, trees)(slots, row_outputs(i, slots, 8, device))
    accept = accept_arguments(i, trees, False)(slots, accept_outputs(3, device))
    for name, args, least in (("prepare_tree_rows", rows, 28), ("accept_tree", accept, 80)):
        names = counted_operations(lambda name=name, args=args: getattr(update, name)(*args))
        assert len(names) >= least, (name, len(names))
