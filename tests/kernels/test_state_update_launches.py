"""What the two state updates launch: one kernel an operation, or many small ones; neither waits for a value."""

import pytest
import torch
from kernels.operations import counted_operations
from kernels.slots import Slots
from kernels.test_state_update import OPERATIONS, poisoned, random_round

from specbench.kernels import sample
from specbench.kernels.state_update import FusedStateUpdate, TorchStateUpdate


def _arguments(slots: Slots, i: dict, device: torch.device) -> dict[str, tuple]:
    """Arguments of every operation on one random round."""
    rows, pages = len(i["row_req_T"]), slots.block_table_SP.shape[1]
    ids, at, kv = (poisoned(rows, dtype=torch.int64, device=device) for _ in range(3))
    kv_len, table = poisoned(8, dtype=torch.int32, device=device), poisoned(8, pages, dtype=torch.int32, device=device)
    s, one = slots, [poisoned(8, dtype=torch.int64, device=device) for _ in range(3)]
    pair = [poisoned(16, dtype=torch.int64, device=device) for _ in range(3)]
    status, sample_row = (
        poisoned(8, 11, dtype=torch.int32, device=device),
        poisoned(8, dtype=torch.int64, device=device),
    )
    layout = [i[name] for name in ("slot_B", "row_req_T", "row_off_T", "num_drafts_B", "q_len_B")]
    return {
        "prepare_rows": (
            *(*layout, s.n_S, s.tokens_SL, s.drafts_SK, s.block_table_SP, s.page_size),
            *(ids, at, kv, kv_len, table),
        ),
        "accept_chain": (
            *(i["sampled_BQ"], i["slot_B"], i["num_drafts_B"], i["base_row_B"], None),
            *(s.n_S, s.tokens_SL, s.limit_S, s.stop_SE, s.done_S, s.drafts_SK, status, sample_row),
        ),
        "draft_first_ids": (i["slot_B"], i["row_req_T"], at, s.tokens_SL, ids),
        "draft_next_rows": (2, i["slot_B"], s.n_S, s.drafts_SK, s.block_table_SP, s.page_size, *one, kv_len),
        "draft_pair_rows": (i["slot_B"], s.n_S, s.tokens_SL, s.block_table_SP, s.page_size, *pair, kv_len),
        "store_draft": (torch.zeros(8, 320, device=device), None, i["slot_B"], 1, s.drafts_SK),
    }


def _run(update, slots: Slots, i: dict, device: torch.device) -> None:
    for name, args in _arguments(slots, i, device).items():
        getattr(update, name)(*args)


def test_the_torch_update_is_many_launches_and_reads_nothing_back():
    device = torch.device("cpu")
    update = TorchStateUpdate()
    least = dict(
        prepare_rows=20, accept_chain=50, draft_first_ids=5, draft_next_rows=15, draft_pair_rows=15, store_draft=3
    )
    for name, args in _arguments(*random_round(1, 4, device, torch.int32), device).items():
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
        monkeypatch.setattr(module, "use_triton", lambda tensor: True)
    _run(FusedStateUpdate(), *random_round(1, 4, device, torch.int32), device)
    assert sorted(launched) == sorted(["_argmax_parts_kernel", *(f"_{name}_kernel" for _, name in OPERATIONS)])


@pytest.mark.gpu
def test_the_torch_update_replays_from_a_cuda_graph():
    device = torch.device("cuda")
    slots, i = random_round(1, 4, device, torch.int32)
    expected, before = slots.copy(), slots.copy()
    _run(FusedStateUpdate(), expected, i, device)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        _run(TorchStateUpdate(), slots.copy(), i, device)  # warm-up, as before any capture
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(graph):
        _run(TorchStateUpdate(), slots, i, device)
    for name in Slots.__slots__:
        if name != "page_size":
            getattr(slots, name).copy_(getattr(before, name))
    graph.replay()
    torch.cuda.synchronize()
    for name in Slots.__slots__:
        if name != "page_size":
            assert torch.equal(getattr(slots, name), getattr(expected, name)), name
