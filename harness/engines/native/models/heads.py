"""Which EAGLE head a strategy gets: a directory of either format, or random weights for runs with forced acceptance."""

from __future__ import annotations

from pathlib import Path

from specbench.harness.engines.native.models.config import read_config
from specbench.harness.engines.native.models.eagle1 import Eagle1Head
from specbench.harness.engines.native.models.eagle1_loader import dummy_eagle1, load_eagle1
from specbench.harness.engines.native.models.eagle3 import Eagle3Head
from specbench.harness.engines.native.models.eagle3_loader import dummy_eagle3, load_eagle3
from specbench.harness.engines.native.models.llama import LlamaModel
from specbench.harness.engines.native.models.shapes import SHAPES
from specbench.harness.engines.native.models.weights import checkpoint_shapes
from specbench.workloads.assets.shipped_heads import PREFIX, shipped_folder

_OTHER_DRAFT_VOCAB = 32000  # what most published heads use


def _random_draft_vocab(target: LlamaModel) -> int:
    for shape in SHAPES.values():
        if (
            shape.config.vocab_size == target.config.vocab_size
            and shape.config.hidden_size == target.config.hidden_size
        ):
            return shape.draft_vocab_size
    return min(_OTHER_DRAFT_VOCAB, target.config.vocab_size)


def is_eagle1(shapes: dict[str, tuple[int, ...]]) -> bool:
    """Told by tensors, since the configs look alike: EAGLE-1 has neither EAGLE-3's names nor its three features."""
    eagle3_only = any(name.startswith("midlayer.") or name.endswith("hidden_norm.weight") for name in shapes)
    fc = shapes.get("fc.weight", ())
    return not eagle3_only and len(fc) == 2 and fc[1] == 2 * fc[0]


def load_head(head_dir: Path, target: LlamaModel) -> Eagle1Head | Eagle3Head:
    """An EAGLE head in either published format. Raises ValueError naming what does not fit the target."""
    read_config(head_dir)  # a folder that is not a model is refused for that first
    if is_eagle1(checkpoint_shapes(head_dir)):
        return load_eagle1(head_dir, target)
    return load_eagle3(head_dir, target)


def make_head(head: str, target: LlamaModel, strategy: str) -> Eagle1Head | Eagle3Head:
    """`head`: a folder, `shipped:NAME`, `random` or `random-eagle1`. ValueError says what is missing or misfits."""
    if head == "random":
        return dummy_eagle3(target, _random_draft_vocab(target))
    if head == "random-eagle1":
        return dummy_eagle1(target)
    if head.startswith(PREFIX):
        return load_head(shipped_folder(head), target)
    if not head:
        raise ValueError(
            f"{strategy}: no head for this model; give {strategy}:head=DIR (an EAGLE-3 or EAGLE-1 checkpoint), or "
            "head=random (EAGLE-3) or random-eagle1 with acceptance=synthetic:... to measure machine speed"
        )
    if not Path(head).is_dir():
        raise ValueError(
            f"{strategy}: head={head!r} is not a directory; give the folder of an EAGLE-3 or EAGLE-1 checkpoint"
        )
    return load_head(Path(head), target)
