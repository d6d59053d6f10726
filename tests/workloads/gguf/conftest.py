"""A tiny Llama as GGUF, and a cache of the test's own."""

from __future__ import annotations

from pathlib import Path

import pytest
from workloads.gguf.files import tiny_model, write_gguf


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture(scope="module")
def llama(tmp_path_factory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf", "llama", tiny_model("llama", tied=True))
