"""The Hugging Face hub as a source: its cache, then the network, with a timeout of seconds when offline."""

from __future__ import annotations

import os
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from specbench.workloads.assets.cache import AssetError, require_free_disk
from specbench.workloads.assets.table import HubSource
from specbench.workloads.assets.weight_files import pickle_files, safetensors_files
from specbench.workloads.guarded import first_line

PROBE_TIMEOUT_S = 3.0
ANSWER_TIMEOUT_S = 10.0  # of its API
WEIGHT_SUFFIXES = (".safetensors", ".bin")
MODEL_SUFFIXES = (".json", ".jinja", ".txt", ".model", *WEIGHT_SUFFIXES)


class Hub:
    """The hub as seen by one process. Reachability is probed once, so several assets cost one timeout."""

    def __init__(self) -> None:
        self._probe: str | None = None

    def cached(self, source: HubSource) -> Path | None:
        """A complete copy in the hub's local cache, without the network.

        Not ``snapshot_download(local_files_only=True)``: newer clients demand the files that we skip on purpose, older
        ones accept an interrupted download.
        """
        from huggingface_hub import try_to_load_from_cache

        if source.file:
            found = try_to_load_from_cache(source.repo, source.file, repo_type="dataset")
            return Path(found) if isinstance(found, str) else None
        config = try_to_load_from_cache(source.repo, "config.json")
        return Path(config).parent if isinstance(config, str) and not missing_part(Path(config).parent) else None

    def fetch(self, source: HubSource) -> Path:
        """Download (the hub's client resumes by itself); the local path. Raises AssetError with the reason."""
        from huggingface_hub import hf_hub_download, snapshot_download

        with self._requests(source.repo):
            if source.file:
                return Path(
                    hf_hub_download(source.repo, source.file, repo_type="dataset", etag_timeout=PROBE_TIMEOUT_S)
                )
            files = self._model_files(source.repo)
            return Path(snapshot_download(source.repo, allow_patterns=files, etag_timeout=PROBE_TIMEOUT_S))

    def dataset_commit(self, repo: str) -> str:
        """The current commit of a data set on the hub. Raises AssetError with the reason."""
        from huggingface_hub import HfApi

        with self._requests(repo):
            return str(HfApi().dataset_info(repo, timeout=ANSWER_TIMEOUT_S).sha)

    @contextmanager
    def _requests(self, repo: str) -> Iterator[None]:
        """Context for requests about one repository: every failure becomes an AssetError that says what to do."""
        unreachable = self.unreachable_reason()
        if unreachable:
            raise AssetError(unreachable)
        from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError

        try:
            yield
        except GatedRepoError as error:
            raise AssetError(
                f"{repo} is gated: accept its licence on the hub, then `hf auth login` or set HF_TOKEN"
            ) from error
        except RepositoryNotFoundError as error:
            raise AssetError(f"the hub has no repository {repo} (or it is private: set HF_TOKEN)") from error
        except (HfHubHTTPError, OSError) as error:
            raise AssetError(f"download of {repo} failed: {first_line(error)}") from error

    def unreachable_reason(self) -> str:
        """Why the hub cannot be reached; empty if it can."""
        if os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}:
            return "HF_HUB_OFFLINE is set"
        if self._probe is None:
            self._probe = probe(os.environ.get("HF_ENDPOINT", "https://huggingface.co"))
        return self._probe

    def _model_files(self, repo: str) -> list[str]:
        """Files of a model to download: no subfolders (other formats), no .bin if there are safetensors."""
        from huggingface_hub import HfApi
        from huggingface_hub.constants import HF_HUB_CACHE

        infos = HfApi().model_info(repo, files_metadata=True, timeout=ANSWER_TIMEOUT_S).siblings or []
        sizes = {info.rfilename: info.size or 0 for info in infos}
        chosen = choose_model_files(list(sizes))
        require_free_disk(Path(HF_HUB_CACHE), sum(sizes[name] for name in chosen), repo)
        return chosen


def choose_model_files(names: list[str]) -> list[str]:
    """Configuration, tokenizer and weights at the top level of a repository, each weight in one format."""
    top = [name for name in names if "/" not in name and name.endswith(MODEL_SUFFIXES)]
    top = [name for name in top if not name.startswith(("consolidated", "training_args"))]
    if any(name.endswith(".safetensors") for name in top):
        top = [name for name in top if not name.endswith((".bin", ".bin.index.json"))]
    return top


def missing_part(directory: Path) -> str:
    """The part that a directory lacks to be a model, configuration or weight files; empty if it is complete."""
    if not (directory / "config.json").is_file():
        return "config.json is missing"
    try:
        found = safetensors_files(directory) or pickle_files(directory)
    except AssetError as error:
        return str(error)
    return "" if found else "no *.safetensors and no pytorch_model*.bin"


def probe(endpoint: str) -> str:
    """One HEAD request with a short timeout that includes name resolution (hence the thread)."""
    outcome = [f"{endpoint} did not answer within {PROBE_TIMEOUT_S:g} s"]

    def ask() -> None:
        try:
            request = urllib.request.Request(endpoint, method="HEAD", headers={"User-Agent": "specbench"})
            with urllib.request.urlopen(request, timeout=PROBE_TIMEOUT_S):
                outcome[0] = ""
        except urllib.error.HTTPError:
            outcome[0] = ""  # it answered
        except (OSError, ValueError) as error:
            outcome[0] = f"{endpoint} cannot be reached: {first_line(error)}"

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(PROBE_TIMEOUT_S + 0.5)
    return outcome[0]
