"""Triton's interpreter, sped up, and with E4M3 values rounded as a GPU rounds them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch


def prepare_once_a_launch() -> None:
    """The interpreter prepares `triton.language` anew for every call of a function inside a kernel. Functions of one
    module that are called within one launch share the first preparation: a second one replaces the same attributes by
    equal ones. It took 2 % of the time of the tests."""
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


def round_e4m3_as_torch() -> None:
    """Triton 3.6's interpreter drops the carry where a significand is rounded up to a power of two (7.875 becomes 4),
    and rounds ties away from zero. Torch rounds to the nearest, ties to even, as GPUs do."""
    from triton.runtime import interpreter

    convert = interpreter._convert_float

    def convert_exactly(values: np.ndarray, source: Any, target: Any, rounding_mode: Any) -> np.ndarray:
        if not (source.is_fp32() and target.is_fp8e4nv()):
            return convert(values, source, target, rounding_mode)
        wide = torch.from_numpy(np.ascontiguousarray(values).view(np.float32))
        return wide.to(torch.float8_e4m3fn).view(torch.uint8).numpy()

    interpreter._convert_float = convert_exactly  # type: ignore[assignment]
