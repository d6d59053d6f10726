"""Commands that take the options of `specbench run` and some of their own."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from .run import run


def like_run(*, without: tuple[str, ...], defaults: Mapping[str, Any]) -> Callable[[Callable[..., None]], Any]:
    """Gives a command, for typer's eyes, its own options and after them those of `run`.

    The command takes the latter as `**of_run`. `without`: options of `run` that it has not (a name ends with `*` for
    all that begin so); `defaults`: those that differ from run's.
    """

    def change(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command, eval_str=True).parameters.values()
        of_run = [
            parameter.replace(default=defaults.get(name, parameter.default))
            for name, parameter in inspect.signature(run, eval_str=True).parameters.items()
            if name != "ctx" and not _is_named(name, without)
        ]
        named = [p for p in own if p.kind is not inspect.Parameter.VAR_KEYWORD]
        parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (*named, *of_run)]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in parameters}
        return command

    return change


def _is_named(name: str, words: tuple[str, ...]) -> bool:
    return any(name == word or (word.endswith("*") and name.startswith(word[:-1])) for word in words)
