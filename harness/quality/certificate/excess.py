"""Whether an arm's tokens, all together, are further below the best than the target's own arithmetic explains.

After every token of the arm's text, the target itself, in its own dtype and with a dense pass, would also have chosen
some token. If the arm differs from that pass only in the order of its sums, the two are exchangeable at each position:
the difference of their regrets is positive as often as negative. For independent symmetric differences d, the bound
P(sum d >= z sqrt(sum d^2)) <= exp(-z^2 / 2) holds for every sample size and every distribution (Efron 1969, by
Hoeffding's inequality over random signs). It needs neither normality nor a known variance, and a few flips cannot
trigger it: k equal ones give z = sqrt(k), so fewer than 14 never fail.

An arm fails if this p is below 0.001 and its regrets sum to more than 1.5 times the target's. The second condition
allows for kernels that round a little more than dense ones: regret grows with the square of the noise, so 1.5 is 22 %
more noise. Of the arrangements of rows, the one with the largest regret of its own is used.

SmolLM2-135M-Instruct in bf16, 24 prompts of 32 tokens, EAGLE-3 k=3: if an engine accepts drafts within 0.6 logits of
the best, every token stays below the tolerance of 0.76, but its regrets sum to 13.8, against 1.03 for the target's own
(p <= 6e-7). Without the fault they sum to 0.33, against 0.83 for the target's.

Legend: A arrangements of rows, N positions of all texts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

FALSE_ALARM = 1e-3
MAX_RATIO = 1.5


@dataclass(frozen=True, kw_only=True, slots=True)
class Excess:
    """Sums of regrets in logits over the same positions; disputed: positions where the arm did not choose the fp32
    best."""

    num_positions: int
    num_disputed: int
    total: float
    target_num_disputed: int
    target_total: float
    statistic: float  # z

    @property
    def p_value(self) -> float:
        """Upper bound of the chance of such an excess without a fault."""
        return 1.0 if self.statistic <= 0 else math.exp(-0.5 * self.statistic**2)  # NaN stays NaN

    @property
    def ok(self) -> bool:
        """False for NaN."""
        return self.p_value >= FALSE_ALARM or self.total <= MAX_RATIO * self.target_total


def measure_excess(regret_N: Tensor, target_AN: Tensor) -> Excess:
    """`target_AN`: the target's own regrets at the same positions, by arrangement."""
    worst_N = target_AN[int(target_AN.sum(dim=1).argmax())].double()
    difference_N = regret_N.double() - worst_N
    size = float(difference_N.square().sum().sqrt())
    return Excess(
        num_positions=len(regret_N),
        num_disputed=int((regret_N > 0).sum()),
        total=float(regret_N.sum()),
        target_num_disputed=int((worst_N > 0).sum()),
        target_total=float(worst_N.sum()),
        statistic=float(difference_N.sum()) / size if size else 0.0,
    )
