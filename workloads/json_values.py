"""Types of JSON values written by other programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias, Union

Json: TypeAlias = Union[str, int, float, None, "Sequence[Json]", "Mapping[str, Json]"]
JsonObject: TypeAlias = Mapping[str, Json]
