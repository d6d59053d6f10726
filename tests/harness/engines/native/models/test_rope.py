"""The rotary table against transformers' own, for every kind of scaling and every option of it."""

from __future__ import annotations

import json

import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from specbench.harness.engines.native.models.config import read_config
from specbench.harness.engines.native.models.rope import rope_table

LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0)
YARN = dict(rope_type="yarn", factor=4.0)
SCALINGS = {
    "none": dict(rope_type="default"),
    "llama3": dict(LLAMA3, original_max_position_embeddings=8192),
    "llama3-short": dict(LLAMA3, original_max_position_embeddings=64),
    "yarn": dict(YARN, original_max_position_embeddings=32768),
    "yarn-original-absent": YARN,
    "yarn-short": dict(YARN, original_max_position_embeddings=16),
    "yarn-shrinks": dict(YARN, factor=0.5, original_max_position_embeddings=512),
    "yarn-betas": dict(YARN, original_max_position_embeddings=2048, beta_fast=8.0, beta_slow=2.0),
    "yarn-one-beta": dict(YARN, original_max_position_embeddings=2048, beta_fast=4, beta_slow=4, truncate=False),
    "yarn-attention-factor": dict(YARN, original_max_position_embeddings=2048, attention_factor=1.7),
    "yarn-mscale": dict(YARN, original_max_position_embeddings=2048, mscale=0.7, mscale_all_dim=1.3),
    "yarn-mscale-alone": dict(YARN, original_max_position_embeddings=2048, mscale=0.7),
    "yarn-not-truncated": dict(YARN, original_max_position_embeddings=2048, truncate=False),
}


@pytest.mark.parametrize("theta", [10000.0, 1e6])
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("name", SCALINGS)
def test_the_table_is_transformers(tmp_path, name, head_dim, theta):
    scaling = dict(SCALINGS[name], rope_theta=theta)
    theirs = LlamaConfig(
        hidden_size=4 * head_dim, num_attention_heads=4, head_dim=head_dim, max_position_embeddings=4096,
        rope_parameters=scaling, architectures=["LlamaForCausalLM"],
    )  # fmt: skip
    # Not `to_dict`: what transformers fill in is for us to fill in too.
    (tmp_path / "config.json").write_text(json.dumps({**theirs.to_dict(), "rope_parameters": scaling}))
    position_M = torch.tensor([0, 1, 2, 17, 1000, 4095])
    cos, sin = LlamaRotaryEmbedding(theirs)(torch.zeros(1), position_M.unsqueeze(0))
    wanted = torch.cat([cos[0, :, : head_dim // 2], sin[0, :, : head_dim // 2]], dim=-1)
    ours = rope_table(read_config(tmp_path)[0], 4096, torch.device("cpu"))[position_M]
    # An angle of thousands carries the rounding of its frequency.
    torch.testing.assert_close(ours, wanted, atol=1e-3, rtol=0)
    torch.testing.assert_close(ours[:4], wanted[:4], atol=1e-5, rtol=0)


def test_yarn_reaches_as_far_as_it_stretches(tmp_path):
    """Configs of Qwen leave max_position_embeddings at the length of training."""
    config = dict(LlamaConfig().to_dict(), architectures=["LlamaForCausalLM"], max_position_embeddings=40960)
    scaling = dict(YARN, original_max_position_embeddings=32768, rope_theta=1e6)
    (tmp_path / "config.json").write_text(json.dumps({**config, "rope_parameters": scaling}))
    assert read_config(tmp_path)[0].max_position == 131072
