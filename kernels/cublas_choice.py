"""Matrix products by the fastest of cuBLAS Lt's algorithms that give torch's result, bit for bit.

For hundreds of rows cuBLAS' own choice can take 12% longer than another of its algorithms (benchmarks/kernels.md).
Which one is fastest depends on the GPU and on cuBLAS, so they are timed: inside `search`, which surrounds the warm-up
of what is about to be captured. Only algorithms that give torch's bits for random rows take part, so the choice changes
no output, and only what is captured uses it: a step that the host launches multiplies as torch does.
Legend: T rows of the step, I inputs, O outputs.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, partial
from operator import itemgetter

import torch
from torch import Tensor

from specbench.kernels import skinny_gemm
from specbench.kernels.cublas_lt import ALIGNMENT, TYPES, Algorithm, Problem, Refused, algorithms, library, problem_of

MIN_ROWS = skinny_gemm.MAX_ROWS + 1  # fewer: see models/linear.py
_MIN_ELEMENTS = 1 << 21  # of a weight; smaller products take little longer than their launch
_REPEATS = 5
_GAIN = 0.98  # of torch's time: less is taken for noise
_FLUSH_BYTES = 64 << 20  # beyond the L2 cache of an H100 or H200
_is_searching = ContextVar("is_searching", default=False)


@dataclass(frozen=True, slots=True)
class Choice:
    """`share`: its time divided by that of torch's choice."""

    algorithm: Algorithm
    share: float


@contextmanager
def search() -> Iterator[None]:
    """Products that are met inside, on this thread, for the first time are timed with each algorithm."""
    token = _is_searching.set(True)
    try:
        yield
    finally:
        _is_searching.reset(token)


def lt_algorithm(x_TI: Tensor, weight_OI: Tensor) -> Algorithm | None:
    """What `lt_linear` takes, in a search and in a capture; None where torch's choice is as fast, and for problems that
    no search has met."""
    if (
        not x_TI.is_cuda
        or x_TI.shape[0] < MIN_ROWS
        or weight_OI.numel() < _MIN_ELEMENTS
        or x_TI.dtype not in TYPES
        or x_TI.dtype != weight_OI.dtype
        or not (x_TI.is_contiguous() and weight_OI.is_contiguous())
        or x_TI.data_ptr() % ALIGNMENT
        or weight_OI.data_ptr() % ALIGNMENT
        or not (_is_searching.get() or torch.cuda.is_current_stream_capturing())
    ):
        return None
    problem = problem_of(x_TI.shape[0], weight_OI)
    known = _known(x_TI.device)
    if problem not in known and _is_searching.get():
        try:
            known[problem] = _fastest(problem, weight_OI)
        except torch.cuda.OutOfMemoryError:  # the product itself fits; torch's choice gives the same numbers
            known[problem] = None
    choice = known.get(problem)
    return None if choice is None else choice.algorithm


def lt_linear(x_TI: Tensor, weight_OI: Tensor, algorithm: Algorithm) -> Tensor:
    """`x @ weight.T` as a dense [T, O] tensor, with the bits of torch's."""
    problem = algorithm.problem
    assert x_TI.shape == (problem.num_rows, problem.num_inputs) and x_TI.is_contiguous()
    assert weight_OI.shape == (problem.num_outputs, problem.num_inputs) and weight_OI.is_contiguous()
    assert x_TI.dtype == weight_OI.dtype == problem.dtype
    out_TO = x_TI.new_empty(x_TI.shape[0], weight_OI.shape[0])
    algorithm(x_TI, weight_OI, out_TO)
    return out_TO


def described(device: torch.device) -> dict[str, str]:
    """The products that captured steps multiply otherwise than torch would, of all engines of this process so far: for
    the record, as the next start may find others."""
    return {
        f"cublas.{p.num_rows}x{p.num_outputs}x{p.num_inputs}.{str(p.dtype).removeprefix('torch.')}": (
            f"another algorithm than torch's, {choice.share:.3f} of its time"
        )
        for p, choice in _known(device).items()
        if choice is not None
    }


@cache
def _known(device: torch.device) -> dict[Problem, Choice | None]:
    """What searches have found; None: torch's choice."""
    return {}


def _fastest(problem: Problem, weight_OI: Tensor) -> Choice | None:
    if library() is None:
        return None
    return best_of(timed(problem, weight_OI))


def timed(problem: Problem, weight_OI: Tensor) -> list[tuple[Algorithm | None, float]]:
    """Milliseconds of torch's choice (None) and of each algorithm with its bits."""
    generator = torch.Generator(problem.device).manual_seed(0)
    shape = problem.num_rows, problem.num_inputs
    x_TI = torch.randn(shape, dtype=problem.dtype, device=problem.device, generator=generator)
    expected_TO = torch.mm(x_TI, weight_OI.t())
    out_TO = torch.empty_like(expected_TO)

    def gives_its_bits(algorithm: Algorithm) -> bool:
        out_TO.fill_(math.nan)
        try:
            algorithm(x_TI, weight_OI, out_TO)
        except Refused:  # it does not take this problem after all
            return False
        return torch.equal(out_TO, expected_TO)

    equal = [each for each in algorithms(problem) if gives_its_bits(each)]
    runs: list[Callable[[], object]] = [
        partial(torch.mm, x_TI, weight_OI.t(), out=out_TO),
        *(partial(each, x_TI, weight_OI, out_TO) for each in equal),
    ]
    return list(zip([None, *equal], _times_ms(runs, problem.device), strict=True))


def best_of(found: Sequence[tuple[Algorithm | None, float]]) -> Choice | None:
    """Of what `timed` returns; None, torch's choice, if the fastest gains less than noise does."""
    algorithm, ms = min(found, key=itemgetter(1))
    (_, torchs_ms), *_ = found
    return None if algorithm is None or ms >= _GAIN * torchs_ms else Choice(algorithm, ms / torchs_ms)


def _times_ms(runs: Sequence[Callable[[], object]], device: torch.device) -> list[float]:
    """Medians of interleaved repeats over a cold L2 cache. The host launches each while the cache is cleared for it."""
    with torch.cuda.device(device):
        flushed = torch.empty(_FLUSH_BYTES, dtype=torch.uint8, device=device)
        pairs: list[list[tuple[torch.cuda.Event, torch.cuda.Event]]] = [[] for _ in runs]
        for _ in range(_REPEATS):
            for run, of_run in zip(runs, pairs, strict=True):
                start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                flushed.zero_()
                start.record()
                run()
                end.record()
                of_run.append((start, end))
        torch.cuda.current_stream(device).synchronize()
    return [statistics.median(start.elapsed_time(end) for start, end in of_run) for of_run in pairs]
