"""The search for cuBLAS Lt's fastest algorithm: what takes part, what is chosen, and that torch's bits stay."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from specbench.kernels import cublas_choice
from specbench.kernels.cublas_choice import MIN_ROWS, Choice, best_of, described, lt_algorithm, lt_linear, search, timed
from specbench.kernels.cublas_lt import Refused, algorithms, problem_of

CUDA = torch.device("cuda")
DTYPES = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)


@pytest.mark.parametrize(
    ("times", "best"),
    [
        ([2.0], None),
        ([2.0, 1.98], None),
        ([2.0, 1.8, 1.6], Choice("b", 0.8)),
        ([1.8, 2.0], None),
        ([2.0, 1, 1.2], Choice("a", 0.5)),
    ],
)
def test_the_fastest_is_taken_if_it_gains_more_than_noise(times, best):
    assert best_of(list(zip([None, "a", "b"], times, strict=False))) == best


def test_a_cpu_has_none(monkeypatch):
    monkeypatch.setattr(cublas_choice, "_fastest", lambda problem, weight: pytest.fail("searched"))
    x, weight = (torch.zeros(rows, 2048, dtype=torch.bfloat16) for rows in (320, 2048))
    with search():
        assert lt_algorithm(x, weight) is None


def test_only_algorithms_that_give_torchs_bits_are_timed(monkeypatch):
    """One that writes nothing does not pass with what the one before it wrote; one that is refused takes no part."""

    def right(x, weight, out):
        torch.mm(x, weight.t(), out=out)

    def refused(x, weight, out):
        raise Refused("cublasLtMatmul: cuBLAS status 15")

    def inexact(x, weight, out):
        right(x, weight, out)
        out[0, 0] *= 1.01

    def idle(x, weight, out):
        """Writes nothing."""

    fakes = [right, idle, refused, inexact, right]
    weight = torch.randn(32, 64)
    monkeypatch.setattr(cublas_choice, "algorithms", lambda problem: fakes)
    monkeypatch.setattr(cublas_choice, "_times_ms", lambda runs, device: [run() is None or 1.0 for run in runs])
    found = timed(problem_of(80, weight), weight)
    assert [algorithm for algorithm, _ in found] == [None, right, right]


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
        return Choice(len(searched), 0.9) if problem.num_rows != 700 else None

    def matrix(rows, columns, dtype=torch.bfloat16, dense=True, address=1024):
        device, shape = torch.device("cuda", 0), torch.Size([rows, columns])
        size = rows * columns
        return SimpleNamespace(
            shape=shape,
            dtype=dtype,
            device=device,
            is_cuda=True,
            numel=lambda: size,
            is_contiguous=lambda: dense,
            data_ptr=lambda: address,
        )

    cublas_choice._known.cache_clear()
    monkeypatch.setattr(cublas_choice, "_fastest", fastest)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    yield matrix, searched
    cublas_choice._known.cache_clear()


def test_a_problem_is_searched_once_and_the_choice_captured(on_gpu, monkeypatch):
    matrix, searched = on_gpu
    weight = matrix(4096, 4096)
    assert lt_algorithm(matrix(320, 4096), weight) is None and not searched, "nothing is searched outside"
    with search():
        assert [lt_algorithm(matrix(rows, 4096), weight) for rows in (320, 640, 320)] == [1, 2, 1]
    assert lt_algorithm(matrix(640, 4096), weight) is None, "what the host launches multiplies as torch does"
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert lt_algorithm(matrix(640, 4096), weight) == 2 and lt_algorithm(matrix(65, 4096), weight) is None
    assert [problem.num_rows for problem in searched] == [320, 640]


def test_what_was_found_is_described(on_gpu):
    matrix, _ = on_gpu
    with search():
        for rows in (320, 700, 999):
            lt_algorithm(matrix(rows, 4096), matrix(6144, 4096))
        lt_algorithm(matrix(320, 4096, torch.float16), matrix(6144, 4096, torch.float16))
    words = "another algorithm than torch's, 0.900 of its time"
    assert described(torch.device("cuda", 0)) == {
        f"cublas.320x6144x4096.{name}": words for name in ("bfloat16", "float16")
    }
    assert not described(torch.device("cuda", 1))


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
        assert lt_algorithm(matrix(320, 4096, address=1040), matrix(4096, 4096)) is None
        assert lt_algorithm(matrix(320, 4096), matrix(4096, 4096, address=1040)) is None
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
    with search():
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
    assert lt_algorithm(x, weight) is None


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
def test_a_real_search_leaves_torchs_random_numbers_alone(operands):
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
    algorithm = _all(x, weight)[0]
    with pytest.raises(Refused, match="cublasLtMatmul: cuBLAS status"):
        lt_linear(x, weight, replace(algorithm, layouts=algorithm.layouts[::-1]))


@pytest.mark.gpu
def test_operands_of_another_problem(operands):
    x, weight = operands(320, 6144, 4096, torch.bfloat16)
    with pytest.raises(AssertionError):
        lt_linear(x[:319], weight, _all(x, weight)[0])
