"""Values of foreign files that are checked as they are read."""

from __future__ import annotations

import math
from typing import Annotated

import msgspec

from specbench.workloads.json_values import Json

Seconds = Annotated[float, msgspec.Meta(ge=0, le=9e9)]  # in ns within an int64
Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Duration = Annotated[float, msgspec.Meta(gt=0, le=9e9)]
Rate = Annotated[float, msgspec.Meta(ge=0, le=1)]


def arrival_rate(told: Json) -> Json:
    """Requests a second, to be checked; None where all came at once, which is written as infinity."""
    return None if told == "inf" or (isinstance(told, float) and not math.isfinite(told)) else told
