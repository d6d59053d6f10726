"""Which products of cuBLAS go through an algorithm that a search chose, and that warm-ups search."""

from __future__ import annotations

import pytest
import torch

from specbench.harness.engines.native.core import forward
from specbench.harness.engines.native.models import linear
from specbench.kernels import cublas_choice


@pytest.fixture
def by_choice(monkeypatch: pytest.MonkeyPatch) -> list[torch.Tensor]:
    """The rows that were multiplied by an algorithm; there is one for any but 100 rows."""
    multiplied = []

    def lt_linear(x: torch.Tensor, weight: torch.Tensor, algorithm: str) -> torch.Tensor:
        assert algorithm == "chosen"
        multiplied.append(x)
        return x @ weight.t()

    monkeypatch.setattr(linear, "lt_algorithm", lambda x, weight: None if len(x) == 100 else "chosen")
    monkeypatch.setattr(linear, "lt_linear", lt_linear)
    return multiplied


def test_a_product_without_bias_takes_the_choice(by_choice: list[torch.Tensor]) -> None:
    x, weight, bias = torch.randn(320, 8), torch.randn(4, 8), torch.ones(4)
    assert torch.equal(linear._cublas(x, weight, None), x @ weight.t()) and by_choice == [x]
    assert torch.allclose(linear._cublas(x, weight, bias), x @ weight.t() + 1, atol=1e-5) and len(by_choice) == 1
    linear._cublas(x[:100], weight, None)
    assert len(by_choice) == 1, "torch's own"


def test_a_warm_up_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stream:
        def wait_stream(self, other: Stream) -> None: ...
        def __enter__(self) -> None: ...
        def __exit__(self, *error: object) -> None: ...

    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: stream)
    seen: list[bool] = []
    forward.warm_up(lambda: seen.append(cublas_choice._is_searching.get()))
    assert seen == [True, True] and not cublas_choice._is_searching.get()
