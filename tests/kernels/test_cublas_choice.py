"""The search for cuBLAS Lt's fastest algorithm: what takes part, what is chosen, and that torch's bits stay."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from specbench.kernels import cublas_choice
from specbench.kernels.cublas_choice import MIN_ROWS, faster_than_first, lt_algorithm, lt_linear, search
from specbench.kernels.cublas_lt import algorithms, problem_of

CUDA = torch.device("cuda")
DTYPES = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)


@pytest.mark.parametrize(
    ("times", "best"),
    [([1.0], None), ([1.0, 0.99], None), ([1.0, 0.9, 0.8], 2), ([0.9, 1.0], None), ([1.0, 0.5, 0.6], 1)],
)
def test_the_fastest_is_taken_if_it_gains_more_than_noise(times, best):
    assert faster_than_first(times) == best


def test_a_cpu_has_none():
    with search():
        assert lt_algorithm(torch.zeros(320, 2048), torch.zeros(2048, 2048)) is None


def test_a_search_ends_with_its_block():
    with pytest.raises(ValueError), search():
        assert cublas_choice._is_searching.get()
        raise ValueError
    assert not cublas_choice._is_searching.get()


@pytest.fixture
def on_gpu(monkeypatch):
    """Operands as `lt_algorithm` sees them, and the problems that are searched; what a search finds is their number."""
    searched = []

    def fastest(problem, weight):
        searched.append(problem)
        if problem.num_rows == 999:
            raise torch.cuda.OutOfMemoryError
        return len(searched)

    def matrix(rows, columns, dtype=torch.bfloat16, dense=True):
        device, shape = torch.device("cuda", 0), torch.Size([rows, columns])
        size = rows * columns
        return SimpleNamespace(
            shape=shape,
            dtype=dtype,
            device=device,
            is_cuda=True,
            numel=lambda: size,
            is_contiguous=lambda: dense,
        )

    cublas_choice._known.cache_clear()
    monkeypatch.setattr(cublas_choice, "_fastest", fastest)
    yield matrix, searched
    cublas_choice._known.cache_clear()


def test_a_problem_is_searched_once(on_gpu):
    matrix, searched = on_gpu
    weight = matrix(4096, 4096)
    assert lt_algorithm(matrix(320, 4096), weight) is None and not searched, "nothing is searched outside"
    with search():
        assert [lt_algorithm(matrix(rows, 4096), weight) for rows in (320, 640, 320)] == [1, 2, 1]
    assert lt_algorithm(matrix(640, 4096), weight) == 2 and lt_algorithm(matrix(65, 4096), weight) is None
    assert [problem.num_rows for problem in searched] == [320, 640]


def test_without_room_torchs_choice_stays(on_gpu):
    matrix, searched = on_gpu
    with search():
        assert [lt_algorithm(matrix(999, 4096), matrix(4096, 4096)) for _ in range(2)] == [None, None]
    assert len(searched) == 1


def test_what_is_not_searched(on_gpu):
    matrix, searched = on_gpu
    with search():
        assert lt_algorithm(matrix(MIN_ROWS - 1, 4096), matrix(4096, 4096)) is None
        assert lt_algorithm(matrix(320, 4096), matrix(256, 4096)) is None
        assert lt_algorithm(matrix(320, 4096, torch.float32), matrix(4096, 4096, torch.float32)) is None
        assert lt_algorithm(matrix(320, 4096, torch.float16), matrix(4096, 4096)) is None
        assert lt_algorithm(matrix(320, 4096, dense=False), matrix(4096, 4096)) is None
    assert not searched


@pytest.fixture
def operands():
    cublas_choice._known.cache_clear()
    yield lambda rows, outputs, inputs, dtype: [
        torch.randn(size, inputs, device=CUDA, dtype=dtype) for size in (rows, outputs)
    ]
    cublas_choice._known.cache_clear()


@pytest.fixture
def takes_any(monkeypatch):
    """Every algorithm counts as faster than torch's choice, the last as the fastest."""
    monkeypatch.setattr(cublas_choice, "_times_ms", lambda runs, device: [1 / (i + 1) for i in range(len(runs))])


@pytest.mark.gpu
@DTYPES
@pytest.mark.parametrize("rows", [MIN_ROWS, 320, 640])
@pytest.mark.parametrize(("outputs", "inputs"), [(6144, 4096), (4096, 14336), (1536, 8960), (2056, 1032)])
def test_torchs_bits(operands, takes_any, rows, outputs, inputs, dtype):
    x, weight = operands(rows, outputs, inputs, dtype)
    with search():
        algorithm = lt_algorithm(x, weight)
    expected = F.linear(x, weight)
    if algorithm is None:  # none of them has torch's bits here
        assert all(not torch.equal(lt_linear(x, weight, each), expected) for each in _all(x, weight))
        return
    assert torch.equal(lt_linear(x, weight, algorithm), expected)
    assert lt_algorithm(x, weight) is algorithm, "found once"


def _all(x, weight):
    return algorithms(problem_of(len(x), weight))


@pytest.mark.gpu
def test_only_a_search_looks_for_one(operands, takes_any):
    x, weight = operands(320, 6144, 4096, torch.bfloat16)
    assert lt_algorithm(x, weight) is None
    with search():
        assert lt_algorithm(x, weight) is not None
        few, strided = x[: MIN_ROWS - 1], torch.randn(320, 8192, device=CUDA, dtype=x.dtype)[:, :4096]
        assert lt_algorithm(few, weight) is None and lt_algorithm(strided, weight) is None
        assert lt_algorithm(x, weight[:256]) is None, "small"
        assert lt_algorithm(x.half(), weight) is None
    assert lt_algorithm(x, weight) is not None and lt_algorithm(x[:319], weight) is None


@pytest.mark.gpu
def test_what_was_found_is_captured(operands, takes_any):
    x, weight = operands(320, 6144, 4096, torch.bfloat16)
    with search():
        algorithm = lt_algorithm(x, weight)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = lt_linear(x, weight, lt_algorithm(x, weight))
    x.copy_(torch.randn_like(x))
    graph.replay()
    assert algorithm is not None and torch.equal(y, F.linear(x, weight))


@pytest.mark.gpu
def test_a_real_search_keeps_what_is_not_slower(operands):
    """Whatever it finds has torch's bits; the search leaves torch's random numbers alone."""
    x, weight = operands(640, 28672, 4096, torch.bfloat16)
    before = torch.cuda.get_rng_state()
    with search():
        algorithm = lt_algorithm(x, weight)
    assert torch.equal(torch.cuda.get_rng_state(), before)
    if algorithm is not None:
        assert torch.equal(lt_linear(x, weight, algorithm), F.linear(x, weight))


@pytest.mark.gpu
def test_what_the_library_refuses_is_no_result(operands):
    x, weight = operands(320, 6144, 4096, torch.bfloat16)
    with pytest.raises(RuntimeError, match="cublasLtMatmul: cuBLAS status"):
        lt_linear(x, weight, replace(_all(x, weight)[0], handle=None))


@pytest.mark.gpu
def test_operands_of_another_problem(operands):
    x, weight = operands(320, 6144, 4096, torch.bfloat16)
    with pytest.raises(AssertionError):
        lt_linear(x[:319], weight, _all(x, weight)[0])
