"""Which EAGLE-3 head a strategy gets: a directory, or random weights for runs with forced acceptance."""

from __future__ import annotations

from pathlib import Path

from .eagle3 import Eagle3Head
from .llama import LlamaModel
from .loader import dummy_eagle3, load_eagle3
from .shapes import SHAPES

_OTHER_DRAFT_VOCAB = 32000  # what most published heads use


def _random_draft_vocab(target: LlamaModel) -> int:
    for shape in SHAPES.values():
        if (
            shape.config.vocab_size == target.config.vocab_size
            and shape.config.hidden_size == target.config.hidden_size
        ):
            return shape.draft_vocab_size
    return min(_OTHER_DRAFT_VOCAB, target.config.vocab_size)


def make_head(head: str, target: LlamaModel, strategy: str) -> Eagle3Head:
    """`head` is a directory or `random`. ValueError says what is missing or does not fit."""
    if head == "random":
        return dummy_eagle3(target, _random_draft_vocab(target))
    if not head:
        raise ValueError(
            f"{strategy}: no head for this model; give {strategy}:head=DIR (an EAGLE-3 checkpoint), or head=random "
            "with acceptance=synthetic:... to measure machine speed"
        )
    if not Path(head).is_dir():
        raise ValueError(f"{strategy}: head={head!r} is not a directory; give the folder of an EAGLE-3 checkpoint")
    return load_eagle3(Path(head), target)
