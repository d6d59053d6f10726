"""Types that check values of foreign files as they are read."""

from __future__ import annotations

import math
from typing import Annotated

import msgspec

from specbench.workloads.json_values import Json

Seconds = Annotated[float, msgspec.Meta(ge=0, le=9e9)]  # fits in an int64 as ns
Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Duration = Annotated[float, msgspec.Meta(gt=0, le=9e9)]
Rate = Annotated[float, msgspec.Meta(ge=0, le=1)]


def arrival_rate(rate: Json) -> Json:
    """Requests per second, not yet checked; None if all arrived at once, which tools write as infinity."""
    return None if rate == "inf" or (isinstance(rate, float) and not math.isfinite(rate)) else rate
