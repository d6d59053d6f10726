"""The cos/sin table of rotary position embeddings."""

from __future__ import annotations

import torch
from torch import Tensor

from specbench.harness.engines.native.models.config import ModelConfig
from specbench.harness.engines.native.models.rope_scaling import plain_frequencies


def rope_frequencies(config: ModelConfig) -> list[float]:
    """Inverse frequencies of the head_dim/2 rotations."""
    half, scaling = config.head_dim // 2, config.rope_scaling
    if scaling is None:
        return plain_frequencies(config.rope_theta, half)
    return scaling.frequencies(config.rope_theta, half)


def rope_table(config: ModelConfig, num_positions: int, device: torch.device) -> Tensor:
    """fp32 [num_positions, head_dim]: the cosines of the head_dim/2 angles, then their sines."""
    # fp32 products as in transformers, so that long positions round alike.
    inv_freq = torch.tensor(rope_frequencies(config), dtype=torch.float64).to(torch.float32)
    angles = torch.arange(num_positions, dtype=torch.float32)[:, None] * inv_freq[None, :]
    amplitude = config.rope_scaling.amplitude if config.rope_scaling else 1.0
    return (torch.cat([angles.cos(), angles.sin()], dim=-1) * amplitude).to(device)
