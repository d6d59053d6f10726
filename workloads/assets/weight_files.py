"""Lists the weight files of a model directory and checks that each is a file. Their content is not read here."""

from __future__ import annotations

import os
from pathlib import Path

from specbench.workloads.assets.cache import AssetError
from specbench.workloads.guarded import read_json_object


def require_file(path: Path) -> Path:
    """`path` itself. AssetError, saying what is there instead, if it is not a file."""
    if not path.is_file():
        found = "a directory" if path.is_dir() else "a broken symbolic link" if path.is_symlink() else "not there"
        if found == "not there" and path.exists():
            found = "not a regular file"
        raise AssetError(f"checkpoint: {path} is {found}; allowed: a file (fetch or copy it again)")
    return path


def indexed_files(index: Path) -> list[Path]:
    """The files that an `*.index.json` names, which must all exist next to it. AssetError for any other index."""
    require_file(index)
    try:
        weight_map = read_json_object(index).get("weight_map")
    except ValueError as error:
        raise AssetError(f"checkpoint: {index} is damaged ({error})") from error
    if not isinstance(weight_map, dict) or not weight_map:
        raise AssetError(f"checkpoint: {index} is damaged: weight_map is not an object of tensor and file names")
    for tensor, name in weight_map.items():
        if not isinstance(name, str) or name != Path(name).name or not (index.parent / name).is_file():
            raise AssetError(
                f"checkpoint: {index} names {str(name)[:80]!r} for {tensor[:80]!r}, which is not a file of "
                f"{index.parent}; fetch it again"
            )
    return [index.parent / name for name in sorted(set(weight_map.values()))]


def safetensors_files(model_dir: Path) -> list[Path]:
    """The files that transformers reads: those in the index, else `model.safetensors`, else all. Repositories may
    contain further copies of the weights (`consolidated.safetensors`). AssetError if one is not a file."""
    return _files(model_dir, "model.safetensors", "*.safetensors")


def pickle_files(model_dir: Path) -> list[Path]:
    """The same for older checkpoints."""
    return _files(model_dir, "pytorch_model.bin", "pytorch_model*.bin")


def _files(model_dir: Path, whole: str, parts: str) -> list[Path]:
    index = model_dir / f"{whole}.index.json"
    if os.path.lexists(index):
        return indexed_files(index)
    found = [model_dir / whole] if os.path.lexists(model_dir / whole) else sorted(model_dir.glob(parts))
    return [require_file(path) for path in found]
