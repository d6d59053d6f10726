"""The hub's client against a hub of a few files on this machine: what is fetched, what is skipped, what errors say."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from workloads.fake_hub import COMMIT, GSM8K, MODEL

CODE = (
    "import sys, json\nfrom specbench.workloads.assets.resolve import AssetError, resolve\n"
    "try:\n    a = resolve(sys.argv[1])\n    print(json.dumps([str(a.path), a.source, a.sha256]))\n"
    "except AssetError as error:\n    print(json.dumps(str(error)))\n"
)


@pytest.fixture
def resolve_elsewhere(elsewhere):
    return lambda name: elsewhere(CODE, name)


def test_a_model_is_downloaded_in_one_format_and_once(hub, resolve_elsewhere):
    path, source, sha256 = resolve_elsewhere("some/model")
    assert sorted(file.name for file in Path(path).iterdir()) == ["config.json", "model.safetensors"]
    assert (Path(path) / "model.safetensors").read_bytes() == MODEL["model.safetensors"]
    assert source == f"hub:some/model@{COMMIT}" and len(sha256) == 64
    asked = len(hub.asked)
    assert resolve_elsewhere("some/model") == [path, source, sha256]
    assert len(hub.asked) == asked, "the second call asks nobody"


def test_a_data_set_of_the_table_comes_from_the_hub_first(resolve_elsewhere):
    path, source, sha256 = resolve_elsewhere("gsm8k")
    assert Path(path).read_bytes() == GSM8K["main/test-00000-of-00001.parquet"]
    assert source == f"hub:openai/gsm8k@{COMMIT}"
    assert sha256 == hashlib.sha256(b"rows").hexdigest()


def test_errors_of_the_hub_say_what_to_do(resolve_elsewhere):
    assert "hub some/gated: some/gated is gated: accept its licence" in resolve_elsewhere("some/gated")
    assert "the hub has no repository some/nothing" in resolve_elsewhere("some/nothing")
