"""The conversations kept for evaluation, and which data set each workload reads."""

from __future__ import annotations

import importlib
import json

import pytest
from workloads.fakes import CharTokenizer, conversation

from specbench.harness.registry import WORKLOADS
from specbench.workloads import held_out, sharegpt
from specbench.workloads.assets.table import asset_of_workload
from specbench.workloads.base import WorkloadRequest
from specbench.workloads.held_out import is_held_out

TOKENIZER = CharTokenizer()


def test_held_out_prompts_are_those_that_no_head_is_trained_on(tmp_path):
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps([conversation(i, f"question {i}", f"answer {i}") for i in range(200)]))
    kept = [f"question {i}" for i in range(200) if is_held_out(f"c{i}")]
    assert 0 < len(kept) < 30

    def request(name: str, num_prompts: int) -> WorkloadRequest:
        return WorkloadRequest(name=name, path=str(path), num_prompts=num_prompts)

    workload = held_out.load(request("sharegpt-held-out", len(kept)), TOKENIZER)
    assert sorted(p.text for p in workload.prompts) == sorted(kept)
    assert workload.name == "sharegpt-held-out" and workload.rule.startswith("held out (")
    everything = {p.text: p for p in sharegpt.load(request("sharegpt", 200), TOKENIZER).prompts}
    assert all(p == everything[p.text] for p in workload.prompts), "otherwise as the workload sharegpt"
    with pytest.raises(ValueError, match=f"allowed: 1 to {len(kept)}$"):
        held_out.load(request("sharegpt-held-out", len(kept) + 1), TOKENIZER)


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_run_fetches_what_its_workload_reads(name, monkeypatch):
    """What `asset_of_workload` names is fetched with a progress bar; another one would be fetched behind it, unseen."""
    module_name, _, function = WORKLOADS[name].partition(":")
    module = importlib.import_module(module_name)
    asked: list[str] = []

    class Enough(Exception):
        pass

    def resolve(text: str) -> None:
        asked.append(text)
        raise Enough

    if not hasattr(module, "resolve"):
        assert asset_of_workload(name) is None
        return
    monkeypatch.setattr(module, "resolve", resolve)
    with pytest.raises(Enough):
        getattr(module, function)(WorkloadRequest(name=name, num_prompts=1), TOKENIZER)
    asset = asset_of_workload(name)
    assert asset is not None and asked == [asset.name]
