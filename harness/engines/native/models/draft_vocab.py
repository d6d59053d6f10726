"""The reduced vocabulary of a head: `d2t`, what to add to a draft id to get the target's."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from specbench.harness.engines.native.models.weights import CheckpointWeights


def read_d2t(source: CheckpointWeights, draft_vocab: int, vocab: int, head_dir: Path) -> Tensor | None:
    """int64 [Vd]; None if draft ids are the target's. ValueError if the map is missing or wrong."""
    if not source.has("d2t"):
        if draft_vocab == vocab:
            return None
        raise ValueError(f"head: {head_dir} has draft_vocab_size {draft_vocab} < vocab_size {vocab} but no tensor d2t")
    d2t = source.raw("d2t")
    if d2t.dtype not in (torch.int32, torch.int64) or d2t.dim() != 1:
        raise ValueError(
            f"head: d2t of {head_dir} is {d2t.dtype} of shape {tuple(d2t.shape)}; allowed: a list of int64 or int32"
        )
    d2t = d2t.to(torch.int64)
    ids = d2t + torch.arange(d2t.numel())
    if d2t.numel() != draft_vocab or int(ids.min()) < 0 or int(ids.max()) >= vocab:
        raise ValueError(f"head: d2t of {head_dir} must map {draft_vocab} draft ids into 0..{vocab - 1}")
    if draft_vocab == vocab and not d2t.any():
        return None
    return d2t.to(source.device)


def check_drawable(d2t: Tensor | None, head_dir: Path, strategy: str) -> None:
    """ValueError if two draft ids stand for one target id: a draft that is drawn is accepted by its probability, which
    is the sum of both then. A draft that is only the likeliest is compared with the target's token, whatever its id."""
    if d2t is None:
        return
    ids, count = (d2t.cpu() + torch.arange(d2t.numel())).unique(return_counts=True)
    if len(twice := ids[count > 1]):
        raise ValueError(
            f"{strategy}: draft_sample_method=probabilistic is not allowed with {head_dir}, whose d2t maps "
            f"{int(count.max())} draft ids to target id {int(ids[count.argmax()])} ({len(twice)} such ids); allowed: "
            "draft_sample_method=greedy, or a head whose d2t maps each draft id to another target id"
        )
