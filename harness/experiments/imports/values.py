"""Values of foreign files that are checked as they are read."""

from __future__ import annotations

from typing import Annotated

import msgspec

Seconds = Annotated[float, msgspec.Meta(ge=0, le=9e9)]  # in ns within an int64
Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Rate = Annotated[float, msgspec.Meta(ge=0, le=1)]
