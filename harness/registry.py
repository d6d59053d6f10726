"""Names of lazily imported objects: nothing is imported until its name is used, so `--help` and `list` stay fast.

A new strategy, attention backend, workload or engine is one file and one line of built_in.toml, or an entry point of
another package, in the group `specbench.strategies`, `specbench.attention_backends` and so on. Built-in ones are
not entry points: a checkout must find its own files, regardless of the installed version.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from specbench.harness.text import nearest
from specbench.workloads.guarded import parse_toml

T = TypeVar("T", bound="StrategyKind")
_WHOLE = re.compile(r"-?(0|[1-9][0-9]{0,17})")  # one spelling a number: 04 would be an arm beside 4


class Table(MutableMapping[str, str]):
    """Names of one kind, each with its `module:attribute`: built-in ones first, then those of installed packages.

    `group` is the entry-point group of the packages. They are searched when a name is looked up or all are listed.
    """

    def __init__(self, group: str, built_in: Mapping[str, str]):
        self.group = group
        self.built_in = dict(built_in)

    @property
    def foreign(self) -> Mapping[str, Mapping[str, str]]:
        """By name: `module:attribute` by the package that registers it; more than one package is a conflict."""
        return _entry_points(self.group, tuple(sys.path))

    def owners(self, name: str) -> list[str]:
        """The packages that register a name, with their versions."""
        return [*(["specbench-harness"] if name in self.built_in else []), *self.foreign.get(name, ())]

    def __getitem__(self, name: str) -> str:
        return self.built_in[name] if name in self.built_in else next(iter(self.foreign[name].values()))

    def __setitem__(self, name: str, target: str) -> None:
        self.built_in[name] = target

    def __delitem__(self, name: str) -> None:
        del self.built_in[name]

    def __iter__(self) -> Iterator[str]:
        return iter({**self.built_in, **self.foreign})

    def __len__(self) -> int:
        return len({**self.built_in, **self.foreign})


@functools.lru_cache(maxsize=16)
def _entry_points(group: str, path: tuple[str, ...]) -> Mapping[str, Mapping[str, str]]:
    """`path` is sys.path, where packages are looked for."""
    from importlib.metadata import entry_points

    found: dict[str, dict[str, str]] = defaultdict(dict)
    for point in entry_points(group=group):
        found[point.name][f"{point.dist.name} {point.dist.version}" if point.dist else "unknown"] = point.value
    return dict(found)


class StrategyKind:
    """What a strategy declares, so that no other module needs to name it.

    A frozen dataclass: its fields are the options of a strategy argument (`eagle:k=4,head=DIR`).
    """

    name: ClassVar[str]
    graph: ClassVar[str]  # the graph plan it uses by default
    is_baseline: ClassVar[bool] = False  # makes no drafts; other arms are compared with it
    takes_head: ClassVar[bool] = False  # has an option `head`
    one_pass: ClassVar[bool] = False  # its head drafts all tokens of a round in one pass, over placeholders
    can_unpad: ClassVar[bool] = (
        False  # its first drafter pass runs over the verified rows: rejected ones can be left out
    )
    depth_option: ClassVar[str | None] = None  # the option that sets its longest chain of drafts of a round
    most_depth: ClassVar[int] = 8
    default_arm: ClassVar[str] = ""  # measured if the user names no arm
    cover_options: ClassVar[str | None] = None  # its options in a pairwise cover; None: not a strategy of its own there
    same_rounds_as: ClassVar[str | None] = None  # the strategy whose rounds these are, given the same plan

    def __post_init__(self) -> None:
        if self.depth_option and not 1 <= self.depth <= self.most_depth:
            raise ValueError(
                f"{self.name}: {self.depth_option}={self.depth} is not allowed; allowed: 1 to {self.most_depth}"
            )

    @property
    def depth(self) -> int:
        """Drafts of its longest chain."""
        return getattr(self, self.depth_option) if self.depth_option else 0

    @property
    def samples_drafts(self) -> bool:
        """Whether random requests draw their drafts: then what they say has the target's distribution, by other random
        numbers than without drafts."""
        return False

    @property
    def num_drafts(self) -> int:
        """Rows that a request brings to verification, less one."""
        return self.depth

    @classmethod
    def of(cls: type[T], options: Mapping[str, str]) -> T:
        """From the text values of an argument. ValueError names the key, the value and what is allowed."""
        known = {f.name: f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
        values: dict[str, str | int] = {}
        for key, text in options.items():
            if key not in known:
                raise ValueError(f"{cls.name}: unknown option {key!r}={text!r}; allowed: {', '.join(known) or 'none'}")
            is_number = isinstance(known[key].default, int)
            if is_number and not _WHOLE.fullmatch(text):
                usual = " as numbers are written" if text.removeprefix("-").isdecimal() else ""
                bounds = f"; allowed: 1 to {cls.most_depth}" if key == cls.depth_option else ""
                raise ValueError(f"{cls.name}: {key}={text!r:.40} is not a whole number{usual}{bounds}")
            values[key] = int(text) if is_number else text
        return cls(**values)


class EngineKind:
    """What an engine declares before it is created."""

    takes_program: ClassVar[bool] = False  # it is another program: an interpreter, a command, an address

    def close(self) -> None:
        """Ends what deployments shared; after all of them, and once."""

    def can_begin(self, arm: Any) -> bool:
        """Whether the arm's program may start while others do: nothing that it decides then depends on the memory that
        they take meanwhile."""
        return False

    def begin(self, arm: Any, config: Any, log: Path) -> None:
        """Starts the program of an arm that `can_begin`; its `deploy` waits for it. RuntimeError where it cannot."""
        raise NotImplementedError

    @staticmethod
    def default_arms(has_head: bool) -> list[str]:
        """Arms measured if the user names none; those with a head only if one is available."""
        kinds = [kind for kind in declared_strategies() if has_head or not kind.takes_head]
        return [kind.default_arm for kind in kinds if kind.default_arm]


_BUILT_IN = parse_toml(Path(__file__).with_name("built_in.toml").read_text(encoding="utf-8"))
ENGINES, STRATEGIES, ATTENTION_BACKENDS, STATE_UPDATES, WORKLOADS, FIGURES = TABLES = [
    Table(f"specbench.{kind}", _BUILT_IN[kind])
    for kind in ("engines", "strategies", "attention_backends", "state_updates", "workloads", "figures")
]
BASELINE = next(iter(STRATEGIES.built_in))
"""The first of the table: every speed-up is measured against the first arm that runs it, in the same run. Readers of
stored runs know it without an import."""


def lookup(table: Table, name: str, kind: str) -> Any:
    """The object registered under `name`. ValueError for an unknown name, with the known names and the nearest one;
    for a name that several packages register or that cannot be imported, with the packages."""
    if name not in table:
        raise ValueError(f"{kind}: {name!r} is not known{nearest(name, table)}; allowed: {', '.join(table)}")
    owners = table.owners(name)
    if len(owners) > 1:
        raise ValueError(f"{kind}: {name!r} is registered by {' and by '.join(owners)}; uninstall all but one")
    module, _, attribute = table[name].partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except Exception as error:  # whatever a package raises: the message names the package
        if name in table.built_in:
            raise
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise ValueError(f"{kind}: {name!r} of {owners[0]} cannot be imported: {reason}") from error


def plug_ins(checks: Mapping[str, Callable[[str], object]]) -> list[str]:
    """One line for each name of another package: where it is from, or why it cannot be used. Imports all of them.
    `checks`: by group, what loads a name where more than its import can be wrong."""
    lines = []
    for table in TABLES:
        kind = table.group.removeprefix("specbench.")
        load = checks.get(table.group) or functools.partial(lookup, table, kind=kind)
        for name in table.foreign:
            try:
                load(name)
                lines.append(f"{kind}: {name} of {table.owners(name)[0]}")
            except ValueError as error:
                lines.append(str(error))
    return lines


def strategy_class(name: str) -> type[StrategyKind]:
    """The class of a strategy, before an engine is built. Imports it, and torch with it."""
    kind = lookup(STRATEGIES, name, "strategy")
    if not (isinstance(kind, type) and issubclass(kind, StrategyKind) and kind.name == name):
        owner = STRATEGIES.owners(name)[0]
        raise ValueError(f"strategy: {name!r} of {owner}: {STRATEGIES[name]} is not a strategy of that name")
    return kind


def declared_strategies() -> list[type[StrategyKind]]:
    """All that can be used; those that take a head come last."""
    found = []
    for name in STRATEGIES:
        try:
            found.append(strategy_class(name))
        except ValueError:  # of another package, and not requested
            if name in STRATEGIES.built_in:
                raise
    return sorted(found, key=lambda kind: kind.takes_head)


def head_strategy(one_pass: bool = False) -> str:
    """The strategy in which a head of this kind is tried on its own: the first that takes one."""
    return next(kind.name for kind in declared_strategies() if kind.takes_head and kind.one_pass == one_pass)
