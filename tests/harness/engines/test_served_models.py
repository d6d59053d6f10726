"""What other engines are given to serve: the whole shape, or a checkpoint that our own engine would refuse."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from toy.byte_tokenizer import write_byte_tokenizer

from specbench.harness.engines.native.adapter import NativeEngine
from specbench.harness.engines.native.models.config import config_from_dict
from specbench.harness.engines.native.models.shapes import SHAPES
from specbench.harness.engines.served.model import open_model, random_head
from specbench.harness.run.progress import NullProgress
from specbench.harness.spec.arm import parse_arm
from specbench.harness.spec.conditions import RunConfig

ARMS = (parse_arm("no-spec"),)


pytestmark = pytest.mark.usefixtures("own_cache")


def written(folder: Path) -> dict:
    return json.loads((folder / "config.json").read_text())


@pytest.mark.parametrize("name", SHAPES)
def test_random_weights_of_a_shape_are_described_whole(name):
    """Experts and FP8 too: a dense model under that name would be another one."""
    config = RunConfig(arms=ARMS, model=name, load_format="dummy", device="cpu")
    wanted, found = SHAPES[name].config, config_from_dict(written(open_model(config, NullProgress()).path), Path())
    assert replace(found, fp8=None) == replace(wanted, fp8=None)
    assert bool(found.fp8) == bool(wanted.fp8)
    for module in ("lm_head", "model.layers.1.mlp.gate", "model.layers.1.self_attn.q_proj") if wanted.fp8 else ():
        assert found.fp8.covers(module) == wanted.fp8.covers(module)
    for head in (written(random_head(head, config, "EagleLlamaForCausalLM")) for head in ("random", "random-eagle1")):
        assert not {"num_experts", "quantization_config"} & set(head) and head["num_hidden_layers"] == 1


def test_gpt_oss_is_refused_by_our_engine_and_handed_to_others(tmp_path):
    """As the support matrix says; its keys are no business of ours."""
    raw = {
        "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "vocab_size": 257, "hidden_size": 64,
        "num_local_experts": 32, "sliding_window": 128, "quantization_config": {"quant_method": "mxfp4"},
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(raw))
    save_file({"model.norm.weight": torch.ones(64)}, tmp_path / "model.safetensors")
    write_byte_tokenizer(tmp_path)
    config = RunConfig(arms=ARMS, model=str(tmp_path), device="cpu")
    with pytest.raises(ValueError, match="architecture 'GptOssForCausalLM' is not supported; allowed: LlamaForCau"):
        NativeEngine().open(config, NullProgress())
    served = open_model(config, NullProgress())
    assert served.path == tmp_path and served.model.vocab_size == 257 and served.model.tokenizer is not None
