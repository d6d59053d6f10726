"""How close two tokens must be to count as a tie: what the arithmetic of a dtype can flip, and nothing more.

fp32: 1e-4 in logits, fixed. Any other dtype: measured on the model itself, with dense passes without the engine, so
that no fault of the engine can widen it. An engine that computes logits l + e in place of l emits y instead of the best
token b only where l_b - l_y <= e_y - e_b. The noise of a position is the largest |e_c - e_b| among its 16 best tokens
c, over passes with the rows of one verification, of a full batch and of the whole text. The tolerance is 1.5 times the
largest observed noise, because more outputs are judged than it was measured on.

Errors are those of the noisiest position, so this bound is a ceiling for single tokens and loose for most: in bf16, the
two best tokens of a third of all positions are closer than it. A tolerance for each position would not be a sharper
test: three passes do not bound the tail of a position's error (in the tests, a correct engine exceeds it threefold at
one position in a thousand). Errors hidden below the ceiling show in the sum of all regrets: excess.py.

Legend: R output positions, V vocabulary, C best tokens of a position.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specbench.harness.engines.native.models.llama import LlamaModel
from specbench.harness.quality.certificate.scores import output_logits

FP32_TOLERANCE = 1e-4
ROWS_A_PASS = (5, 32, None)  # of one request's verification, of a full batch's, of the whole text
NUM_TEXTS = 8
_NUM_CANDIDATES = 16
_MARGIN = 1.5
MAX_UNDECIDED = 0.5  # a tolerance that excuses more than half of all positions proves nothing


@dataclass(frozen=True, kw_only=True, slots=True)
class Tolerance:
    """`logits`: the largest gap that counts as a tie. `undecided`: share of positions whose two best are that close."""

    logits: float
    undecided: float
    num_positions: int
    is_exact: bool  # fp32: drafters must agree round by round too
    method: str

    @property
    def is_sharp(self) -> bool:
        return self.undecided <= MAX_UNDECIDED


Text = tuple[Sequence[int], Sequence[int]]  # prompt, output


def is_exact(target: LlamaModel) -> bool:
    """Whether nothing needs to be measured."""
    return target.dtype == torch.float32


def arranged_logits(target: LlamaModel, prompt: Sequence[int], output: Sequence[int]) -> list[Tensor]:
    """fp32 [R, V] for every arrangement of ROWS_A_PASS, in the model's own arithmetic; empty for fp32."""
    return [] if is_exact(target) else [output_logits(target, prompt, output, rows) for rows in ROWS_A_PASS]


def _noise(error_RC: Tensor) -> float:
    """Column 0 is the best token's."""
    return float((error_RC - error_RC[:, :1]).abs().max())


def measure_tolerance(target: LlamaModel, exact: LlamaModel, texts: Sequence[Text]) -> Tolerance:
    """`exact`: the fp32 twin of `target`. At most NUM_TEXTS of `texts` are used."""
    gaps: list[Tensor] = []
    noise = 0.0
    for prompt, output in texts[:NUM_TEXTS]:
        exact_RV = output_logits(exact, prompt, output)
        best = exact_RV.topk(min(_NUM_CANDIDATES, exact_RV.shape[1]), dim=1)
        gaps.append(best.values[:, 0] - best.values[:, 1])
        for logits_RV in arranged_logits(target, prompt, output):
            noise = max(noise, _noise(logits_RV.gather(1, best.indices) - best.values))
    gap_N = torch.cat(gaps)
    logits = FP32_TOLERANCE if is_exact(target) else _MARGIN * noise
    return Tolerance(
        logits=logits,
        undecided=float((gap_N < logits).float().mean()),
        num_positions=len(gap_N),
        is_exact=is_exact(target),
        method="fixed for fp32" if is_exact(target) else _method(),
    )


def _method() -> str:
    rows = ", ".join("all" if rows is None else str(rows) for rows in ROWS_A_PASS)
    return f"{_MARGIN:g} x largest error against fp32, {rows} rows a pass"
