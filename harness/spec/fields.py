"""Options as the fields of a frozen dataclass: each says its help, group, unit and what it allows, its default once.

From them come the command line (cli/derived.py), the keys of TOML files, the sides of an A/B and the Python API.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import ClassVar, TypeVar

from specbench.harness.text import nearest

from .spellings import canonical, check_keys, check_renamed

Value = str | int | float | bool | Path | tuple[str, ...] | tuple[int, ...] | tuple[float, ...] | None
AnyOptions = TypeVar("AnyOptions", bound="Options")


@dataclass(frozen=True, kw_only=True, slots=True)
class Option:
    """What a field says of itself, and, where it comes from a schema, what its annotation and default say.

    group: a heading of help. least: the smallest number allowed. choices: the words allowed; help names them. flags:
    further spellings, or others than the field's name. kind: of one value. is_many: it may be given repeatedly.
    """

    help: str
    group: str = ""
    unit: str = ""
    choices: tuple[str, ...] = ()
    least: int | None = None
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


def option(default: object = MISSING, help: str = "", *, flags: str = "", **said: typing.Any) -> typing.Any:
    """A field of an options dataclass; `flags` as words, `said` as Option has it."""
    metadata = {"option": Option(help=help, flags=tuple(flags.split()), **said)}
    return dataclasses.field(default=default, metadata=metadata)  # type: ignore[call-overload]


def changed(kind: type[Options], name: str, default: object = MISSING, **said: typing.Any) -> typing.Any:
    """The field of another class, with another default or other words."""
    theirs = kind.__dataclass_fields__[name]
    metadata = {"option": dataclasses.replace(theirs.metadata["option"], **said)}
    default = theirs.default if default is MISSING else default
    return dataclasses.field(default=default, metadata=metadata)  # type: ignore[call-overload]


@dataclass(frozen=True, kw_only=True)
class Options:
    """Base of options dataclasses. ValueError naming the field, its value and what is allowed."""

    NOT_ASKED: ClassVar[frozenset[str]] = frozenset()  # inherited fields that the user cannot set here

    def __post_init__(self) -> None:
        for name, said in _all_options(type(self)).items():
            value = getattr(self, name)
            if said.choices and value not in said.choices:
                raise ValueError(f"{name}: {value!r} is not known; allowed: {', '.join(said.choices)}")
            if said.least is not None and value is not None and value < said.least:
                raise ValueError(f"{name}: {value} is not allowed; must be >= {said.least}")

    @classmethod
    def schema(cls) -> dict[str, Option]:
        """What the user can set, by name."""
        return {name: said for name, said in _all_options(cls).items() if name not in cls.NOT_ASKED}

    @classmethod
    def of(cls: type[AnyOptions], named: Mapping[str, Value]) -> AnyOptions:
        """From the options that somebody named; the others have their defaults."""
        return cls(**named)  # type: ignore[arg-type]

    @classmethod
    def parse(cls: type[AnyOptions], words: Sequence[str]) -> AnyOptions:
        """From words of a command line."""
        return cls.of(parse_words(words, cls.schema()))


def all_but(kind: type[Options], kept: str) -> frozenset[str]:
    """For NOT_ASKED: the options of `kind` without those that are kept."""
    return frozenset(_all_options(kind)) - frozenset(kept.split())


def _all_options(kind: type[Options]) -> dict[str, Option]:
    hints = typing.get_type_hints(kind)
    fields = [field for field in dataclasses.fields(kind) if "option" in field.metadata]
    return {field.name: _option(field, hints[field.name]) for field in fields}


def _option(field: dataclasses.Field, hint: object) -> Option:
    """Completed by the field's name, annotation and default."""
    is_union = isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union
    kind: typing.Any = next(part for part in typing.get_args(hint) if part is not type(None)) if is_union else hint
    is_many, is_required = typing.get_origin(kind) is tuple, field.default is MISSING
    said: Option = field.metadata["option"]
    has_name = any(flag.startswith("--") for flag in said.flags)
    return dataclasses.replace(
        said,
        name=field.name,
        kind=typing.get_args(kind)[0] if is_many else kind,
        default=None if is_required else typing.cast(Value, field.default),
        is_many=is_many,
        is_required=is_required,
        flags=said.flags if has_name else (f"--{field.name.replace('_', '-')}", *said.flags),
    )


def parse_words(words: Sequence[str], schema: Mapping[str, Option]) -> dict[str, Value]:
    """The options that words of a command line name: `--name value`, `--name=value`, `-n value`, `--switch`.

    Later ones replace earlier ones, those that may be repeated add up. ValueError for anything else.
    """
    by_flag = {flag: said for said in schema.values() for flag in said.flags}
    found: dict[str, Value] = {}
    rest = iter(words)
    for word in rest:
        check_renamed(word, by_flag)
        flag, equals, text = canonical(word, by_flag).partition("=")
        said = by_flag.get(flag)
        if said is None:
            raise ValueError(f"No such option: {flag}{nearest(flag, by_flag)}")
        if said.kind is bool:
            if equals:
                raise ValueError(f"{said.name}: {word!r} is not allowed; {flag} takes no value")
            found[said.name] = True
            continue
        value = read_text(said, text if equals else next(rest, None))
        found[said.name] = (*found.get(said.name, ()), value) if said.is_many else value  # type: ignore[misc, assignment]
    return found


def named_values(named: Mapping[str, object], schema: Mapping[str, Option]) -> dict[str, Value]:
    """The options that keywords name, by their own name or as on a command line with underscores; None is not given.

    A sequence stands for an option that is repeated, and for one that takes a text as 1,2,4. ValueError for anything
    else.
    """
    by_name = {flag.strip("-").replace("-", "_"): said for said in schema.values() for flag in said.flags} | dict(
        schema
    )
    found: dict[str, Value] = {}
    for key, value in named.items():
        said = by_name.get(canonical(key, by_name))
        if said is None:
            raise ValueError(f"No such option: {key}{nearest(key, by_name)}")
        several = [value] if isinstance(value, (str, Path)) or not isinstance(value, Sequence) else value
        if value is None:
            continue
        if said.kind is bool and not isinstance(value, bool):
            raise ValueError(f"{said.name}: {value!r} is not allowed; allowed: True, False")
        if said.is_many:
            found[said.name] = tuple(read_text(said, str(one)) for one in several)  # type: ignore[assignment]
        else:
            found[said.name] = value if said.kind is bool else read_text(said, ",".join(map(str, several)))  # type: ignore[assignment]
    return found


def read_text(said: Option, text: str | None) -> Value:
    """One value of an option. ValueError for text that is not of its kind."""
    if text is None:
        raise ValueError(f"{said.name}: {said.flag} needs a value")
    try:
        return said.kind(text)
    except ValueError:
        what = "a whole number" if said.kind is int else "a number"
        raise ValueError(f"{said.name}: {text!r} is not {what}") from None


def checked_table(table: Mapping[str, object], schema: Mapping[str, Option], where: str) -> dict[str, Value]:
    """The options that a TOML table names. ValueError for a key that is no option, or a value of another kind."""
    named = {canonical(key, schema): value for key, value in table.items()}
    check_keys(named, tuple(schema), where)
    return {key: _plain_value(schema[key], value, where) for key, value in named.items()}


def _plain_value(said: Option, value: object, where: str) -> Value:
    kind = list if said.is_many else str if said.kind is Path else said.kind
    is_number = kind is float and type(value) is int
    if not is_number and type(value) is not kind:
        raise ValueError(f"{where}.{said.name}: {value!r} is not allowed; allowed: {kind.__name__}")
    return tuple(value) if isinstance(value, list) else value  # type: ignore[return-value]
