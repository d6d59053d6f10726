"""Loads the target of a training or a check: by asset name, hub name, directory or .gguf file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from specbench.harness.engines.native.models.config import read_config
from specbench.harness.engines.native.models.llama import LlamaModel
from specbench.harness.engines.native.models.loader import load_target
from specbench.harness.engines.native.target import check_memory
from specbench.harness.spec.devices import pick_device, pick_dtype
from specbench.workloads.assets.cache import Progress
from specbench.workloads.assets.model_source import resolve_model
from specbench.workloads.assets.table import find_asset
from specbench.workloads.base import Tokenizer
from specbench.workloads.tokenizer import load_tokenizer


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedTarget:
    """The target to train for. `described` has name, hub_name, source, sha256."""

    model: LlamaModel
    model_dir: Path
    tokenizer: Tokenizer
    stop_token_ids: tuple[int, ...]
    described: dict[str, str]


def load_for_training(name: str, device_name: str, dtype_name: str, progress: Progress | None = None) -> LoadedTarget:
    """Raises ValueError (AssetError) naming what is missing or does not fit."""
    device = pick_device(device_name)
    dtype = pick_dtype(dtype_name, device)
    source = resolve_model(name, progress=progress)
    config = read_config(source.path)[0]
    check_memory(config, dtype, device, name)
    tokenizer = load_tokenizer(source.path)
    asset = find_asset(name)
    hub_name = asset.hub.repo if asset is not None and asset.hub is not None else source.name
    # The card must not contain paths of this machine.
    origin = "a local file" if source.source.startswith("file:") else source.source
    return LoadedTarget(
        model=load_target(source.path, dtype, device),
        model_dir=source.path,
        tokenizer=tokenizer,
        stop_token_ids=tokenizer.eos_ids,
        described={"name": source.name, "hub_name": hub_name, "source": origin, "sha256": source.sha256},
    )
