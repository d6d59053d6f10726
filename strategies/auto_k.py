"""`k=auto`: chooses the number of drafts of each round by load and recent acceptance, from a table measured by
`sweep`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from specbench.harness.engines.native.core.draft_counts import DraftCounts, TableDrafts
from specbench.harness.engines.native.core.strategy import Strategy

_K = TypeVar("_K", bound="AutoK")
_AUTO, _OWN = "auto", ("k", "k_table")


@dataclass(frozen=True, kw_only=True)
class AutoK(Strategy):
    """A chain. With `k_table`, `k` is the maximum number of drafts per round."""

    k: int = 4
    k_table: str = ""

    @classmethod
    def of(cls: type[_K], options: Mapping[str, str]) -> _K:
        """`k=auto` becomes the maximum in its table. ValueError without a matching table, and for a table
        without `k=auto`."""
        is_auto, has_table = options.get("k") == _AUTO, "k_table" in options
        if is_auto and not has_table:
            raise ValueError(f"{cls.name}: k=auto needs k_table=FILE, the draft_table.json of a `specbench sweep`")
        if has_table and not is_auto:
            raise ValueError(f"{cls.name}: k_table is not allowed with k={options.get('k', '(default)')}; give k=auto")
        if not is_auto and options.get("k", "").lower() == _AUTO:
            raise ValueError(f"{cls.name}: k={options['k']!r} is not allowed; allowed: a whole number, or auto")
        if not is_auto:
            return super().of(options)
        return super().of({**options, "k": str(cls._read(options).choices[-1])})

    def draft_counts(self) -> DraftCounts:
        """ValueError if the table has changed since the strategy was created."""
        if not self.k_table:
            return super().draft_counts()
        counts = self._read({field.name: str(getattr(self, field.name)) for field in dataclasses.fields(self)})
        if counts.choices[-1] != self.depth:
            raise ValueError(
                f"k_table: {self.k_table} has changed: up to {counts.choices[-1]} drafts, not {self.depth}"
            )
        return counts

    @classmethod
    def _read(cls, options: Mapping[str, str]) -> TableDrafts:
        own = {key: value for key, value in options.items() if key not in _OWN}
        defaults = {field.name: str(field.default) for field in dataclasses.fields(cls)}
        return TableDrafts.read(Path(options["k_table"]), cls.name, own, defaults)
