"""Which products go through cuBLAS' Lt interface, and what is left of the choice afterwards."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from specbench.harness.engines.native.models import linear


class Rows(SimpleNamespace):
    """What a product asks of rows on a GPU."""

    def __len__(self) -> int:
        return self.num_rows


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every library that was set, as torch's function would; asked without a name it returns the last."""
    names = ["default"]

    def preferred(name: str | None = None) -> str:
        if name is not None:
            names.append(name)
        return names[-1]

    monkeypatch.setattr(torch.backends.cuda, "preferred_blas_library", preferred)
    return names


def test_17_to_64_rows_of_half_precision_take_lt() -> None:
    def takes(num_rows: int, dtype: torch.dtype = torch.bfloat16, is_cuda: bool = True) -> bool:
        return linear._takes_lt(Rows(num_rows=num_rows, dtype=dtype, is_cuda=is_cuda))  # type: ignore[arg-type]

    assert [takes(n) for n in (1, 16, 17, 40, 64, 65, 320)] == [False, False, True, True, True, False, False]
    assert not takes(40, torch.float32) and not takes(40, is_cuda=False)


def test_a_product_that_takes_lt_is_made_there(chosen: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    made_with = []
    monkeypatch.setattr(linear, "_takes_lt", lambda x: True)
    monkeypatch.setattr(linear.F, "linear", lambda *operands: made_with.append(chosen[-1]))
    linear._cublas(torch.ones(40, 4), torch.ones(2, 4), None)
    assert made_with == ["cublaslt"] and chosen[-1] == "default"


def test_the_library_is_what_it_was_after_an_error(chosen: list[str]) -> None:
    with pytest.raises(RuntimeError, match="no"), linear._blas_library("cublaslt"):
        assert chosen[-1] == "cublaslt"
        raise RuntimeError("no")
    assert chosen == ["default", "cublaslt", "default"]


def test_other_products_leave_it_alone(chosen: list[str]) -> None:
    linear._cublas(torch.ones(40, 4), torch.ones(2, 4), None)
    assert chosen == ["default"]
