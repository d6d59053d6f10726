"""When requests arrive: together, or with gamma-distributed gaps (Poisson at burstiness 1), as in ``vllm bench``."""

from __future__ import annotations

import math

import numpy as np

_LONGEST_S = 2**53 / 1e9  # whole nanoseconds that a float can hold: 104 days


def arrival_times(num: int, request_rate: float, seed: int, burstiness: float = 1.0) -> list[float]:
    """Seconds after the start at which each of ``num`` requests is submitted, in order; the first waits its own gap.

    Gaps are gamma(shape=burstiness, scale=1/(rate*burstiness)), and the whole schedule is scaled so that the last
    request arrives at exactly num/rate: each run has the requested rate, not only the average of many runs
    (vLLM ``benchmarks/serve.py`` get_request does the same). An infinite rate means all at zero.
    Raises ValueError for a rate or burstiness that is not positive, or too small to draw gaps or count their time.
    """
    if num < 0:
        raise ValueError(f"num: {num} is not allowed; allowed: 0 or more")
    if not request_rate > 0:
        raise ValueError(f"request_rate: {request_rate} is not allowed; allowed: above 0 (inf: no limit)")
    if not (burstiness > 0 and math.isfinite(burstiness)):
        raise ValueError(f"burstiness: {burstiness} is not allowed; allowed: above 0, finite (1 is Poisson)")
    if math.isinf(request_rate) or num == 0:
        return [0.0] * num
    gaps_s = np.random.default_rng(seed).gamma(burstiness, 1.0 / (request_rate * burstiness), size=num)
    times_s = np.cumsum(gaps_s)
    if not (0 < times_s[-1] < math.inf and math.isfinite(num / request_rate / times_s[-1])):
        raise ValueError(
            f"request_rate {request_rate:g} and burstiness {burstiness:g} give gaps that no number can hold; allowed: "
            "values closer to 1"
        )
    if num / request_rate > _LONGEST_S:
        raise ValueError(
            f"request_rate: {request_rate:g} is not allowed with {num} requests; allowed: {num / _LONGEST_S:.3g} or "
            "more (inf: no limit)"
        )
    return (times_s * (num / request_rate / times_s[-1])).tolist()
