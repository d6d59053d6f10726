"""Commands whose options are the fields of options dataclasses (spec/fields.py): turns these into typer parameters.

The only place that reads user input from click; everything behind it gets plain dataclasses.
"""

from __future__ import annotations

import inspect
import re
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from specbench.harness.spec.fields import Option, Options, Value, read_text, refuse_empty
from specbench.harness.spec.options import GROUPS
from specbench.harness.spec.spellings import as_written, canonical, check_renamed, key_of, one_each, written_keys

_HALF_PAIR = re.compile("[\ud800-\udfff]")  # what Python makes of bytes that are not UTF-8
PASS_THROUGH = {"allow_extra_args": True, "ignore_unknown_options": True}


class Command(TyperCommand):
    """Accepts the spellings of other engines, reports the new names of renamed options, and rejects empty values,
    values of the wrong type and files that cannot be opened, with a line that names them as the user did."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.help = _without_line_breaks(self.help or "")

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta[__name__] = written_keys(args)
        with self._naming_as_written(ctx):
            return self._parsed(ctx, args)

    def _naming_as_written(self, ctx: Any) -> AbstractContextManager[None]:
        names = ([p.name, *(key_of(flag) for flag in p.opts if flag.startswith("--"))] for p in self.params)
        return as_written(ctx.meta[__name__], names)

    def _parsed(self, ctx: Any, args: list[str]) -> list[str]:
        known = {flag for parameter in self.params for flag in parameter.opts}
        for word in args:
            check_renamed(word, known)
        words = [canonical(word, known) for word in one_each(args)]
        # Before an empty value becomes a path: it would be the current directory.
        values, _, order = self.make_parser(ctx).parse_args(list(words))
        options: Mapping[str, Option] = getattr(self.callback, "options", {})
        for parameter in order:
            typed = values.get(parameter.name)
            refuse_empty(parameter.name, typed)
            for text in typed if isinstance(typed, list) else [typed]:
                if parameter.name in options and isinstance(text, str):
                    read_text(options[parameter.name], text)  # its error names the value
        try:
            return super().parse_args(ctx, words)
        except typer.BadParameter as error:
            name = getattr(error.param, "name", None) or ""
            if values.get(name) is None:
                raise  # a missing parameter: the usage line shows which are required
            raise ValueError(f"{name}: {values[name]!r} is not allowed; {error.message}") from error

    def invoke(self, ctx: Any) -> Any:
        with self._naming_as_written(ctx):
            try:
                return super().invoke(ctx)
            except OSError as error:
                name = _given_as(error.filename, ctx.params)
                if name is None:
                    raise
                raise ValueError(f"{name}: cannot open {error.filename}: {error.strerror}") from error
            except UnicodeEncodeError as error:  # a file is read by any name, which may then be stored or shown
                for name, one in _one_by_one(ctx.params):
                    if _HALF_PAIR.search(str(one)):
                        raise ValueError(f"{name}: {str(one)!r} is not UTF-8; allowed: text in UTF-8") from error
                raise


def _without_line_breaks(docstring: str) -> str:
    """Paragraphs as single lines, which a terminal of any width wraps; indented ones (examples, a file) as they are."""
    paragraphs = inspect.cleandoc(docstring).split("\n\n")
    return "\n\n".join(part if part.startswith(" ") else part.replace("\n", " ") for part in paragraphs)


def _given_as(file: object, typed: Mapping[str, Any]) -> str | None:
    """The parameter that has this path, alone or in a list."""
    for name, one in _one_by_one(typed):
        if isinstance(file, (str, Path)) and isinstance(one, (str, Path)) and Path(one) == Path(file):
            return name
    return None


def _one_by_one(typed: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Parameters and their values, each of a list by itself."""
    for name, value in typed.items():
        yield from ((name, one) for one in (value if isinstance(value, (list, tuple)) else [value]))


def takes_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replaces each parameter of `command` that is an options dataclass by its fields. A parameter named `words` gets
    the words that are not options of the command."""
    own = inspect.signature(command, eval_str=True).parameters
    kinds = {name: p.annotation for name, p in own.items() if _is_options(p.annotation)}

    def wrapper(ctx: typer.Context, **values: Value | list[str]) -> None:
        arguments = {name: value for name, value in values.items() if name in own}
        for name, kind in kinds.items():
            typed = [each for each in kind.schema() if _is_typed(ctx, each)]
            arguments[name] = kind.of({each: _plain(values[each]) for each in typed})
        if "words" in own:
            arguments["words"] = ctx.args
        command(**arguments)

    options = [option for kind in kinds.values() for option in kind.schema().values()]
    parameters = [inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)]
    parameters += [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for n, p in own.items() if n not in (*kinds, "words")]
    parameters += [_parameter(each) for each in sorted(options, key=lambda each: GROUPS.index(each.group))]
    wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {p.name: p.annotation for p in parameters}
    wrapper.options = {each.name: each for each in options}  # type: ignore[attr-defined]
    wrapper.__name__, wrapper.__doc__ = command.__name__, command.__doc__
    return wrapper


def typed_command() -> list[str]:
    """The command without the path of this installation, so that it works elsewhere."""
    return ["specbench", *sys.argv[1:]]


def _is_options(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Options)


def _is_typed(ctx: typer.Context, name: str) -> bool:
    return getattr(ctx.get_parameter_source(name), "name", "") == "COMMANDLINE"


def _plain(value: Value | list[str]) -> Value:
    return tuple(value) if isinstance(value, list) else value


def _parameter(option: Option) -> inspect.Parameter:
    annotation = types.GenericAlias(list, option.kind) if option.is_many else option.kind
    is_optional = not option.is_required and (option.is_many or option.default is None)
    default = None if option.is_many else option.default
    info = typer.Option(
        *option.flags,
        help=option.help,
        metavar=option.metavar or (option.unit.upper() or None),
        rich_help_panel=option.group or None,
    )
    return inspect.Parameter(
        option.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if option.is_required else default,
        annotation=Annotated[annotation | None if is_optional else annotation, info],
    )
