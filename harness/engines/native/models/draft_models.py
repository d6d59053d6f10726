"""Which model drafts for a target: its own first layers, a checkpoint, or random weights of a published shape."""

from __future__ import annotations

from pathlib import Path

from specbench.harness.engines.native.models.config import ModelConfig, read_config
from specbench.harness.engines.native.models.llama import LlamaModel
from specbench.harness.engines.native.models.loader import dummy_target, load_target
from specbench.harness.engines.native.models.shapes import SHAPES, published_shape

_SELF, _SHAPE = "self:", "shape:"
_ALLOWED = (
    "a model's name or directory, self:L (the target's own first L layers), or shape:NAME (random weights, for "
    "acceptance=synthetic:...)"
)
_SEED = 1  # not the target's seed: where target and draft model share a shape, their weights must differ


def make_draft_model(text: str, target: LlamaModel) -> LlamaModel:
    """The model of `draft-model:draft=TEXT`, in the target's dtype and on its device. Raises ValueError if the text
    names no model or the model has a different vocabulary."""
    if not text:
        raise ValueError(f"draft-model: no draft model; give draft-model:draft=..., {_ALLOWED}")
    if text.startswith(_SELF):
        return first_layers(target, text.removeprefix(_SELF))
    if text.startswith(_SHAPE):
        name = text.removeprefix(_SHAPE)
        _check_vocabulary(text, published_shape(name).config, target)
        return dummy_target(name, target.dtype, target.device, seed=_SEED, group=target.group.of_drafter)
    return _checkpoint(text, target)


def first_layers(target: LlamaModel, count: str) -> LlamaModel:
    """The target truncated after its first layers, with its final norm and lm_head; all weights are shared."""
    most = target.config.num_layers
    if not count.isdigit() or not 1 <= int(count) <= most:
        raise ValueError(f"draft-model: draft=self:{count} is not allowed; allowed: self:1 to self:{most}")
    layers = target.layers[: int(count)]
    config = target.whole.with_layers(len(layers))
    return LlamaModel(config, target.embed_VH, layers, target.norm_H, target.lm_head, target.group)


def _checkpoint(text: str, target: LlamaModel) -> LlamaModel:
    if text in SHAPES and not Path(text).exists():
        raise ValueError(f"draft-model: draft={text} is a shape without weights; shape:{text} gives it random ones")
    # Imported here because it loads the GGUF reader and the hub client, which the other draft models do not need.
    from specbench.workloads.assets.model_source import resolve_model

    folder = resolve_model(text).path
    _check_vocabulary(text, read_config(folder)[0], target)
    return load_target(folder, target.dtype, target.device, target.group.of_drafter)


def _check_vocabulary(text: str, config: ModelConfig, target: LlamaModel) -> None:
    """Checked before any weight is read, since a wrong model may be large."""
    if config.vocab_size != target.config.vocab_size:
        raise ValueError(
            f"draft-model: draft={text} has vocab_size {config.vocab_size}, the target has "
            f"{target.config.vocab_size}; a draft model needs the target's own vocabulary"
        )
