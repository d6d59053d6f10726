"""The ideal time of a round: every weight and cached token read once, every product at full rate, no waiting.

Notation: B requests of L cached tokens, q rows each; W bytes and P numbers of weights, kappa bytes a cached token; beta
bytes/s read, phi products' FLOP/s, eps seconds a kernel. One pass takes

    t(B, q, L) = max(W / beta, 2 P B q / phi) + max(kappa B (L + q) / beta, 4 n_layers Hq D B q L / phi_attention)
                 + n_kernels eps

(the roofline of Williams et al. 2009, for matrix products and attention apart), and a round

    T = t_target(B, 1 + K) + t_sampling + t_drafter,first + (K - 1) t_drafter(B, 1)

With tau tokens a round the speed-up over decoding without speculation is S = tau (t_target(B, 1) + t_sampling) / T
(of_run.py, with the tokens that were measured). Leviathan et al. 2023 (arXiv 2211.17192) have the case in which
verifying costs what one token costs.
"""

from __future__ import annotations

from dataclasses import dataclass

from specbench.harness.store.roofline_record import Machine
from specbench.harness.text import is_number

from .shape import ForwardShape

PHASES = ("verify", "accept", "draft_first", "draft_next")
SAMPLING_BYTES = 12.0
"""Moved a logit by softmax sampling: three passes over fp32."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Round:
    """Rows of a round, a request: `verify_rows` of the target, `first_rows` of the first drafter pass, then `num_next`
    passes of `next_rows`. All may be means. ValueError for what no round has."""

    batch: float
    context: float
    verify_rows: float = 1
    first_rows: float = 0
    num_next: int = 0
    next_rows: float = 1

    def __post_init__(self) -> None:
        least = {"batch": 0, "context": 0, "verify_rows": 1, "first_rows": 0, "num_next": 0, "next_rows": 1}
        for name, bound in least.items():
            value = getattr(self, name)
            if not is_number(value) or value < bound or (name == "batch" and value == 0):
                sign = ">" if name == "batch" else ">="
                raise ValueError(f"round.{name}: {value!r} is not allowed; must be {sign} {bound} and finite")

    @staticmethod
    def tree(
        batch: float, context: float, *, num_nodes: int, depth: int, topk: int, first_rows: float | None = None
    ) -> Round:
        """D nodes verified, root included, on `depth` levels of k drafts each, of which a pass a level. A chain of K
        drafts has K levels of one; K = 0 is decoding without speculation.

        The first pass runs the accepted path padded to its longest, depth + 1 rows, unless `first_rows` says how many:
        where rejected rows are left out, the mean of accepted + 1.
        """
        for name, value, least in (("num_nodes", num_nodes, depth + 1), ("depth", depth, 0), ("topk", topk, 1)):
            if not isinstance(value, int) or value < least:
                raise ValueError(f"{name}: {value!r} is not allowed; must be a whole number >= {least}")
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


def pass_s(
    machine: Machine,
    shape: ForwardShape,
    *,
    batch: float,
    rows: float,
    context: float,
    head_rows: float,
    first: bool = False,
) -> float:
    """Seconds of one forward pass; `head_rows`: rows a request that lm_head turns to logits, 0 leaves lm_head out."""
    m, s = machine, shape
    layer_params = s.layer_params + (s.first_params if first else 0)
    read_bytes = (layer_params + (s.head_params if head_rows else 0)) * s.number_bytes
    flops = 2 * batch * (layer_params * rows + s.head_params * head_rows)
    products_s = max(read_bytes / m.read_bytes_per_s, flops / m.matmul_flops_per_s)
    attention_flops = 4 * s.num_layers * s.num_q_heads * s.head_dim * batch * rows * context
    kv_s = s.kv_bytes_per_token * batch * (context + rows) / m.read_bytes_per_s
    attention_s = max(kv_s, attention_flops / m.attention_flops_per_s)
    num_kernels = s.num_kernels + (s.num_head_kernels if head_rows else 0)
    return products_s + attention_s + num_kernels * m.kernel_launch_s


def head_s(machine: Machine, shape: ForwardShape, rows: float) -> float:
    """Seconds of lm_head alone over `rows` rows in all."""
    read_s = shape.head_params * shape.number_bytes / machine.read_bytes_per_s
    flops_s = 2 * shape.head_params * rows / machine.matmul_flops_per_s
    return max(read_s, flops_s) + shape.num_head_kernels * machine.kernel_launch_s


def sampling_s(machine: Machine, shape: ForwardShape, rows: float, logit_bytes: float = SAMPLING_BYTES) -> float:
    return logit_bytes * rows * shape.vocab_size / machine.read_bytes_per_s


def round_s(
    machine: Machine,
    target: ForwardShape,
    drafter: ForwardShape | None,
    r: Round,
    logit_bytes: float = SAMPLING_BYTES,
) -> dict[str, float]:
    """Seconds by phase, named as in PHASES. lm_head of the target counts under `accept`, as in the engine; `drafter` is
    None where drafts cost no forward pass (n-gram)."""
    rows = r.batch * r.verify_rows
    phases = {
        "verify": pass_s(machine, target, batch=r.batch, rows=r.verify_rows, context=r.context, head_rows=0),
        "accept": head_s(machine, target, rows) + sampling_s(machine, target, rows, logit_bytes),
        "draft_first": 0.0,
        "draft_next": 0.0,
    }
    if drafter is not None and r.first_rows:
        # Only the last accepted row of a request becomes a draft.
        phases["draft_first"] = pass_s(
            machine, drafter, batch=r.batch, rows=r.first_rows, context=r.context, head_rows=1, first=True
        )
        phases["draft_next"] = r.num_next * pass_s(
            machine, drafter, batch=r.batch, rows=r.next_rows, context=r.context, head_rows=r.next_rows
        )
    return phases


def free_rows(machine: Machine, shape: ForwardShape) -> float:
    """Rows (B times 1 + K) up to which reading the weights takes longer than multiplying: phi s / (2 beta).

    Up to there verification costs about what one token costs; the batch at the knee is this over 1 + K.
    """
    return machine.matmul_flops_per_s * shape.number_bytes / (2 * machine.read_bytes_per_s)
