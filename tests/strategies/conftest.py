"""What tests of drafters share: a plan whose rounds can be looked at, a target, and the features that heads read."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from toy.checkpoints import write_llama
from toy.plans import Plan


@pytest.fixture
def single_plan(main_plan: Plan) -> Plan:
    if main_plan.sync != "single":
        pytest.skip("drafts are compared round by round, which needs the host to be up to date")
    return main_plan


@pytest.fixture(scope="module")
def target_folder(tmp_path_factory, request: pytest.FixtureRequest) -> Path:
    """Of the module's TARGET."""
    folder = tmp_path_factory.mktemp("target")
    write_llama(folder, request.module.TARGET)
    return folder


@pytest.fixture(scope="module")
def features(target_folder):
    """Features of a context's tokens for EAGLE-3: transformers' states entering layers 2, N//2 and N-3, of N = 8."""
    from transformers import LlamaForCausalLM  # seconds to import, for the few tests that need it

    model = LlamaForCausalLM.from_pretrained(target_folder, dtype=torch.float32, trust_remote_code=False).eval()

    def of(ids: list[int]) -> torch.Tensor:
        with torch.no_grad():
            states = model(torch.tensor([ids]), output_hidden_states=True).hidden_states
        return torch.cat([states[i][0] for i in (2, 4, 5)], -1)

    return of
