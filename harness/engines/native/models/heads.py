"""Which EAGLE head a strategy gets: a directory of either format, or random weights for runs with forced acceptance."""

from __future__ import annotations

from pathlib import Path

from specbench.harness.engines.native.models.config import read_raw
from specbench.harness.engines.native.models.draft_vocab import check_drawable
from specbench.harness.engines.native.models.eagle1 import Eagle1Head
from specbench.harness.engines.native.models.eagle1_loader import dummy_eagle1, load_eagle1
from specbench.harness.engines.native.models.eagle3 import Eagle3Head
from specbench.harness.engines.native.models.eagle3_loader import dummy_eagle3, load_eagle3
from specbench.harness.engines.native.models.head_config import read_eagle1_config, read_eagle3_config
from specbench.harness.engines.native.models.llama import LlamaModel
from specbench.harness.engines.native.models.shapes import SHAPES
from specbench.harness.engines.native.models.weights import checkpoint_shapes
from specbench.workloads.assets.cache import Progress
from specbench.workloads.assets.head_source import head_folder

_RANDOM = ("random", "random-eagle1")
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
    """Detected from tensors, since the configs look alike: EAGLE-1 has neither EAGLE-3's names nor its three
    features."""
    eagle3_only = any(name.startswith("midlayer.") or name.endswith("hidden_norm.weight") for name in shapes)
    fc = shapes.get("fc.weight", ())
    return not eagle3_only and len(fc) == 2 and fc[1] == 2 * fc[0]


def load_head(head_dir: Path, target: LlamaModel) -> Eagle1Head | Eagle3Head:
    """An EAGLE head in either published format. Raises ValueError naming what does not fit the target."""
    read_raw(head_dir)  # a folder that is not a model is refused for that first
    if is_eagle1(checkpoint_shapes(head_dir)):
        return load_eagle1(head_dir, target)
    return load_eagle3(head_dir, target)


def make_head(
    head: str, target: LlamaModel, strategy: str, one_pass: bool = False, draws: bool = False
) -> Eagle1Head | Eagle3Head:
    """`head`: a folder, a hub name, `shipped:NAME`, `random` or `random-eagle1`; `one_pass`: whether it drafts all
    tokens in one pass; `draws`: whether its drafts are drawn. ValueError naming what does not fit."""
    if head == "random":
        return dummy_eagle3(target, _random_draft_vocab(target), placeholder_id=0 if one_pass else None)
    if head == "random-eagle1" and one_pass:
        raise ValueError(f"{strategy}: head=random-eagle1 drafts one token a pass; allowed: random, or a trained head")
    if head == "random-eagle1":
        return dummy_eagle1(target)
    if not head:
        kinds, others = "an EAGLE-3 or EAGLE-1 checkpoint", "head=random (EAGLE-3) or random-eagle1"
        if one_pass:
            kinds, others = "an EAGLE-3 checkpoint for parallel drafting", "head=random"
        raise ValueError(
            f"{strategy}: no head for this model; give {strategy}:head=DIR ({kinds}, or its hub name), or {others} "
            "with acceptance=synthetic:... to measure machine speed"
        )
    folder = _folder(head, strategy)
    _check_kind(folder, strategy, one_pass)
    loaded = load_head(folder, target)
    if draws:
        check_drawable(loaded.d2t, folder, strategy)
    return loaded


def is_one_pass(head_dir: Path) -> bool:
    """Whether the head drafts all tokens in one pass. ValueError if it is not a head."""
    read_raw(head_dir)
    return not is_eagle1(checkpoint_shapes(head_dir)) and read_eagle3_config(head_dir).placeholder_id is not None


def _check_kind(folder: Path, strategy: str, one_pass: bool) -> None:
    if is_one_pass(folder) == one_pass:
        return
    drafts, needs = "all tokens in one pass", "one without ptd_token_id in its config.json"
    if one_pass:
        drafts, needs = "one token a pass", "one with ptd_token_id in its config.json (specbench train-head --kind)"
    raise ValueError(f"{strategy}: head: {folder} drafts {drafts}; allowed: {needs}")


def check_head_files(head: str, strategy: str, progress: Progress | None = None, one_pass: bool | None = None) -> None:
    """Finds and downloads a head, and reads its config and the names of its tensors, before any target is loaded.
    ValueError for a head that is not available, is not a head, or is not of this kind (`one_pass`; None: either)."""
    if head in ("", *_RANDOM):
        return
    folder = _folder(head, strategy, progress)
    read_raw(folder)
    read = read_eagle1_config if is_eagle1(checkpoint_shapes(folder)) else read_eagle3_config
    read(folder)
    if one_pass is not None:
        _check_kind(folder, strategy, one_pass)


def _folder(head: str, strategy: str, progress: Progress | None = None) -> Path:
    try:
        return head_folder(head, progress)
    except ValueError as error:
        raise ValueError(f"{strategy}: {error}") from error
