"""The draft vocabulary: the target's tokens that its responses use most, and the two maps of the published format."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .shards import Sequences


@dataclass(frozen=True, slots=True)
class DraftVocab:
    """Ascending target ids [Vd] that the head can draft, and the share of response tokens among them."""

    target_id_Vd: Tensor
    vocab_size: int
    coverage: float

    @property
    def d2t_Vd(self) -> Tensor:
        """int64 offsets: target id = draft id + d2t[draft id] (SafeAILab/EAGLE's convention)."""
        return self.target_id_Vd - torch.arange(len(self.target_id_Vd))

    @property
    def t2d_V(self) -> Tensor:
        """bool: whether a target id is in the draft vocabulary."""
        return torch.zeros(self.vocab_size, dtype=torch.bool).index_fill_(0, self.target_id_Vd, True)

    @property
    def draft_id_V(self) -> Tensor:
        """int64: the draft id of a target id, -1 if it has none."""
        ids = torch.full((self.vocab_size,), -1)
        ids[self.target_id_Vd] = torch.arange(len(self.target_id_Vd))
        return ids


def most_frequent(sequences: Sequences, size: int, vocab_size: int) -> DraftVocab:
    """The `size` most frequent response tokens; ties, and tokens never seen, by ascending id."""
    if size > vocab_size:
        raise ValueError(f"draft_vocab_size: {size} is not allowed; the target has {vocab_size} tokens")
    counts = np.bincount(sequences.token_T[sequences.is_response_T], minlength=vocab_size)
    chosen = np.sort(np.argsort(-counts, kind="stable")[:size])
    coverage = float(counts[chosen].sum() / max(counts.sum(), 1))
    return DraftVocab(torch.from_numpy(chosen.astype(np.int64)), vocab_size, coverage)
