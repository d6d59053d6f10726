"""Triton's interpreter, which prepares `triton.language` anew for every call of a function inside a kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def prepare_once_a_launch() -> None:
    """Functions of one module that are called within one launch share the first preparation: a second one replaces
    the same attributes by equal ones. It took 2 % of the time of the tests."""
    from triton.runtime import interpreter

    prepare, launch = interpreter._patch_lang, interpreter.GridExecutor.__call__
    prepared: set[int] = set()

    def prepare_new(function: Callable) -> Any:
        module = id(function.__globals__)
        if module in prepared:
            return None  # what a nested call does not look at
        prepared.add(module)
        return prepare(function)

    def launch_anew(executor: Any, *args: Any, **kwargs: Any) -> Any:
        prepared.clear()
        try:
            return launch(executor, *args, **kwargs)
        finally:
            prepared.clear()  # the launch restores what it found

    interpreter._patch_lang = prepare_new  # type: ignore[assignment]
    interpreter.GridExecutor.__call__ = launch_anew  # type: ignore[method-assign]
