"""What the two state updates launch: one kernel an operation, or many small ones; neither waits for a value."""

from copy import deepcopy

import pytest
import torch
from kernels.operations import counted_operations
from kernels.slots import assert_same_bits, poisoned, poisoned_outcome, poisoned_pass, tensors
from kernels.test_state_update import OPERATIONS, random_round

from specbench.kernels import sample, triton_support
from specbench.kernels.buffers import Rows, Slots
from specbench.kernels.state_update import StateUpdate
from specbench.kernels.torch_update import TorchStateUpdate


def _one_pass(slots: Slots, rows: Rows) -> tuple:
    device, num_rows = slots.n_S.device, len(rows.row_req_T) + 8
    cu_q_B1 = torch.nn.functional.pad(rows.q_len_B, (1, 0)).cumsum(0).int()
    outcome, source = poisoned_outcome(8, 5, device), poisoned(num_rows, dtype=torch.int64, device=device)
    rows.position_T.zero_()
    return poisoned_pass(num_rows, 8, device), source, rows, cu_q_B1, outcome, slots, 1


def _arguments(slots: Slots, rows: Rows, tokens: dict) -> dict[str, tuple]:
    """Arguments of every operation on one random round."""
    device = slots.n_S.device
    return {
        "prepare_rows": (rows, slots),
        "accept_chain": (tokens["sampled_BQ"], rows, slots, poisoned_outcome(8, 5, device), None),
        "draft_first_ids": (rows.slot_B, rows.row_req_T, rows.position_T, slots.tokens_SL, rows.ids_T),
        "draft_next_rows": (poisoned_pass(8, 8, device), rows.slot_B, slots, 2),
        "draft_pair_rows": (poisoned_pass(16, 8, device), rows.slot_B, slots),
        "draft_one_pass_rows": _one_pass(slots, rows),
        "store_draft": (torch.zeros(8, 320, device=device), None, rows.slot_B, 1, slots.drafts_SK),
    }


def _run(update, slots: Slots, rows: Rows, tokens: dict) -> None:
    for name, args in _arguments(slots, rows, tokens).items():
        getattr(update, name)(*args)


def test_the_torch_update_is_many_launches_and_reads_nothing_back():
    device = torch.device("cpu")
    update = TorchStateUpdate()
    least = dict(
        prepare_rows=20,
        accept_chain=50,
        draft_first_ids=5,
        draft_next_rows=15,
        draft_pair_rows=15,
        store_draft=3,
        draft_one_pass_rows=30,
    )
    for name, args in _arguments(*random_round(1, 4, device, torch.int32)).items():
        names = counted_operations(lambda name=name, args=args: getattr(update, name)(*args))
        assert len(names) >= least[name], (name, names)


def test_the_fused_update_is_one_kernel_each(monkeypatch):
    """On a GPU each operation is its Triton launcher, and that launches once; only the argmax of a draft takes two."""
    device = torch.device("cpu")
    launched: list[str] = []

    def counting(module, kernel):
        original = getattr(module, kernel)

        class Counted:
            def __getitem__(self, grid):
                launched.append(kernel)
                return original[grid]

        monkeypatch.setattr(module, kernel, Counted())

    counting(sample, "_argmax_parts_kernel")
    for module, name in OPERATIONS:
        counting(module, f"_{name}_kernel")
    monkeypatch.setattr(triton_support, "use_triton", lambda operand: True)
    _run(StateUpdate(), *random_round(1, 4, device, torch.int32))
    assert sorted(launched) == sorted(["_argmax_parts_kernel", *(f"_{name}_kernel" for _, name in OPERATIONS)])


@pytest.mark.gpu
def test_the_torch_update_replays_from_a_cuda_graph():
    device = torch.device("cuda")
    slots, rows, tokens = random_round(1, 4, device, torch.int32)
    expected, before = deepcopy(slots), deepcopy(slots)
    _run(StateUpdate(), expected, rows, tokens)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        _run(TorchStateUpdate(), deepcopy(slots), rows, tokens)  # warm-up, as before any capture
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(graph):
        _run(TorchStateUpdate(), slots, rows, tokens)
    for name, tensor in tensors(slots).items():
        tensor.copy_(getattr(before, name))
    graph.replay()
    torch.cuda.synchronize()
    assert_same_bits(slots, expected)
