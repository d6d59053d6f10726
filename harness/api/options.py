"""Keyword options: checked like those of the command line, and recorded as the equivalent command."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from specbench.harness.spec.fields import Option, named_values, option_named, values_of
from specbench.harness.spec.options import OutputOptions, RunOptions
from specbench.harness.spec.spellings import by_own_name

Value = str | int | float | bool | Path | Sequence[str] | Sequence[int] | None
Side = str | Mapping[str, Value]
AnyOptions = TypeVar("AnyOptions", bound=OutputOptions)


def read(
    kind: type[AnyOptions], options: AnyOptions | None, named: Mapping[str, Value]
) -> tuple[AnyOptions, list[str]]:
    """The options, given as an object or by name, and the equivalent words. ValueError naming an invalid option."""
    schema = kind.schema()
    if options is None:
        return kind.of(named_values(named, schema)), words_of(named, schema)
    if named:
        raise ValueError(f"{next(iter(named))}: options are given as an object or by name, not both")
    changed = {name for name, said in schema.items() if getattr(options, name) != said.default}
    given = options.given or frozenset(changed)  # an object that `of` has not made does not know them
    values = {name: getattr(options, name) for name in schema if name in given}
    return replace(options, given=given), words_of(values, schema)


def side_text(side: Side) -> str:
    return side if isinstance(side, str) else shlex.join(words_of(side, RunOptions.schema()))


def words_of(named: Mapping[str, Value], schema: Mapping[str, Option]) -> list[str]:
    """`--name value ...`; several values repeat the flag, or become 1,2,4 for an option that takes such a list.

    ValueError as for `values_of`: no words would mean the default; and for two spellings of one option.
    """
    given = (name for name, value in named.items() if value is not None)
    by_own_name(given, lambda name: said.name if (said := option_named(name, schema)) else name)
    words: list[str] = []
    for name, value in named.items():
        said = option_named(name, schema)
        flag = schema[name].flag if name in schema else f"{'-' if len(name) == 1 else '--'}{name.replace('_', '-')}"
        if value is None or value is False:
            continue
        several = values_of(name, value)
        if value is True:
            words.append(flag)
        elif said is not None and said.is_many:
            words += [word for item in several for word in (flag, str(item))]
        else:
            words += [flag, ",".join(map(str, several))]
    return words
