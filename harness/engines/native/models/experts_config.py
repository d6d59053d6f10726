"""Which layers of a model have experts, their number and width, from its config.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from specbench.harness.engines.native.models.config_rules import Harmless, ListOf, OneOf, Rule, Whole, flag_of, whole_of
from specbench.workloads.json_values import JsonObject

_COUNT = Whole(1, 4096)
EXPERT_KEYS: Mapping[str, Rule] = {
    "num_experts": _COUNT,
    "num_local_experts": _COUNT,  # the same, as transformers writes it
    "num_experts_per_tok": _COUNT,
    "moe_intermediate_size": Whole(1, 2**24),
    "norm_topk_prob": OneOf((False, True)),
    "decoder_sparse_step": Whole(1, 10_000),
    "mlp_only_layers": ListOf(Whole(0, 10_000)),
    **dict.fromkeys(("output_router_logits", "router_aux_loss_coef"), Harmless()),  # training
}
_NEEDED = ("num_experts_per_tok", "moe_intermediate_size")


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpertsConfig:
    """`normalised`: a row's weights sum to 1. Every `step`-th layer has experts, except `dense_layers`."""

    num_experts: int
    per_token: int
    intermediate_size: int
    normalised: bool
    step: int = 1
    dense_layers: tuple[int, ...] = ()

    def has(self, layer: int) -> bool:
        return layer not in self.dense_layers and (layer + 1) % self.step == 0

    def split(self, num_ranks: int) -> ExpertsConfig:
        """What one of several ranks computes: its part of every expert."""
        return replace(self, intermediate_size=self.intermediate_size // num_ranks)


def read_experts(raw: JsonObject, where: str) -> ExpertsConfig:
    """Reads already checked keys. ValueError naming one that is missing or inconsistent with the others."""
    counts = [raw[key] for key in ("num_experts", "num_local_experts") if raw.get(key) is not None]
    missing = [key for key in _NEEDED if raw.get(key) is None]
    if not counts or missing:
        raise ValueError(f"{where}: no {', '.join([*['num_experts'] * (not counts), *missing])}; is it complete?")
    count, per_token = counts[0], whole_of(raw, "num_experts_per_tok", 0)
    assert isinstance(count, int)
    if counts[-1] != count:
        raise ValueError(f"{where}: num_experts {count} and num_local_experts {counts[-1]}; allowed: one number")
    if per_token > count:
        raise ValueError(
            f"{where}: num_experts_per_tok {per_token} is not allowed; allowed: 1 to {count} (num_experts)"
        )
    dense = raw.get("mlp_only_layers")
    return ExpertsConfig(
        num_experts=count,
        per_token=per_token,
        intermediate_size=whole_of(raw, "moe_intermediate_size", 0),
        normalised=flag_of(raw, "norm_topk_prob"),
        step=whole_of(raw, "decoder_sparse_step", 1),
        dense_layers=tuple(layer for layer in dense if isinstance(layer, int)) if isinstance(dense, list) else (),
    )
