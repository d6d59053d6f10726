"""cuBLAS Lt through ctypes: without the library, and what it refuses. test_cublas_choice.py multiplies."""

import ctypes
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from specbench.kernels import cublas_lt
from specbench.kernels.cublas_lt import Problem, Refused


def test_without_the_library_there_is_none(monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", None)
    assert cublas_lt.library.__wrapped__() is None
    monkeypatch.setattr(torch.version, "cuda", "999.0")
    assert cublas_lt.library.__wrapped__() is None


def test_a_refusal_is_named():
    with pytest.raises(Refused, match=r"^cublasLtCreate: cuBLAS status 1$"):
        cublas_lt._check(1, "cublasLtCreate")


class Library:
    """Answers as cuBLAS Lt does; of three algorithms it does not take the second. `calls` by name, with arguments;
    `status` of its search."""

    def __init__(self):
        self.calls, self.status = [], 0

    def __getattr__(self, name):
        def call(*arguments):
            self.calls.append((name, arguments))
            if name == "cublasLtMatmulAlgoGetHeuristic":
                *_, found, count = arguments
                count._obj.value = 3
                for i in range(3):
                    found[i].status, found[i].algorithm[0] = int(i == 1), 10 + i
                return self.status
            return 0

        return call


@pytest.fixture
def library(monkeypatch):
    fake = Library()
    monkeypatch.setattr(cublas_lt, "library", lambda: fake)
    monkeypatch.setattr(cublas_lt, "_handle", lambda device: ctypes.c_void_p(7))
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: SimpleNamespace(cuda_stream=5))
    return fake


def test_the_library_is_told_sizes_in_its_order(library):
    """Columns are dense there: the weight is [I, O], x is [I, T], y is [O, T]."""
    found = cublas_lt.algorithms(Problem(320, 6144, 4096, torch.bfloat16, torch.device("cpu")))
    assert [each.choice[0] for each in found] == [10, 12]
    layouts = [arguments[1:] for name, arguments in library.calls if name == "cublasLtMatrixLayoutCreate"]
    sizes = [(kind, *(size.value for size in rest)) for kind, *rest in layouts]
    assert sizes == [(14, 4096, 6144, 4096), (14, 4096, 320, 4096), (14, 6144, 320, 6144)]
    names = [name for name, _ in library.calls]
    arguments = {name: arguments for name, arguments in library.calls}
    assert arguments["cublasLtMatmulDescCreate"][1:] == (68, 0), "sums in fp32, scales too"
    _, attribute, operation, size = arguments["cublasLtMatmulDescSetAttribute"]
    assert (attribute, operation._obj.value, size.value) == (3, 1, 4), "the weight is transposed"
    assert arguments["cublasLtMatmulAlgoGetHeuristic"][7] == len(arguments["cublasLtMatmulAlgoGetHeuristic"][8]) == 16
    assert ctypes.sizeof(cublas_lt._Heuristic) == 96
    assert names.count("cublasLtMatmulPreferenceCreate") == names.count("cublasLtMatmulPreferenceDestroy") == 1


def test_a_product_is_of_the_operands_given(library):
    x, weight, out = torch.zeros(80, 64), torch.zeros(32, 64), torch.zeros(80, 32)
    algorithm = cublas_lt.algorithms(Problem(80, 32, 64, torch.float16, torch.device("cpu")))[1]
    algorithm(x, weight, out)
    name, arguments = library.calls[-1]
    addresses = [arguments[place].value for place in (3, 5, 8, 10)]
    assert name == "cublasLtMatmul" and addresses == [weight.data_ptr(), x.data_ptr(), out.data_ptr(), out.data_ptr()]
    assert arguments[0].value == 7 and [arguments[place]._obj.value for place in (2, 7)] == [1.0, 0.0]
    assert arguments[12]._obj[0] == 12 and (arguments[13], arguments[14].value, arguments[15].value) == (None, 0, 5)


def test_no_algorithm_and_a_failed_search_differ(library):
    problem = Problem(80, 33, 65, torch.bfloat16, torch.device("cpu"))
    library.status = 15
    assert cublas_lt.algorithms(problem) == []
    library.status = 14
    with pytest.raises(Refused, match="cublasLtMatmulAlgoGetHeuristic: cuBLAS status 14"):
        cublas_lt.algorithms(problem)
