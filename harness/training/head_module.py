"""The EAGLE-3 layer as a trainable module: fp32 master weights, arithmetic in the target's dtype.

Same conventions as harness/engines/native/models/eagle3.py, which runs the exported head. Here whole sequences are
processed at once and unrolled on the head's outputs.

Legend: B sequences, T padded length, N = B * T flat rows, H hidden, F = 3H, X = (Hq + 2 Hkv) * D outputs of qkv, I
intermediate size, Vd draft vocabulary, D head size, M longest position.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specbench.harness.engines.native.models.config import ModelConfig

from .unrolled_attention import unrolled_attention

PLACEHOLDER_ID = 0  # any token works: learned features distinguish its rows from real ones
_Inputs = ParamSpec("_Inputs")
_Outputs = TypeVar("_Outputs")


class HeadModule(nn.Module):
    """Master weights of one head. `lm_head` starts as the target's rows, `norm` as the target's last norm.

    `config` has the target's width, heads and rope, so that engines can share cache layout and embedding.
    `one_pass`: with learned features [F] for the rows of drafts that are not known yet.
    """

    def __init__(
        self,
        config: ModelConfig,
        lm_head_VH: Tensor,
        norm_H: Tensor,
        generator: torch.Generator,
        one_pass: bool = False,
    ):
        super().__init__()
        self.config = config
        h, i = config.hidden_size, config.intermediate_size
        q, kv = config.num_q_heads * config.head_dim, config.num_kv_heads * config.head_dim

        def matrix(rows: int, columns: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(rows, columns).uniform_(-1, 1, generator=generator) / math.sqrt(columns))

        self.fc = matrix(h, 3 * h)
        self.embed_norm = nn.Parameter(torch.ones(h))
        self.hidden_norm = nn.Parameter(torch.ones(h))
        self.qkv = matrix(q + 2 * kv, 2 * h)
        self.o = matrix(h, q)
        self.post_norm = nn.Parameter(torch.ones(h))
        self.gate_up = matrix(2 * i, h)
        self.down = matrix(h, i)
        self.norm = nn.Parameter(norm_H.detach().float().cpu().clone())
        self.lm_head = nn.Parameter(lm_head_VH.detach().float().cpu().clone())
        self.placeholder = nn.Parameter(torch.empty(3 * h).uniform_(-1, 1, generator=generator)) if one_pass else None

    def cast(self, dtype: torch.dtype) -> dict[str, Tensor]:
        """Copies of all weights except `lm_head` in the dtype of the arithmetic, for one optimiser step."""
        return {name: weight.to(dtype) for name, weight in self.named_parameters() if name != "lm_head"}


class Unroller:
    """Runs the layer on its previous outputs or placeholders. `compiled`: row-wise parts go through torch.compile."""

    def __init__(self, config: ModelConfig, embed_VH: Tensor, cos_sin_MD: Tensor, compiled: bool):
        self._config = config
        self._embed_VH = embed_VH
        self._cos_sin_MD = cos_sin_MD
        self._before = compiled_rows(_before_attention, 3) if compiled else _before_attention
        self._after = compiled_rows(_after_attention, 2) if compiled else _after_attention

    def outputs(self, w: dict[str, Tensor], features_NF: Tensor, ids_BT: Tensor, num_steps: int) -> Iterator[Tensor]:
        """The layer's output [N, H] before the final norm, for each unrolled step.

        Step k takes token p+1+k in row p at rotary position p+k, as the engine's k-th draft does. With a
        placeholder the head has neither that token nor the state before it: every step takes the placeholder's.
        """
        c, (num, width) = self._config, ids_BT.shape
        place_N = torch.arange(width, device=ids_BT.device).repeat(num)
        keys: list[Tensor] = []
        values: list[Tensor] = []
        hidden_NH = F.linear(features_NF, w["fc"])
        for k in range(num_steps):
            ids_N = shifted(ids_BT, 1 + k).reshape(-1)
            if k and "placeholder" in w:
                ids_N = torch.full_like(ids_N, PLACEHOLDER_ID)
                hidden_NH = F.linear(w["placeholder"], w["fc"]).expand(num * width, -1)
            embed_NH = F.embedding(ids_N, self._embed_VH)
            cos_sin_ND = self._cos_sin_MD[place_N + k]
            q, key, value = self._before(
                embed_NH,
                hidden_NH,
                cos_sin_ND,
                w["embed_norm"],
                w["hidden_norm"],
                w["qkv"],
                c.num_q_heads,
                c.rms_norm_eps,
            )
            q, key, value = (x.view(num, width, -1, c.head_dim).transpose(1, 2) for x in (q, key, value))
            keys.append(key)
            values.append(value)
            attn_BTX = unrolled_attention(q, keys, values, c.head_dim**-0.5).transpose(1, 2)
            hidden_NH = self._after(
                attn_BTX.reshape(num * width, -1),
                hidden_NH,
                w["o"],
                w["post_norm"],
                w["gate_up"],
                w["down"],
                c.rms_norm_eps,
            )
            yield hidden_NH


def shifted(ids_BT: Tensor, by: int) -> Tensor:
    """Columns shifted left by `by`, filled with zeros."""
    return F.pad(ids_BT[:, by:], (0, min(by, ids_BT.shape[1])))


def norm_rows(x_NH: Tensor, weight_H: Tensor, eps: float) -> Tensor:
    return F.rms_norm(x_NH, weight_H.shape, weight_H, eps)


def compiled_rows(function: Callable[_Inputs, _Outputs], num_inputs: int) -> Callable[_Inputs, _Outputs]:
    """`function` through torch.compile, for any number of rows in dimension 0 of its first `num_inputs` tensors.

    Only these are dynamic: the sizes of the model stay constants of the generated code.
    """
    import torch._dynamo as dynamo  # takes seconds to import, and is needed nowhere else

    run = torch.compile(function)

    def call(*inputs: _Inputs.args, **options: _Inputs.kwargs) -> _Outputs:
        for rows in inputs[:num_inputs]:
            dynamo.maybe_mark_dynamic(rows, 0)
        return run(*inputs, **options)

    return call


def _before_attention(
    embed_NH: Tensor,
    hidden_NH: Tensor,
    cos_sin_ND: Tensor,
    embed_norm_H: Tensor,
    hidden_norm_H: Tensor,
    qkv_XH: Tensor,
    num_q_heads: int,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Rotated queries, rotated keys and values, each [N, Hq, D]: keys and values are repeated to the query heads."""
    head_dim = cos_sin_ND.shape[1]
    num_kv_heads = (qkv_XH.shape[0] // head_dim - num_q_heads) // 2
    x_N2H = torch.cat([norm_rows(embed_NH, embed_norm_H, eps), norm_rows(hidden_NH, hidden_norm_H, eps)], -1)
    heads = F.linear(x_N2H, qkv_XH).view(-1, num_q_heads + 2 * num_kv_heads, head_dim)
    q, k, v = heads.split([num_q_heads, num_kv_heads, num_kv_heads], dim=1)
    group = num_q_heads // num_kv_heads
    k, v = (t.unsqueeze(2).expand(-1, -1, group, -1).reshape(-1, num_q_heads, head_dim) for t in (k, v))
    return _rotate(q, cos_sin_ND), _rotate(k, cos_sin_ND), v


def _rotate(x_NHD: Tensor, cos_sin_ND: Tensor) -> Tensor:
    """Rotate-half in fp32, rounded once, as the engine's rope."""
    cos, sin = cos_sin_ND.unsqueeze(1).chunk(2, -1)
    a, b = x_NHD.float().chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(x_NHD.dtype)


def _after_attention(
    attn_NX: Tensor,
    hidden_NH: Tensor,
    o_HX: Tensor,
    post_norm_H: Tensor,
    gate_up_IH: Tensor,
    down_HI: Tensor,
    eps: float,
) -> Tensor:
    residual_NH = hidden_NH + F.linear(attn_NX, o_HX)
    gate, up = F.linear(norm_rows(residual_NH, post_norm_H, eps), gate_up_IH).chunk(2, -1)
    return residual_NH + F.linear(F.silu(gate) * up, down_HI)
