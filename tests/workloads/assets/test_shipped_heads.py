"""Heads that come with the package: their files are whole and small, and each is found by its own target only."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch

from specbench.harness.engines.native.models.heads import make_head
from specbench.harness.engines.native.models.loader import dummy_target
from specbench.harness.engines.native.models.shapes import SHAPES
from specbench.harness.registry import WORKLOADS
from specbench.harness.training.check import check_files
from specbench.workloads.assets import shipped_heads
from specbench.workloads.assets.shipped_heads import HEADS, PREFIX, shipped_folder, shipped_head, shipped_head_for
from specbench.workloads.assets.table import ASSETS

NAMES = shipped_heads.shipped_names()
MAX_BYTES = 32 * 2**20  # a checkout and a wheel carry all heads
SHA256 = "a" * 64


@pytest.fixture
def toy_heads(tmp_path, monkeypatch) -> Path:
    """A folder of heads with one, `toy`."""
    folder = tmp_path / "heads"
    (folder / "toy").mkdir(parents=True)
    (folder / "no-head").mkdir()
    target = {"name": "toy", "hub_name": "somebody/Toy", "source": "pypi:toy==1", "sha256": SHA256}
    record = {"target": target, "data": [{"name": "sharegpt"}, {"name": "gsm8k-train"}]}
    (folder / "toy" / "training.json").write_text(json.dumps(record))
    monkeypatch.setattr(shipped_heads, "HEADS", folder)
    return folder


def test_a_head_is_found_by_the_bytes_of_its_target(toy_heads):
    found = shipped_head_for(SHA256, "file:/somewhere/toy.gguf")
    assert found is not None and found.option == "shipped:toy"
    assert shipped_folder(found.option) == toy_heads / "toy"
    assert found.notes(SHA256, ["gsm8k"]) == []


def test_a_head_is_found_for_the_hubs_copy_of_its_target_and_the_row_says_so(toy_heads):
    found = shipped_head_for("b" * 64, "hub:somebody/Toy@0123abc")
    assert found is not None and found.notes("b" * 64, ["gsm8k"]) == [
        "head trained for other weights, pypi:toy==1: acceptance may be lower"
    ]


@pytest.mark.parametrize(
    ("sha256", "source"),
    [
        ("b" * 64, "pypi:toy==2"),
        ("b" * 64, "hub:somebody/Toy-Base@0123abc"),
        ("", "random weights of the shape of somebody/Toy"),
    ],
)
def test_no_head_for_another_model(toy_heads, sha256, source):
    assert shipped_head_for(sha256, source) is None


def test_a_row_says_when_the_head_was_trained_on_its_prompts(toy_heads):
    head = shipped_head("shipped:toy")
    assert head.notes(SHA256, ["sharegpt"]) == [
        "head trained on sharegpt: acceptance is inflated; sharegpt-held-out is not in its training data"
    ]
    assert head.notes(SHA256, ["sharegpt-held-out"]) == []


def test_an_unknown_head_is_refused_with_the_known_ones(toy_heads):
    message = "head: 'shipped:no-head' is not known; shipped heads: shipped:toy"
    target = dummy_target("toy", torch.float32, torch.device("cpu"))
    for call in (shipped_folder, shipped_head, lambda option: make_head(option, target, "eagle")):
        with pytest.raises(ValueError, match=re.escape(message)):
            call("shipped:no-head")


# -- what really ships -----------------------------------------------------------------------------------------------


def test_the_heads_are_small():
    files = [path for path in HEADS.rglob("*") if path.is_file()]
    assert NAMES and sum(path.stat().st_size for path in files) <= MAX_BYTES


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_head_passes_its_check(name):
    """The files alone; the target has random weights and four of its layers, which none of the shapes depend on."""
    record = json.loads((HEADS / name / "training.json").read_text())
    shape = next(key for key, s in SHAPES.items() if s.hub_name == record["target"]["hub_name"])
    target = dummy_target(shape, torch.bfloat16, torch.device("cpu"), num_layers=4)
    report = check_files(HEADS / name, target)
    assert report.ok, report.problems
    assert report.draft_vocab_size == record["head"]["draft_vocab_size"]
    assert {text.partition(" ")[0] for tensor, text in report.tensors.items() if tensor not in ("d2t", "t2d")} == {
        "bfloat16"
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_head_names_its_target_and_its_data(name):
    head = shipped_head(PREFIX + name)
    asset = ASSETS[name]  # default arms look for a folder of the asset's name
    assert asset.package is not None and asset.hub is not None
    assert (head.target_sha256, head.target_hub_name) == (asset.package.sha256, asset.hub.repo)
    assert head.trained_on <= set(WORKLOADS), "the note compares these with the name of the workload"
    assert "sharegpt-held-out" not in head.trained_on and "gsm8k" not in head.trained_on


@pytest.mark.parametrize("name", NAMES)
def test_no_file_of_a_shipped_head_names_a_folder_of_the_machine_it_was_made_on(name):
    for path in (HEADS / name).iterdir():
        if path.suffix in (".md", ".json", ".csv"):
            assert not re.search(r"[\s'\"=(]/\w", path.read_text()), path.name


@pytest.mark.parametrize("name", NAMES)
def test_the_model_card_is_the_one_that_its_files_give(name, tmp_path):
    """Edited by hand, it would lose the edit when somebody writes it again."""
    from specbench.harness.training.model_card import write_model_card

    for path in (HEADS / name).iterdir():
        if path.suffix in (".json", ".csv"):
            (tmp_path / path.name).write_bytes(path.read_bytes())
    write_model_card(tmp_path)
    assert (tmp_path / "README.md").read_text() == (HEADS / name / "README.md").read_text()
