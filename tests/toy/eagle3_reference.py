"""EAGLE-3 drafting written down straight from its description, for comparison with the engine's paged drafter.

Dense attention over the whole sequence, everything recomputed for every draft, tensors as they stand in the checkpoint.
Row p takes (target feature of token p, embedding of token p+1) at rotary position p; drafts continue with the layer's
own output in the place of the feature. Source: Li et al. 2025 (arXiv 2503.01840), SafeAILab/EAGLE cnets.py.
Legend: T rows, H hidden of the head, F three times the target's hidden, D head dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


def _rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def _rotate(x_THD: Tensor, positions: Sequence[int], theta: float) -> Tensor:
    half = x_THD.shape[-1] // 2
    frequency = theta ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = (torch.tensor(positions, dtype=torch.float64)[:, None] * frequency)[:, None, :]
    cos, sin = angle.cos().float(), angle.sin().float()
    a, b = x_THD[..., :half], x_THD[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


@dataclass(slots=True)
class Eagle3Reference:
    tensors: dict[str, Tensor]
    config: dict[str, Any]
    target_embed_VH: Tensor
    # Faults on purpose, to show that a comparison would notice them.
    later_position_shift: int = 0
    unshifted_ids: bool = False

    def _get(self, name: str) -> Tensor:
        return self.tensors[f"midlayer.{name}.weight"]

    def _project(self, features_TF: Tensor) -> Tensor:
        c, eps = self.config, self.config["rms_norm_eps"]
        if c.get("fc_norm"):
            chunks = features_TF.chunk(3, -1)
            features_TF = torch.cat(
                [_rms_norm(x, self.tensors[f"fc_norm.{i}.weight"], eps) for i, x in enumerate(chunks)], -1
            )
        elif "input_norm.weight" in self.tensors:
            features_TF = _rms_norm(features_TF, self.tensors["input_norm.weight"], eps)
        return features_TF @ self.tensors["fc.weight"].T

    def _layer(self, hidden_TH: Tensor, ids: Sequence[int], positions: Sequence[int]) -> Tensor:
        c, eps, num = self.config, self.config["rms_norm_eps"], len(ids)
        heads, kv_heads, d = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        embed = self.tensors.get("embed_tokens.weight", self.target_embed_VH)
        normed = _rms_norm(hidden_TH, self._get("hidden_norm"), eps)
        x = torch.cat([_rms_norm(embed[list(ids)], self._get("input_layernorm"), eps), normed], -1)
        q, k, v = (
            (x @ self._get(f"self_attn.{n}_proj").T).view(num, h, d)
            for n, h in (("q", heads), ("k", kv_heads), ("v", kv_heads))
        )
        q, k = _rotate(q, positions, c["rope_theta"]), _rotate(k, positions, c["rope_theta"])
        k, v = k.repeat_interleave(heads // kv_heads, 1), v.repeat_interleave(heads // kv_heads, 1)
        score = torch.einsum("qhd,khd->hqk", q, k) / d**0.5
        score = score.masked_fill(torch.ones(num, num).triu(1).bool(), float("-inf"))
        attended = torch.einsum("hqk,khd->qhd", score.softmax(-1), v).reshape(num, -1)
        residual = normed if c.get("norm_before_residual") else hidden_TH
        y = residual + attended @ self._get("self_attn.o_proj").T
        z = _rms_norm(y, self._get("post_attention_layernorm"), eps)
        gated = torch.nn.functional.silu(z @ self._get("mlp.gate_proj").T) * (z @ self._get("mlp.up_proj").T)
        return y + gated @ self._get("mlp.down_proj").T

    def drafts(self, features_TF: Tensor, context: Sequence[int], num_drafts: int) -> tuple[list[int], float]:
        """Drafts after `context` (n+1 tokens, the last one pending) from the features of its first n tokens.

        Also the smallest top-2 gap among the choices made.
        """
        hidden_TH = self._project(features_TF)
        ids = list(context[:-1]) if self.unshifted_ids else list(context[1:])
        positions = list(range(len(ids)))
        found, gap = [], float("inf")
        for _ in range(num_drafts):
            out_H = self._layer(hidden_TH, ids, positions)[-1]
            normed_H = _rms_norm(out_H, self.tensors["norm.weight"], self.config["rms_norm_eps"])
            logits_V = self.tensors["lm_head.weight"] @ normed_H
            best = logits_V.topk(2)
            gap = min(gap, float(best.values[0] - best.values[1]))
            token = int(best.indices[0])
            token += int(self.tensors["d2t"][token]) if "d2t" in self.tensors else 0
            found.append(token)
            state_1H = (normed_H if self.config.get("norm_output") else out_H)[None]
            if "mask_hidden" in self.tensors:  # parallel drafting: what was drafted is not known to the rows behind it
                token, state_1H = self.config["ptd_token_id"], self._project(self.tensors["mask_hidden"])
            hidden_TH = torch.cat([hidden_TH, state_1H])
            ids.append(token)
            positions.append(positions[-1] + 1 + (self.later_position_shift if len(found) == 1 else 0))
        return found, gap
