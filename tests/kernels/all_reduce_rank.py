"""One rank of a group of processes that sum rows in memory which all of them map: FOLDER NUM_RANKS RANK DTYPE.

Triton's interpreter runs the kernel. What it gave goes to FOLDER/results-RANK.pt: result and residual of each call, and
whether the inbox was empty at the end.
"""

import math
import sys
import time
from pathlib import Path

import torch
from torch import Tensor

from specbench.kernels.all_reduce_norm import EMPTY, Inbox, all_reduce_add_rms_norm, all_reduce_rows

HIDDEN, EPS = 96, 1e-5
CALLS = (3, 1, 1, 2, 3, 3, 1, 0, 2)  # rows of each; the even ones have residual and norm


def inbox_shape(num_ranks: int) -> tuple[int, int, int, int]:
    """Smaller than the engine's."""
    return 2, num_ranks, 4, 128


def parts_of(call: int, num_ranks: int, dtype: torch.dtype) -> list[Tensor]:
    """What each rank brings, then the residual, the same on all, and the norm's weight."""
    generator = torch.Generator().manual_seed(call)
    shapes = [(CALLS[call], HIDDEN)] * (num_ranks + 1) + [(HIDDEN,)]
    parts = [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]
    if call == 1:  # what an inbox holds while nothing has arrived
        parts[0].view(Inbox.word_type(dtype))[0, 5] = EMPTY
    return parts


def wait_for_ranks(folder: Path, num_ranks: int, rank: int) -> None:
    (folder / f"ready-{rank}").touch()
    while not all((folder / f"ready-{other}").exists() for other in range(num_ranks)):
        time.sleep(0.001)


def main(folder: Path, num_ranks: int, rank: int, dtype: torch.dtype) -> None:
    shape = inbox_shape(num_ranks)
    words = [
        torch.from_file(
            str(folder / f"inbox-{other}"), shared=True, size=math.prod(shape), dtype=Inbox.word_type(dtype)
        )
        for other in range(num_ranks)
    ]
    addresses = [each.data_ptr() for each in words]
    two_rows = 2 * HIDDEN * dtype.itemsize
    inbox = Inbox.over(words[rank].view(shape), addresses, rank, owned_from=two_rows)
    wait_for_ranks(folder, num_ranks, rank)
    results = []
    for call in range(len(CALLS)):
        *parts, residual, weight = parts_of(call, num_ranks, dtype)
        if call % 2:
            results.append((all_reduce_rows(parts[rank], inbox), residual))
        else:
            results.append((all_reduce_add_rms_norm(parts[rank], inbox, residual, weight, EPS), residual))
    torch.save((results, bool((inbox.words == EMPTY).all())), folder / f"results-{rank}.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), getattr(torch, sys.argv[4]))
