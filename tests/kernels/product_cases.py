"""What the tests of products in CUDA C++ share: real shapes, operands, references."""

from collections.abc import Callable

import pytest
import torch

from specbench.harness.engines.native.models import linear
from specbench.kernels import cuda_source

CUDA = torch.device("cuda")
TOLERANCE = {torch.float16: 2**-10, torch.bfloat16: 2**-7}
DTYPES = pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
# Outputs, inputs, whether gate and up: SmolLM2, Qwen2.5-1.5B, Llama-3.1-8B, its part of four, Llama-2-70B's of two.
SHAPES = [
    (960, 576, False),
    (3072, 576, True),
    (576, 1536, False),
    (2048, 1536, False),
    (1536, 8960, False),
    (17920, 1536, True),
    (6144, 4096, False),
    (4096, 14336, False),
    (28672, 4096, True),
    (128256, 4096, False),
    (4096, 1024, False),
    (7168, 4096, True),
    (5120, 8192, False),
]


def operands(rows: int, inputs: int, outputs: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    drawn = torch.Generator().manual_seed(rows + inputs + outputs)
    x, weight = (torch.randn(n, inputs, generator=drawn).to(CUDA, dtype) for n in (rows, outputs))
    return x, weight


def gated_ref(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    gate, up = (x.double() @ weight.double().T).chunk(2, dim=1)
    return gate / (1 + torch.exp(-gate)) * up


def assert_near(actual: torch.Tensor, expected: torch.Tensor) -> None:
    scale = float(expected.abs().max())
    torch.testing.assert_close(actual.double(), expected, rtol=0, atol=TOLERANCE[actual.dtype] * scale)


class Hopper:
    """Everything runs on an H200 that has no memory: kernels are noted instead of compiled."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.loaded: list[cuda_source.Source] = []
        monkeypatch.setattr(cuda_source, "runs_on", lambda device: True)
        monkeypatch.setattr(cuda_source, "num_multiprocessors", lambda device: 132)
        monkeypatch.setattr(cuda_source, "load", lambda source, *_: self.loaded.append(source))


def products_of_a_layer(
    monkeypatch: pytest.MonkeyPatch, kernel: str, rows: int, outputs: int, inputs: int
) -> tuple[str, list[tuple]]:
    """What a layer with a bias and a gated one call of `kernel`, each with its bias, by name, and its launch."""
    bias = torch.zeros(outputs, dtype=torch.float16)
    called: list[tuple] = []

    def note_linear(x, weight, given, tiles):
        called.append(("linear", "its own" if given is bias else given, tiles))

    monkeypatch.setattr(linear, f"{kernel}_linear", note_linear)
    monkeypatch.setattr(linear, f"{kernel}_gated", lambda x, weight, tiles: called.append(("gated", None, tiles)))
    weight, x = torch.zeros(outputs, inputs, dtype=torch.float16), torch.zeros(rows, inputs, dtype=torch.float16)
    linear.Linear(weight, bias)(x)
    linear.Linear(weight).gated(x)
    return "its own", called


def assert_captured_as_in_order(x: torch.Tensor, chain: Callable[[torch.Tensor, bool], torch.Tensor]) -> None:
    """Replays of a captured chain, in which a kernel may start while the one before it still runs, have the bits of
    kernels one after another (the chain's second argument), for many inputs."""
    chain(x, True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = chain(x, False)
    for seed in range(20):
        x.copy_(torch.randn(x.shape, generator=torch.Generator().manual_seed(seed)))
        graph.replay()
        assert torch.equal(captured, chain(x, True))
