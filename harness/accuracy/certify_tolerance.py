"""How near a tie must be to count as one: what the arithmetic of a dtype can flip, and nothing more.

fp32: 1e-4 in logits, fixed. Any other dtype: measured on the very model, without the engine, so that no fault of the
engine can widen it. At every output position of some texts the model's logits, computed 1, 5 and all rows a pass, are
compared with the fp32 logits of the same weights. A token can pass the best one only where their fp32 gap is below the
difference of their two errors: the noise of a position is the largest such difference among its 16 best tokens. The
tolerance is 1.5 times the largest noise seen, because more outputs are judged than it was measured on.
Legend: R output positions, V vocabulary, C best tokens of a position.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specbench.harness.models.llama import LlamaModel

from .certify_scores import output_logits

FP32_TOLERANCE = 1e-4
ROWS_A_PASS = (1, 5, None)
NUM_TEXTS = 8
_NUM_CANDIDATES = 16
_MARGIN = 1.5
MOST_UNDECIDED = 0.5  # a tolerance that excuses more than half of all positions proves nothing


@dataclass(frozen=True, kw_only=True, slots=True)
class Tolerance:
    """`logits`: the largest gap that counts as a tie. `undecided`: share of positions whose two best are that near.

    `row_noise`: the largest change of a gap by the number of rows alone, in logits; 0 for fp32, where it is not needed.
    """

    logits: float
    undecided: float
    row_noise: float
    num_positions: int
    is_exact: bool  # fp32: drafters must agree round by round too
    method: str

    @property
    def is_sharp(self) -> bool:
        return self.undecided <= MOST_UNDECIDED


Text = tuple[Sequence[int], Sequence[int]]  # prompt, output


def measure_tolerance(target: LlamaModel, exact: LlamaModel, texts: Sequence[Text]) -> Tolerance:
    """`exact`: the fp32 twin of `target`. At most NUM_TEXTS of `texts` are used."""
    is_fp32 = target.dtype == torch.float32
    gaps: list[Tensor] = []
    noise = row_noise = 0.0
    for prompt, output in texts[:NUM_TEXTS]:
        wide_RV = output_logits(exact, prompt, output)
        best = wide_RV.topk(min(_NUM_CANDIDATES, wide_RV.shape[1]), dim=1)
        gaps.append(best.values[:, 0] - best.values[:, 1])
        if not is_fp32:
            found = [output_logits(target, prompt, output, rows).gather(1, best.indices) for rows in ROWS_A_PASS]
            noise = max(noise, *(_noise(found_RC - best.values) for found_RC in found))
            row_noise = max(row_noise, *(_noise(found_RC - found[-1]) for found_RC in found[:-1]))
    logits = FP32_TOLERANCE if is_fp32 else _MARGIN * noise
    gap_N = torch.cat(gaps)
    return Tolerance(
        logits=logits,
        undecided=float((gap_N < logits).float().mean()),
        row_noise=row_noise,
        num_positions=len(gap_N),
        is_exact=is_fp32,
        method="fixed for fp32" if is_fp32 else f"{_MARGIN:g} x largest error against fp32, 1, 5 and all rows a pass",
    )


def _noise(error_RC: Tensor) -> float:
    """Column 0 is the best token's."""
    return float((error_RC - error_RC[:, :1]).abs().max())
