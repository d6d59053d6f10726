"""EAGLE-1 drafting written down straight from its description, for comparison with the engine's paged drafter.

Dense attention over the whole sequence, everything recomputed for every draft, tensors as they stand in the checkpoint.
Row p is fc(embedding of token p+1, target's final-normed state of token p) at rotary position p; one decoder layer
without an input norm follows, and its output is what the target's lm_head reads and what the next row continues from.
Source: Li et al. 2024 (arXiv 2401.15077), SafeAILab/EAGLE cnets1.py.
Legend: T rows, H hidden size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


def _rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return weight * (x * (x.square().mean(-1, keepdim=True) + eps).rsqrt())


def _rotate(x_THD: Tensor, theta: float) -> Tensor:
    """Rotation by position as a product of complex numbers: halves of a head are the real and imaginary parts."""
    rows, _, d = x_THD.shape
    frequency = theta ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    turn = torch.polar(
        torch.ones(rows, d // 2, dtype=torch.float64), torch.outer(torch.arange(rows).double(), frequency)
    )
    real, imaginary = x_THD.double().chunk(2, -1)
    turned = torch.complex(real, imaginary) * turn[:, None, :]
    return torch.cat([turned.real, turned.imag], -1).float()


@dataclass(slots=True)
class Eagle1Reference:
    tensors: dict[str, Tensor]
    config: dict[str, Any]
    target_tensors: dict[str, Tensor]
    # Faults on purpose, to show that a comparison would notice them.
    hidden_first: bool = False
    unshifted_ids: bool = False
    norms_input: bool = False

    def _product(self, x: Tensor, name: str) -> Tensor:
        y = x @ self.tensors[f"{name}.weight"].T
        return y + self.tensors[f"{name}.bias"] if f"{name}.bias" in self.tensors else y

    def _layer(self, hidden_TH: Tensor, ids: Sequence[int]) -> Tensor:
        c, num = self.config, len(ids)
        heads, kv_heads, d = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        embedded_TH = self.target_tensors["model.embed_tokens.weight"][list(ids)]
        both = [hidden_TH, embedded_TH] if self.hidden_first else [embedded_TH, hidden_TH]
        x = self._product(torch.cat(both, -1), "fc")
        seen = _rms_norm(x, torch.ones(x.shape[-1]), c["rms_norm_eps"]) if self.norms_input else x
        q, k, v = (
            self._product(seen, f"layers.0.self_attn.{name}_proj").view(num, count, d)
            for name, count in (("q", heads), ("k", kv_heads), ("v", kv_heads))
        )
        q, k = _rotate(q, c["rope_theta"]), _rotate(k, c["rope_theta"])
        rows = []
        for row in range(num):
            of_heads = []
            for head in range(heads):
                kv = head // (heads // kv_heads)
                weight = (k[: row + 1, kv] @ q[row, head] / d**0.5).softmax(0)
                of_heads.append(weight @ v[: row + 1, kv])
            rows.append(torch.cat(of_heads))
        x = x + self._product(torch.stack(rows), "layers.0.self_attn.o_proj")
        z = _rms_norm(x, self.tensors["layers.0.post_attention_layernorm.weight"], c["rms_norm_eps"])
        gated = torch.nn.functional.silu(self._product(z, "layers.0.mlp.gate_proj"))
        return x + self._product(gated * self._product(z, "layers.0.mlp.up_proj"), "layers.0.mlp.down_proj")

    def _logits(self, out_H: Tensor) -> Tensor:
        return (self.tensors if "d2t" in self.tensors else self.target_tensors)["lm_head.weight"] @ out_H

    def drafts(self, features_TH: Tensor, context: Sequence[int], num_drafts: int) -> tuple[list[int], float]:
        """Drafts after `context` (n+1 tokens, the last one pending) from the features of its first n tokens.

        Also the smallest top-2 gap among the choices made.
        """
        hidden_TH = features_TH
        ids = list(context[:-1]) if self.unshifted_ids else list(context[1:])
        found, gap = [], float("inf")
        for _ in range(num_drafts):
            out_H = self._layer(hidden_TH, ids)[-1]
            best = self._logits(out_H).topk(2)
            gap = min(gap, float(best.values[0] - best.values[1]))
            token = int(best.indices[0])
            found.append(token + (int(self.tensors["d2t"][token]) if "d2t" in self.tensors else 0))
            hidden_TH = torch.cat([hidden_TH, out_H[None]])
            ids.append(found[-1])
        return found, gap
