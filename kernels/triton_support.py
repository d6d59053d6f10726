"""Triton when it is installed, stand-ins when it is not, so that every kernel file imports on any machine.

Kernel files write `from specbench.kernels.triton_support import dispatch, tl, triton`. Without Triton the
`@triton.jit` functions still exist as plain objects but can't be launched; `dispatch` then always takes the plain-torch
reference.

Programmatic dependent launch (CUDA programming guide, Hopper and later): the kernels of a layer are launched with
`**early_launch(x)` and begin with `wait_for_inputs` or `wait_then_release`. Such a kernel may start while the one
before it still runs; what it does before the wait, such as prefetching weights, must not touch anything that a kernel
writes.
"""

from collections.abc import Callable
from functools import cache, wraps
from types import SimpleNamespace
from typing import Concatenate, NoReturn, ParamSpec, Protocol, TypeVar

import torch
from torch import Tensor

from specbench.kernels import compiled

try:
    import triton
    import triton.language as tl

    HAS_TRITON = True
except ImportError:
    HAS_TRITON = False

    class _UnlaunchableKernel:
        """What `@triton.jit` returns on a machine without Triton; a launch raises an error that says what is
        missing."""

        def __init__(self, function: Callable[..., object]) -> None:
            self.function = function

        def __getitem__(self, grid: object) -> NoReturn:
            raise ImportError(f"kernel {self.function.__name__!r} needs Triton, which is not installed")

    def _jit(
        function: Callable[..., object] | None = None, **_options: object
    ) -> _UnlaunchableKernel | type[_UnlaunchableKernel]:
        return _UnlaunchableKernel if function is None else _UnlaunchableKernel(function)

    def _cdiv(a: int, b: int) -> int:
        return -(-a // b)

    def _next_power_of_2(n: int) -> int:
        return 1 << max(n - 1, 0).bit_length()

    triton = SimpleNamespace(jit=_jit, cdiv=_cdiv, next_power_of_2=_next_power_of_2)
    # Only `tl.constexpr` is looked up at import (annotations, global constants); the rest only in a launch.
    tl = SimpleNamespace(constexpr=lambda value: value)

__all__ = [
    "HAS_TRITON",
    "dispatch",
    "early_launch",
    "tl",
    "triton",
    "use_triton",
    "wait_for_inputs",
    "wait_then_release",
]

_EARLY_LAUNCH_CAPABILITY = (9, 0)  # of the first NVIDIA GPUs with programmatic dependent launch


class OnDevice(Protocol):
    """A tensor, or buffers that lie together."""

    @property
    def is_cuda(self) -> bool: ...


_First = TypeVar("_First", bound=OnDevice)
_Rest = ParamSpec("_Rest")
_Result = TypeVar("_Result")


def use_triton(operand: OnDevice) -> bool:
    """Whether an operation on this operand runs its Triton kernel rather than its plain-torch reference."""
    return HAS_TRITON and operand.is_cuda


def dispatch(
    reference: Callable[Concatenate[_First, _Rest], _Result],
    kernel: Callable[Concatenate[_First, _Rest], _Result],
    in_c: Callable[Concatenate[_First, _Rest], _Result] | None = None,
) -> Callable[Concatenate[_First, _Rest], _Result]:
    """The operation that its reference documents: `kernel` where its first argument lies on a GPU, `in_c` where
    `compiled.takes` that argument, else `reference`."""

    @wraps(reference)
    def operation(first: _First, *rest: _Rest.args, **options: _Rest.kwargs) -> _Result:
        if use_triton(first):
            return kernel(first, *rest, **options)
        if in_c is not None and isinstance(first, Tensor) and compiled.takes(first):
            return in_c(first, *rest, **options)
        return reference(first, *rest, **options)

    return operation


@triton.jit
def wait_for_inputs(EARLY: tl.constexpr):
    """Lets the next kernel start, which will wait in its turn, and blocks until every kernel before has finished."""
    if EARLY:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()


@triton.jit
def wait_then_release(EARLY: tl.constexpr):
    """Blocks until every kernel before has finished, then lets the next one start: for a kernel between one that fills
    multiprocessors and one that needs them all, whose blocks would otherwise crowd on the few that are free."""
    if EARLY:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()


def early_launch(operand: Tensor) -> dict[str, bool]:
    """Launch arguments of a kernel that calls `wait_for_inputs(EARLY)` or `wait_then_release(EARLY)`."""
    early = _launches_early(operand.device)
    return {"EARLY": early, "launch_pdl": early}


@cache
def _launches_early(device: torch.device) -> bool:
    if device.type != "cuda" or torch.version.hip is not None:
        return False
    return torch.cuda.get_device_capability(device) >= _EARLY_LAUNCH_CAPABILITY
