"""The ideal time of a round: every weight and cached token read once, every product at full rate, no waiting.

Notation: B requests of L cached tokens, q rows each; W bytes of weights as they are stored, of a mixture the experts
that were read; P numbers that a row is multiplied by, those in E4M3 counted half, since products of them are twice as
fast; kappa bytes a cached token; beta bytes/s read, phi products' FLOP/s, eps seconds a kernel; of N ranks, each with
its part of all sizes: h bytes of a row that is summed over them, lambda_N seconds and beta_N bytes/s of a sum (gathered
logits are left out). One pass takes

    t(B, q, L) = max(W / beta, 2 P B q / phi) + max(kappa B (L + q) / beta, 4 n_layers Hq D B q L / phi_attention)
                 + n_kernels eps + n_sums (lambda_N + h B q / beta_N)

(the roofline of Williams et al. 2009, for matrix products and attention apart; no lower bound where kernels start
while others run, as our engine's do, since their n_kernels eps are then hidden), and a round

    T = t_target(B, 1 + K) + t_sampling + t_drafter,first + (K - 1) t_drafter(B, 1)

With tau tokens a round the speed-up over decoding without speculation is S = tau (t_target(B, 1) + t_sampling) / T
(of_run.py, with the tokens that were measured). Leviathan et al. 2023 (arXiv 2211.17192) have the case in which
verifying costs what one token costs.
"""

from __future__ import annotations

from dataclasses import dataclass

from specbench.harness.store.roofline_record import ForwardShape, Machine
from specbench.harness.text import is_number

PHASES = ("verify", "accept", "draft_first", "draft_next")
WEIGHTS, KV_CACHE, PRODUCTS, ATTENTION, KERNELS, LOGITS, SUMS = LIMITS = (
    "reading weights",
    "reading the KV cache",
    "matrix products",
    "attention products",
    "starting kernels",
    "reading logits",
    "summing over GPUs",
)
"""What the ideal time goes into, where each part waits for the slower of reading and multiplying."""
# What one sum takes at least, in seconds, and its bytes/s, by device and number of them: the fastest method in a CUDA
# graph. H200s over NV18: 2.5 us (two) and 4.5 us (four) at 8 KiB, 32.5 and 50.4 us at 8 MiB; no median of eleven sizes
# is below this line.
STATED_SUMS = {("NVIDIA H200", 2): (2.3e-6, 3.3e11), ("NVIDIA H200", 4): (4.4e-6, 2.1e11)}
SAMPLING_BYTES = 12.0
"""Bytes moved per logit by softmax sampling: three passes over fp32."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Round:
    """Rows per round and request: `verify_rows` of the target, `first_rows` of the first drafter pass, then `num_next`
    passes of `next_rows`; `experts` that each layer of a mixture reads in the target's pass. All may be means.
    ValueError for impossible values."""

    batch: float
    context: float
    verify_rows: float = 1
    first_rows: float = 0
    num_next: int = 0
    next_rows: float = 1
    experts: float = 0

    def __post_init__(self) -> None:
        least = {
            "batch": 0,
            "context": 0,
            "verify_rows": 1,
            "first_rows": 0,
            "num_next": 0,
            "next_rows": 1,
            "experts": 0,
        }
        for name, bound in least.items():
            value = getattr(self, name)
            if not is_number(value) or value < bound or (name == "batch" and value == 0):
                least_allowed = "above 0" if name == "batch" else f"{bound} or more"
                raise ValueError(f"round.{name}: {value!r} is not allowed; allowed: {least_allowed}, finite")

    @staticmethod
    def tree(
        batch: float, context: float, *, num_nodes: int, depth: int, topk: int, first_rows: float | None = None
    ) -> Round:
        """D verified nodes, including the root, on `depth` levels of k drafts each, with one pass per level. A chain of
        K drafts has K levels of one; K = 0 is decoding without speculation.

        The first pass runs the accepted path padded to its maximum, depth + 1 rows, unless `first_rows` gives the
        number: without rejected rows, the mean of accepted + 1.
        """
        for name, value, least in (("num_nodes", num_nodes, depth + 1), ("depth", depth, 0), ("topk", topk, 1)):
            if not isinstance(value, int) or value < least:
                raise ValueError(f"{name}: {value!r} is not allowed; allowed: a whole number, {least} or more")
        if depth == 0:
            return Round(batch=batch, context=context)
        return Round(
            batch=batch,
            context=context,
            verify_rows=num_nodes,
            first_rows=depth + 1 if first_rows is None else first_rows,
            num_next=depth - 1,
            next_rows=topk,
        )


def pass_parts_s(
    machine: Machine,
    shape: ForwardShape,
    *,
    batch: float,
    rows: float,
    context: float,
    head_rows: float,
    first: bool = False,
    experts: float = 0,
) -> dict[str, float]:
    """Seconds of one forward pass by limit; `head_rows`: rows per request that lm_head turns into logits, 0 leaves
    lm_head out."""
    m, s = machine, shape
    first_params, head_params = (s.first_params if first else 0), (s.head_params if head_rows else 0)
    read_bytes = s.read_bytes(experts) + (first_params + head_params) * s.number_bytes
    last_params = s.last_params if first else 0
    flops = (
        2 * batch * ((_layer_work(s) + first_params - last_params) * rows + (s.head_params + last_params) * head_rows)
    )
    attention_flops = 4 * s.num_layers * s.num_q_heads * s.head_dim * batch * rows * context
    kv_s = s.kv_bytes_per_token * batch * (context + rows) / m.read_bytes_per_s
    num_kernels = s.num_kernels + (s.num_head_kernels if head_rows else 0)
    sums_s = s.num_sums * sum_s(m, s.num_ranks, batch * rows * s.sum_bytes)
    return {
        **_slower(WEIGHTS, read_bytes / m.read_bytes_per_s, PRODUCTS, flops / m.matmul_flops_per_s),
        **_slower(KV_CACHE, kv_s, ATTENTION, attention_flops / m.attention_flops_per_s),
        KERNELS: num_kernels * m.kernel_launch_s,
        **({SUMS: sums_s} if sums_s else {}),
    }


def can_sum(machine: Machine, num_ranks: int) -> bool:
    """Whether the time of an all-reduce over this number of ranks is known."""
    return num_ranks == 1 or (machine.device, num_ranks) in STATED_SUMS


def sum_s(machine: Machine, num_ranks: int, num_bytes: float) -> float:
    """Seconds of one all-reduce of this many bytes per rank; 0 on one rank."""
    if num_ranks == 1:
        return 0.0
    latency_s, bytes_per_s = STATED_SUMS[machine.device, num_ranks]
    return latency_s + num_bytes / bytes_per_s


def _layer_work(shape: ForwardShape) -> float:
    """Weights that the layers multiply each row by, in products of the machine's dtype."""
    return shape.layer_params - shape.fast_params / 2


def head_parts_s(machine: Machine, shape: ForwardShape, rows: float) -> dict[str, float]:
    """Seconds of lm_head alone over `rows` rows in all."""
    read_s = shape.head_params * shape.number_bytes / machine.read_bytes_per_s
    flops_s = 2 * shape.head_params * rows / machine.matmul_flops_per_s
    kernels_s = shape.num_head_kernels * machine.kernel_launch_s
    return {**_slower(WEIGHTS, read_s, PRODUCTS, flops_s), KERNELS: kernels_s}


def _slower(read: str, read_s: float, multiply: str, multiply_s: float) -> dict[str, float]:
    return {read: read_s} if read_s >= multiply_s else {multiply: multiply_s}


def sampling_s(machine: Machine, shape: ForwardShape, rows: float, logit_bytes: float = SAMPLING_BYTES) -> float:
    return logit_bytes * rows * shape.vocab_size / machine.read_bytes_per_s


def round_parts_s(
    machine: Machine, target: ForwardShape, drafter: ForwardShape | None, r: Round, logit_bytes: float = SAMPLING_BYTES
) -> dict[str, dict[str, float]]:
    """Seconds by phase (PHASES) and limit. lm_head of the target counts under `accept`, as in the engine; `drafter` is
    None where drafts cost no forward pass (n-gram)."""
    rows = r.batch * r.verify_rows
    logits_s = sampling_s(machine, target, rows, logit_bytes)
    phases: dict[str, dict[str, float]] = {
        "verify": pass_parts_s(
            machine, target, batch=r.batch, rows=r.verify_rows, context=r.context, head_rows=0, experts=r.experts
        ),
        "accept": {**head_parts_s(machine, target, rows), LOGITS: logits_s},
        "draft_first": {},
        "draft_next": {},
    }
    if drafter is not None and r.first_rows:
        # Only the last accepted row of a request becomes a draft.
        phases["draft_first"] = pass_parts_s(
            machine, drafter, batch=r.batch, rows=r.first_rows, context=r.context, head_rows=1, first=True
        )
        later = pass_parts_s(
            machine, drafter, batch=r.batch, rows=r.next_rows, context=r.context, head_rows=r.next_rows
        )
        phases["draft_next"] = {limit: r.num_next * seconds for limit, seconds in later.items()}
    return phases


def free_rows(machine: Machine, shape: ForwardShape) -> float:
    """Rows (B times 1 + K) up to which reading the layers takes longer than multiplying: phi W / (2 beta P).

    Not for a mixture of experts, where more rows read more experts. Up to this number, verification costs about as much
    as one token; the batch at the knee is this divided by 1 + K.
    """
    per_number = shape.read_bytes(0) / _layer_work(shape)
    return machine.matmul_flops_per_s * per_number / (2 * machine.read_bytes_per_s)
