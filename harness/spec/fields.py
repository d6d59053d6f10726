"""Options as the fields of a frozen dataclass: each states its help, group, unit, allowed values and default, once.

They define the command line (cli/derived.py), the keys of TOML files, the sides of an A/B and the Python API.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import MISSING, dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar, TypeVar

from specbench.harness.text import nearest

from .spellings import as_written, by_own_name, canonical, check_keys, check_renamed, key_of, one_each

Value = str | int | float | bool | Path | tuple[str, ...] | tuple[int, ...] | tuple[float, ...] | None
AnyOptions = TypeVar("AnyOptions", bound="Options")


@dataclass(frozen=True, kw_only=True, slots=True)
class Option:
    """Metadata of a field, completed from its annotation and default when a schema is built.

    group: heading in the help. least, most: bounds of a number. choices: allowed words, listed in the help. flags:
    spellings in addition to, or instead of, the field's name. kind: type of one value. is_many: may be repeated.
    """

    help: str
    group: str = ""
    unit: str = ""
    choices: tuple[str, ...] = ()
    least: int | None = None
    most: int | None = None
    flags: tuple[str, ...] = ()
    metavar: str | None = None
    name: str = ""
    kind: type = str
    default: Value = None
    is_many: bool = False
    is_required: bool = False

    @property
    def flag(self) -> str:
        return self.flags[0]

    @property
    def names(self) -> tuple[str, ...]:
        """As a key: the field's name, and those of its long flags."""
        return (self.name, *(key_of(flag) for flag in self.flags if flag.startswith("--")))

    @property
    def allowed_numbers(self) -> str:
        """`0 to 20` or `1 or more`; empty where no bound is stated."""
        if self.least is None:
            assert self.most is None, f"{self.name}: states its upper bound only"
            return ""
        return f"{self.least} or more" if self.most is None else f"{self.least} to {self.most}"


def option(default: object = MISSING, help: str = "", *, flags: str = "", **attributes: typing.Any) -> typing.Any:
    """A field of an options dataclass. `flags`: separated by spaces; `attributes`: further fields of Option."""
    metadata = {"option": Option(help=help, flags=tuple(flags.split()), **attributes)}
    return dataclasses.field(default=default, metadata=metadata)  # type: ignore[call-overload]


def changed(kind: type[Options], name: str, default: object = MISSING, **attributes: typing.Any) -> typing.Any:
    """A field of another class, with a different default, help or other attribute."""
    theirs = kind.__dataclass_fields__[name]
    metadata = {"option": dataclasses.replace(theirs.metadata["option"], **attributes)}
    default = theirs.default if default is MISSING else default
    return dataclasses.field(default=default, metadata=metadata)  # type: ignore[call-overload]


@dataclass(frozen=True, kw_only=True)
class Options:
    """Base of options dataclasses. Raises ValueError naming the field, its value and what is allowed."""

    EXCLUDED: ClassVar[frozenset[str]] = frozenset()  # inherited fields that the user cannot set here

    def __post_init__(self) -> None:
        for name, spec in _all_options(type(self)).items():
            value = getattr(self, name)
            if spec.choices and value not in spec.choices:
                raise ValueError(f"{name}: {value!r} is not known; allowed: {', '.join(spec.choices)}")
            if spec.least is not None and value is not None and value < spec.least:
                raise ValueError(f"{name}: {value} is not allowed; allowed: {spec.allowed_numbers}")
            if spec.most is not None and value is not None and spec.most < value < math.inf:
                shown = value if isinstance(value, int) else f"{value:.15g}"
                raise ValueError(f"{name}: {shown} is not allowed; allowed: {spec.allowed_numbers}")

    @classmethod
    def schema(cls) -> dict[str, Option]:
        """The options that the user can set, by name."""
        return {name: spec for name, spec in _all_options(cls).items() if name not in cls.EXCLUDED}

    @classmethod
    def as_written(cls, keys: Iterable[str]) -> AbstractContextManager[None]:
        """Errors in it name these options as they were given."""
        return as_written(keys, (spec.names for spec in cls.schema().values()))

    @classmethod
    def of(cls: type[AnyOptions], named: Mapping[str, Value]) -> AnyOptions:
        """Options with these values; the others keep their defaults."""
        return cls(**named)  # type: ignore[arg-type]

    @classmethod
    def parse(cls: type[AnyOptions], words: Sequence[str]) -> AnyOptions:
        """From words of a command line."""
        return cls.of(parse_words(words, cls.schema()))


def all_but(kind: type[Options], kept: str) -> frozenset[str]:
    """For EXCLUDED: the options of `kind` except those listed in `kept`."""
    return frozenset(_all_options(kind)) - frozenset(kept.split())


def _all_options(kind: type[Options]) -> Mapping[str, Option]:
    return _gathered(typing.cast(typing.Any, kind))  # mypy mistakes the class for an instance


@cache
def _gathered(kind: type[Options]) -> Mapping[str, Option]:
    hints = typing.get_type_hints(kind)
    fields = [field for field in dataclasses.fields(kind) if "option" in field.metadata]
    return {field.name: _option(field, hints[field.name]) for field in fields}


def _option(field: dataclasses.Field, hint: object) -> Option:
    """The field's Option, completed from its name, annotation and default."""
    is_union = isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union
    kind: typing.Any = next(part for part in typing.get_args(hint) if part is not type(None)) if is_union else hint
    is_many, is_required = typing.get_origin(kind) is tuple, field.default is MISSING
    spec: Option = field.metadata["option"]
    has_name = any(flag.startswith("--") for flag in spec.flags)
    return dataclasses.replace(
        spec,
        name=field.name,
        kind=typing.get_args(kind)[0] if is_many else kind,
        default=None if is_required else typing.cast(Value, field.default),
        is_many=is_many,
        is_required=is_required,
        flags=spec.flags if has_name else (f"--{field.name.replace('_', '-')}", *spec.flags),
    )


def parse_words(words: Sequence[str], schema: Mapping[str, Option]) -> dict[str, Value]:
    """Parses the words of a command line: `--name value`, `--name=value`, `-n value`, `--switch`.

    Later options replace earlier ones; repeatable ones accumulate. ValueError for anything else.
    """
    by_flag = {flag: spec for spec in schema.values() for flag in spec.flags}
    values: dict[str, Value] = {}
    rest = iter(one_each(words))
    for word in rest:
        check_renamed(word, by_flag)
        flag, equals, text = canonical(word, by_flag).partition("=")
        spec = by_flag.get(flag)
        if spec is None:
            raise ValueError(f"No such option: {flag}{nearest(flag, by_flag)}")
        if spec.kind is bool:
            if equals:
                raise ValueError(f"{spec.name}: {word!r} is not allowed; {flag} takes no value")
            values[spec.name] = True
            continue
        value = read_text(spec, text if equals else next(rest, None))
        values[spec.name] = (*values.get(spec.name, ()), value) if spec.is_many else value  # type: ignore[misc, assignment]
    return values


def named_values(named: Mapping[str, object], schema: Mapping[str, Option]) -> dict[str, Value]:
    """Options from keyword arguments, named as the field or as the flag with underscores; None means not given.

    A sequence is allowed for an option that is repeatable or takes a list such as 1,2,4. ValueError for anything else.
    """
    values: dict[str, Value] = {}
    for key, value in named.items():
        spec = option_named(key, schema)
        if spec is None:
            raise ValueError(f"No such option: {key}{nearest(key, _by_keyword(schema))}")
        if value is None:
            continue
        if spec.kind is bool and not isinstance(value, bool):
            raise ValueError(f"{spec.name}: {value!r} is not allowed; allowed: True, False")
        several = values_of(spec.name, value)
        if spec.is_many:
            values[spec.name] = tuple(read_text(spec, str(item)) for item in several)  # type: ignore[assignment]
        else:
            values[spec.name] = value if spec.kind is bool else read_text(spec, ",".join(map(str, several)))  # type: ignore[assignment]
    return values


def option_named(key: str, schema: Mapping[str, Option]) -> Option | None:
    """The option of a keyword argument, by any of its spellings; None if there is none."""
    by_keyword = _by_keyword(schema)
    return by_keyword.get(canonical(key, by_keyword))


def _by_keyword(schema: Mapping[str, Option]) -> dict[str, Option]:
    return {flag.strip("-").replace("-", "_"): spec for spec in schema.values() for flag in spec.flags} | dict(schema)


def values_of(name: str, value: object) -> Sequence[object]:
    """The single value, or those of a sequence. ValueError for an empty one, which would mean the default, and for
    collections of another kind, such as sets, whose order is not told."""
    if isinstance(value, (str, Path)) or not isinstance(value, Iterable):
        return [value]
    if not isinstance(value, Sequence):
        raise ValueError(f"{name}: {value!r} is not allowed; allowed: a single value, or a list or tuple")
    if len(value) == 0:
        raise ValueError(f"{name}: {value!r} is empty; give one or more, or leave it out for the default")
    return value


def read_text(spec: Option, text: str | None) -> Value:
    """Parses one value of an option. ValueError for text that is not of its kind."""
    if text is None:
        raise ValueError(f"{spec.name}: {spec.flag} needs a value")
    refuse_empty(spec.name, text)
    try:
        if spec.kind in (int, float) and not text.isascii():
            raise ValueError("digits of another script")
        return spec.kind(text)
    except ValueError:
        what = "a whole number" if spec.kind is int else "a number"
        allowed = f"; allowed: {spec.allowed_numbers}" if spec.allowed_numbers else ""
        raise ValueError(f"{spec.name}: {text!r} is not {what}{allowed}") from None


def refuse_empty(name: str, value: object) -> None:
    """ValueError for an empty text (such as an unset variable), alone or in a list."""
    if "" in (value if isinstance(value, (list, tuple)) else [value]):
        raise ValueError(f"{name}: is empty; give a value (. means the current folder), or leave it out")


def checked_table(table: Mapping[str, object], schema: Mapping[str, Option], where: str) -> dict[str, Value]:
    """The options in a TOML table. ValueError for an unknown key or a value of the wrong type."""
    written = by_own_name(table, lambda key: canonical(key, schema), f"{where}.")
    named = {key: table[own] for key, own in written.items()}
    check_keys(named, tuple(schema), where)
    return {key: _plain_value(schema[key], value, f"{where}.{written[key]}") for key, value in named.items()}


def _plain_value(spec: Option, value: object, where: str) -> Value:
    if spec.is_many and not isinstance(value, list):
        raise ValueError(f"{where}: {value!r} is not allowed; allowed: list")
    kind = str if spec.kind is Path else spec.kind
    for item in value if isinstance(value, list) and spec.is_many else [value]:
        is_number = kind is float and type(item) is int
        if not is_number and type(item) is not kind:
            raise ValueError(f"{where}: {item!r} is not allowed; allowed: {kind.__name__}")
    refuse_empty(where, value)
    return tuple(value) if isinstance(value, list) else value  # type: ignore[return-value]
