"""Where a drafter's weights are: a directory for SGLang, and whether it contains only a config.json."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from specbench.harness.engines.served.model import open_model, random_head
from specbench.harness.spec.conditions import RunConfig
from specbench.workloads.assets.head_source import head_folder
from specbench.workloads.assets.model_source import resolve_model

from .methods import Method

_SELF, _SHAPE = "self:", "shape:"
_EAGLE1 = "LlamaForCausalLMEagle"


class _Silent:
    def say(self, text: str) -> None: ...

    def asset(self, name: str, done: int, total: int) -> None: ...


def draft_weights(strategy: str, method: Method, config: RunConfig) -> tuple[Path | None, bool]:
    """The directory, None where the method drafts without weights of its own; and whether they are random."""
    if method.draft is None:
        return None, False
    return _model(method.draft, config) if strategy == "draft-model" else _head(strategy, method.draft, config)


def _head(strategy: str, head: str, config: RunConfig) -> tuple[Path, bool]:
    if (described := random_head(head, config, _EAGLE1)) is not None:
        return described, True
    if not head:
        raise ValueError(
            f"{strategy}: no head for this model; give {strategy}:head=DIR, or head=random or random-eagle1 with "
            "dummy weights"
        )
    folder = head_folder(head)
    if not (folder / "config.json").is_file():
        raise ValueError(f"{strategy}: head={head!r} is not allowed; give a folder with a config.json")
    return folder.resolve(), False


def _model(draft: str, config: RunConfig) -> tuple[Path, bool]:
    if draft.startswith(_SELF) or not draft:
        raise ValueError(
            f"draft-model: draft={draft!r} is not allowed; SGLang takes a model's name or directory, or shape:NAME for "
            "random weights"
        )
    if draft.startswith(_SHAPE):
        shape = replace(config, model=draft.removeprefix(_SHAPE), load_format="dummy", num_layers=None)
        return open_model(shape, _Silent()).path, True
    return resolve_model(draft).path, False
