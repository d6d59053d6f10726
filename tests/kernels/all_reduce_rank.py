"""One rank of a group of processes that sum rows in memory which all of them map: FOLDER RANK DTYPE.

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

NUM_RANKS, HIDDEN, EPS = 2, 96, 1e-5
SHAPE = (2, NUM_RANKS, 4, 128)  # of an inbox, smaller than the engine's
CALLS = (3, 1, 1, 2, 3, 3, 1, 0, 2)  # rows of each; the even ones have residual and norm


def parts_of(call: int, dtype: torch.dtype) -> list[Tensor]:
    """What each rank brings, then the residual, the same on all, and the norm's weight."""
    generator = torch.Generator().manual_seed(call)
    shapes = [(CALLS[call], HIDDEN)] * (NUM_RANKS + 1) + [(HIDDEN,)]
    parts = [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]
    if call == 1:  # what an inbox holds while nothing has arrived
        parts[0].view(Inbox.word_type(dtype))[0, 5] = EMPTY
    return parts


def wait_for_ranks(folder: Path, rank: int) -> None:
    (folder / f"ready-{rank}").touch()
    while not all((folder / f"ready-{other}").exists() for other in range(NUM_RANKS)):
        time.sleep(0.001)


def main(folder: Path, rank: int, dtype: torch.dtype) -> None:
    size = math.prod(SHAPE)
    words = [
        torch.from_file(str(folder / f"inbox-{other}"), shared=True, size=size, dtype=Inbox.word_type(dtype))
        for other in range(NUM_RANKS)
    ]
    inbox = Inbox.over(words[rank].view(SHAPE), [each.data_ptr() for each in words], rank)
    wait_for_ranks(folder, rank)
    results = []
    for call in range(len(CALLS)):
        *parts, residual, weight = parts_of(call, dtype)
        if call % 2:
            results.append((all_reduce_rows(parts[rank], inbox), residual))
        else:
            results.append((all_reduce_add_rms_norm(parts[rank], inbox, residual, weight, EPS), residual))
    torch.save((results, bool((inbox.words == EMPTY).all())), folder / f"results-{rank}.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), getattr(torch, sys.argv[3]))
