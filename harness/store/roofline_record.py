"""The ideal round time, and what it follows from: the limits of a machine and the passes of an arm's round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from specbench.harness.text import is_number

MEASURED, GIVEN = "measured", "given"
_MAY_BE_ZERO = ("first_params", "num_kernels", "num_sums", "sum_bytes", "fast_params", "last_params")
_RATES = ("read_bytes_per_s", "matmul_flops_per_s", "attention_flops_per_s")


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """Limits of one device for one dtype. ValueError for an impossible figure.

    read_bytes_per_s: reading memory far beyond the caches. matmul_flops_per_s: a large matrix product.
    attention_flops_per_s: attention over a long prompt. kernel_launch_s: the cost of one more tiny kernel, inside a
    CUDA graph on a GPU; 0 is allowed: no such cost. how: measured, or given (from a data sheet or elsewhere).
    """

    device: str
    dtype: str
    read_bytes_per_s: float
    matmul_flops_per_s: float
    attention_flops_per_s: float
    kernel_launch_s: float
    how: str = GIVEN

    def __post_init__(self) -> None:
        for name in (*_RATES, "kernel_launch_s"):
            value, allowed = getattr(self, name), "above 0" if name in _RATES else "0 or more"
            if not is_number(value) or value < 0 or (value == 0 and name in _RATES):
                raise ValueError(f"machine.{name}: {value!r} is not allowed; allowed: {allowed}, finite")
        for name in ("device", "dtype"):
            if not isinstance(getattr(self, name), str) or not getattr(self, name):
                raise ValueError(f"machine.{name}: {getattr(self, name)!r} is not allowed; allowed: a name")
        if self.how not in (MEASURED, GIVEN):
            raise ValueError(f"machine.how: {self.how!r} is not known; allowed: {MEASURED}, {GIVEN}")

    def describe(self) -> str:
        """One line for the footer of a table."""
        return (
            f"{self.device}, {self.dtype}, {self.how}: reads {self.read_bytes_per_s / 1e9:.4g} GB/s, matmul "
            f"{self.matmul_flops_per_s / 1e12:.3g} TFLOP/s, attention {self.attention_flops_per_s / 1e12:.3g} TFLOP/s, "
            f"{self.kernel_launch_s * 1e6:.3g} us per kernel"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpertsShape:
    """Mixture of experts: number of layers with experts, experts per layer, and bytes read per expert."""

    num_layers: int
    num_experts: int
    expert_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ForwardShape:
    """Sizes of one model's pass, or of one rank's part of it.

    layer_params: parameters of the layers that a row is multiplied by, without lm_head; for a mixture, with only the
    experts selected for a row. first_params: additional ones in the first pass of a round. head_params: of lm_head,
    with vocab_size outputs. number_bytes: size of a cached number, and of a weight unless layer_bytes gives the bytes
    that the layers read, without experts. fast_params: the part of layer_params that is multiplied as E4M3.
    last_params: the part that in the first pass only rows with logits are multiplied by (what follows attention in a
    head). num_kernels: without lm_head; num_head_kernels: of lm_head and sampling. num_ranks: the pass has `num_sums`
    all-reduces among these, `sum_bytes` per row.
    """

    layer_params: int
    first_params: int
    head_params: int
    vocab_size: int
    num_layers: int
    num_q_heads: int
    num_kv_heads: int
    head_dim: int
    number_bytes: int
    num_kernels: int
    num_head_kernels: int
    num_ranks: int = 1
    num_sums: int = 0
    sum_bytes: int = 0
    fast_params: int = 0
    last_params: int = 0
    layer_bytes: int | None = None
    experts: ExpertsShape | None = None

    def __post_init__(self) -> None:
        for own in fields(self):
            value, least = getattr(self, own.name), 0 if own.name in _MAY_BE_ZERO else 1
            if value is None or isinstance(value, ExpertsShape):
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ValueError(f"shape.{own.name}: {value!r} is not allowed; allowed: whole numbers, {least} or more")

    def read_bytes(self, experts: float) -> float:
        """Bytes that the layers read in a pass; `experts`: number that each layer of a mixture reads."""
        dense = self.layer_params * self.number_bytes if self.layer_bytes is None else self.layer_bytes
        return dense + self.expert_bytes(experts)

    def expert_bytes(self, experts: float) -> float:
        return experts * self.experts.num_layers * self.experts.expert_bytes if self.experts else 0

    @property
    def kv_bytes_per_token(self) -> int:
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * self.number_bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Forwards:
    """The passes of a round: the target over num_drafts + 1 rows, and a drafter (None: drafts need no pass) over
    `depth` levels of `topk` rows; a chain of K drafts has K levels of one row."""

    dtype: str
    target: ForwardShape
    drafter: ForwardShape | None
    num_drafts: int
    depth: int
    topk: int


@dataclass(frozen=True, kw_only=True, slots=True)
class MeanRound:
    """The mean decode round of an arm.

    context: cached tokens per request. rates[i]: share of a request's rounds that accepted draft i + 1, including
    rounds without drafts. tokens: kept per request. phases_ms add up to duration_ms (`other`: outside the ideal's
    phases); empty without phase times. source: plain, or instrumented: the shares of another capture, not its times.
    first_rows: rows per request of the first drafter pass. experts: number that a layer of the target reads in its
    pass; None for a model without experts, or if they were not counted.
    """

    batch: float
    context: float
    rates: tuple[float, ...]
    tokens: float
    first_rows: float
    duration_ms: float
    phases_ms: Mapping[str, float] = field(default_factory=dict)
    source: str = ""
    experts: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class IdealArm:
    """An arm's mean round next to the ideal one. `unknown`: why the ideal is unknown; empty if it is known.

    measured is None if no decode round was measured; ideal_ms (by phase, PHASES) and limits_ms (the same time by
    LIMITS; empty in older records) are empty if unknown. free_rows: number of target rows up to which reading the
    weights takes longer than multiplying by them; None for a mixture, where more rows read more experts. expert_bytes:
    of the experts that the target's pass reads. The last three follow from the others; efficiency: ideal / measured, 1
    is the machine's limit.
    """

    label: str
    strategy: str
    measured: MeanRound | None
    ideal_ms: Mapping[str, float] = field(default_factory=dict)
    ideal_speedup: float | None = None
    measured_speedup: float | None = None
    free_rows: float | None = None
    unknown: str = ""
    limits_ms: Mapping[str, float] = field(default_factory=dict)
    expert_bytes: float | None = None
    ideal_round_ms: float | None = field(init=False, default=None)
    measured_round_ms: float | None = field(init=False, default=None)
    efficiency: float | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        ideal_ms = sum(self.ideal_ms.values()) if self.ideal_ms else None
        measured_ms = self.measured.duration_ms if self.measured else None
        object.__setattr__(self, "ideal_round_ms", ideal_ms)
        object.__setattr__(self, "measured_round_ms", measured_ms)
        object.__setattr__(self, "efficiency", ideal_ms / measured_ms if ideal_ms and measured_ms else None)

    @property
    def limit(self) -> str:
        """The limit that takes most of the ideal round; empty if unknown."""
        return max(self.limits_ms, key=self.limits_ms.__getitem__, default="")
