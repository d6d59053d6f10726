"""Triton's interpreter, sped up, and with E4M3 values rounded as a GPU rounds them."""

from __future__ import annotations

import math
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


def make_types_once() -> None:
    """Each operation makes a tensor and often a type, and describes both in tuples and strings: half of the time of a
    kernel with few values. What depends on the type alone is made once for each type."""
    from triton.language import core, semantic
    from triton.runtime import interpreter

    make_type, dtype_equals = core.block_type.__init__, core.dtype.__eq__
    types: dict[tuple, dict[str, Any]] = {}
    numpy_types: dict[str, np.dtype] = {}
    numpy_type, broadcast = interpreter._get_np_dtype, semantic.TritonSemantic.broadcast_impl_value

    def new_type(self: Any, element_ty: Any, shape: Any) -> None:
        sizes = shape.values if isinstance(shape, core.tuple) else shape
        key = (id(element_ty), *[size.value if isinstance(size, core.constexpr) else size for size in sizes])
        if key not in types:
            make_type(self, element_ty, shape)
            self.known = _of_tensors(self)
            types[key] = dict(self.__dict__)  # holds the element type, so that its id stays its own
        else:
            self.__dict__.update(types[key])

    def _of_tensors(kind: Any) -> tuple[Any, ...]:
        sizes = kind.shape if kind.is_block() else ()
        return core.tuple([core.constexpr(s) for s in sizes]), core.constexpr(math.prod(sizes)), kind.scalar

    def new_tensor(self: Any, handle: Any, type: Any) -> None:
        self.handle, self.type = handle, type
        try:
            self.shape, self.numel, self.dtype = type.known
        except AttributeError:
            type.known = _of_tensors(type)
            self.shape, self.numel, self.dtype = type.known

    def equals(self: Any, other: Any) -> bool:
        return self is other or dtype_equals(self, other)

    def of_one_shape(self: Any, left: Any, right: Any) -> tuple[Any, Any]:
        a, b = left.type, right.type
        if a.is_block() and b.is_block() and a.shape.values == b.shape.values:
            return left, right
        return broadcast(self, left, right)

    def known_numpy_type(kind: Any) -> np.dtype:
        scalar = kind.scalar
        if scalar.name not in numpy_types:
            numpy_types[scalar.name] = numpy_type(scalar)
        return numpy_types[scalar.name]

    core.block_type.__init__ = new_type  # type: ignore[method-assign]
    core.tensor.__init__ = new_tensor  # type: ignore[method-assign]
    core.dtype.__eq__ = equals  # type: ignore[method-assign]
    semantic.TritonSemantic.broadcast_impl_value = of_one_shape  # type: ignore[method-assign]
    interpreter._get_np_dtype = known_numpy_type  # type: ignore[assignment]


def compute_no_unused_checks() -> None:
    """The interpreter computes in 64 bits whether integers overflow, and looks at the result only in debug mode."""
    from dataclasses import replace

    from triton.runtime import interpreter

    builder = interpreter.interpreter_builder
    assert not builder.options.debug
    builder.options = replace(builder.options, sanitize_overflow=False)


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
