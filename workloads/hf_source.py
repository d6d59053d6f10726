"""The splits of a data set, opened but not read: streamed from the hub at one commit, or from files on this disk."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, Union

from specbench.workloads.assets.cache import AssetError, cache_root, file_sha256
from specbench.workloads.assets.hub import Hub
from specbench.workloads.assets.resolve import HUB_NAME, looks_like_file

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset

Rows: TypeAlias = Union["Dataset", "IterableDataset"]
SAVED = ("state.json", "dataset_dict.json")  # what `save_to_disk` leaves of one split, of several


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """``name`` is for the rule, subset included; ``described`` says where the bytes are, for ``Workload.source``."""

    name: str
    described: str
    splits: Mapping[str, Rows]


def open_source(text: str, subset: str | None) -> Source:
    """A local file or directory, else ORG/NAME on the hub. Raises AssetError (a ValueError) if neither is available.

    Nothing of a data set is executed.
    """
    path = Path(text).expanduser()
    name = f"{text} {subset}" if subset else text
    if path.is_dir():
        return Source(name=name, described=f"file:{path}", splits=open_directory(path, subset))
    if path.is_file():
        whole = path.resolve()
        splits = load_splits(str(whole.parent), subset, data_files=glob.escape(str(whole)))  # a pattern
        return Source(name=name, described=f"file:{path} sha256:{file_sha256(path)}", splits=splits)
    if looks_like_file(text) or not HUB_NAME.fullmatch(text):
        raise AssetError(f"dataset_path: {text!r} does not exist, and it is not the ORG/NAME of a data set on the hub")
    try:
        commit = Hub().dataset_commit(text)
    except AssetError as error:
        raise AssetError(f"dataset_path: {text}: {error}; or give a local copy of it") from error
    return Source(name=name, described=f"hub:{text}@{commit}", splits=load_splits(text, subset, revision=commit))


def open_directory(path: Path, subset: str | None) -> Mapping[str, Rows]:
    from datasets import DatasetDict, load_from_disk

    if not any((path / name).is_file() for name in SAVED):
        return load_splits(str(path.resolve()), subset)
    if subset is not None:
        raise AssetError(f"hf_subset: {subset!r} is not allowed; {path} was saved by save_to_disk and has no subsets")
    saved = load_from_disk(str(path))
    return saved if isinstance(saved, DatasetDict) else {str(saved.split or "train"): saved}


def load_splits(where: str, subset: str | None, **which: str) -> Mapping[str, Rows]:
    from datasets import get_dataset_config_names, load_dataset

    try:
        locks = str(cache_root() / "derived")  # all that streaming keeps there
        return load_dataset(where, subset, streaming=True, cache_dir=locks, trust_remote_code=False, **which)
    except ValueError:
        names = get_dataset_config_names(where, **which)
        if subset in names or (subset is None and len(names) == 1):
            raise
        wrong = f"hf_subset: {subset!r} is not in {where}" if subset else f"hf_subset: none is given of {where}"
        raise AssetError(f"{wrong}; allowed: {', '.join(names)}") from None


@contextmanager
def readable(where: str) -> Iterator[None]:
    """Turns every exception of `datasets`, the hub's client and pyarrow into one line that names the data set."""
    try:
        yield
    except AssetError:
        raise
    except StopIteration as error:  # of an empty file
        raise AssetError(f"dataset_path: {where} has no rows") from error
    except Exception as error:
        text = " ".join(str(error).split()) or type(error).__name__
        text = text if len(text) <= 300 else f"{text[:300]}..."
        raise AssetError(f"dataset_path: {where} cannot be read: {text}") from error


@contextmanager
def quiet() -> Iterator[None]:
    """Silences the progress bars of `datasets`, and its own error output."""
    import datasets

    verbosity, had_bars = datasets.logging.get_verbosity(), datasets.is_progress_bar_enabled()
    datasets.logging.set_verbosity(datasets.logging.CRITICAL)
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        datasets.logging.set_verbosity(verbosity)
        if had_bars:
            datasets.enable_progress_bars()
