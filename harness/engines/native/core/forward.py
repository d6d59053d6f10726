"""How a forward pass is launched: piece by piece from the host, or with a CUDA graph for everything but attention.

Legend: T rows of a step, N rows a set of graphs was captured for (N >= T).
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import torch
from torch import Tensor

from specbench.harness.engines.native.models.forward import Attention, ForwardBatch, KVCache, Pieces, run_pieces
from specbench.harness.engines.native.models.llama import LlamaModel
from specbench.harness.engines.no_gc import no_collection
from specbench.kernels import cublas_choice

if TYPE_CHECKING:
    from torch.cuda import _POOL_HANDLE

GraphPool: TypeAlias = "_POOL_HANDLE | None"  # from torch.cuda.graph_pool_handle(); None: nothing is captured
_NUM_CAPTURE_WARM_UPS = 2  # JIT compilation and cuBLAS workspaces must be done before a capture


@contextmanager
def capturing(pool: GraphPool) -> Iterator[torch.cuda.CUDAGraph]:
    """Captures everything launched inside into a new graph. Garbage collection is paused: if it freed a graph or a
    pinned tensor of a released engine, the driver's calls would end the capture."""
    graph = torch.cuda.CUDAGraph()
    with no_collection(), torch.cuda.graph(graph, pool=pool):
        yield graph


def warm_up(run: Callable[[], object]) -> None:
    """Runs the work that is about to be captured, on a side stream as torch requires. Large matrix products that cuBLAS
    multiplies are timed with the algorithms it suggests (kernels/cublas_choice.py)."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side), cublas_choice.search():
        for _ in range(_NUM_CAPTURE_WARM_UPS):
            run()
    torch.cuda.current_stream().wait_stream(side)


class PiecewiseModel(Protocol):
    """A target, a draft model or a head: see models/llama.py."""

    def pieces(self, ids_T: Tensor, *inputs: Any, **named: Any) -> Pieces: ...


class Forward(Protocol):
    def __call__(
        self,
        model: PiecewiseModel,
        batch: ForwardBatch,
        attention: Attention,
        caches: KVCache | Sequence[KVCache],
        *inputs: Tensor,
        features_TF: Tensor | None = None,
        wanted_R: Tensor | None = None,
    ) -> Tensor:
        """Runs `model.pieces(batch.ids_T, *inputs)` to its end over `caches`, one per layer. `inputs` [T, ...] may be
        overwritten; the model writes `features_TF` if given. The result [T, ...] is valid until the next call; with
        `wanted_R` (of a head, int64) it has only these rows, and what follows attention is computed for them alone
        where no graph of fixed row counts does it."""
        ...


def _by_layer(caches: KVCache | Sequence[KVCache]) -> Sequence[KVCache]:
    return (caches,) if isinstance(caches, KVCache) else caches


class EagerForward:
    """Every kernel is launched by the host, or recorded if the phase is captured."""

    def __call__(
        self,
        model: PiecewiseModel,
        batch: ForwardBatch,
        attention: Attention,
        caches: KVCache | Sequence[KVCache],
        *inputs: Tensor,
        features_TF: Tensor | None = None,
        wanted_R: Tensor | None = None,
    ) -> Tensor:
        layers = _by_layer(caches)
        if isinstance(model, LlamaModel) and not inputs and wanted_R is None:
            return model.forward(batch, attention, layers, features_TF)
        named = {"features_TF": features_TF, "wanted_R": wanted_R}
        return run_pieces(
            model.pieces(batch.ids_T, *inputs, **{name: each for name, each in named.items() if each is not None}),
            lambda layer, qkv_TX: attention(layer, qkv_TX, batch, layers[layer]),
        )


@dataclass(slots=True)
class _Pieces:
    """Graphs of one model at N rows, and the buffers at their ends."""

    ids_N: Tensor
    inputs: tuple[Tensor, ...]
    features_NF: Tensor | None
    attn_NX: Tensor
    qkv_NX: list[Tensor]
    graphs: list[torch.cuda.CUDAGraph]
    result: Tensor

    def replay(self, num_rows: int, attend: Callable[[int, Tensor, Tensor], Tensor]) -> Tensor:
        for layer, qkv_NX in enumerate(self.qkv_NX):
            self.graphs[layer].replay()
            attend(layer, qkv_NX[:num_rows], self.attn_NX[:num_rows])
        self.graphs[-1].replay()
        return self.result[:num_rows]


class PiecewiseForward:
    """Graphs between the attention calls, for row counts padded to the next of `sizes`; larger ones run eagerly.

    That is vLLM's PIECEWISE: attention and the KV write stay outside, so any attention backend and ragged steps work.
    """

    def __init__(self, sizes: Sequence[int], pool: GraphPool):
        self._sizes = sorted(sizes)
        self._pool = pool
        self._sets: dict[tuple[int, int, bool], _Pieces] = {}
        self._eager = EagerForward()

    def __call__(
        self,
        model: PiecewiseModel,
        batch: ForwardBatch,
        attention: Attention,
        caches: KVCache | Sequence[KVCache],
        *inputs: Tensor,
        features_TF: Tensor | None = None,
        wanted_R: Tensor | None = None,
    ) -> Tensor:
        num_rows = batch.ids_T.shape[0]
        if num_rows > self._sizes[-1]:
            return self._eager(model, batch, attention, caches, *inputs, features_TF=features_TF, wanted_R=wanted_R)
        size = self._sizes[bisect.bisect_left(self._sizes, num_rows)]
        layers = _by_layer(caches)
        key = (size, id(model), features_TF is not None)
        if key not in self._sets:
            self._sets[key] = self._capture(model, size, attention.new_output(size, layers[0]), inputs, features_TF)
        pieces = self._sets[key]
        pieces.ids_N[:num_rows].copy_(batch.ids_T)
        for static, given in zip(pieces.inputs, inputs, strict=True):
            static[:num_rows].copy_(given)
        result = pieces.replay(num_rows, lambda layer, qkv, out: attention(layer, qkv, batch, layers[layer], out))
        if features_TF is not None:
            assert pieces.features_NF is not None
            features_TF.copy_(pieces.features_NF[:num_rows])
        return result if wanted_R is None else result.index_select(0, wanted_R)

    def _capture(
        self,
        model: PiecewiseModel,
        size: int,
        attn_NX: Tensor,
        inputs: tuple[Tensor, ...],
        features_TF: Tensor | None,
    ) -> _Pieces:
        def static(like: Tensor) -> Tensor:
            return like.new_zeros((size, *like.shape[1:]))

        ids_N = torch.zeros(size, dtype=torch.int64, device=attn_NX.device)
        ins = tuple(static(x) for x in inputs)
        features_NF = None if features_TF is None else static(features_TF)
        outputs = () if features_NF is None else (features_NF,)
        warm_up(lambda: run_pieces(model.pieces(ids_N, *ins, *outputs), lambda layer, qkv: attn_NX))
        generator = model.pieces(ids_N, *ins, *outputs)
        graphs: list[torch.cuda.CUDAGraph] = []
        qkvs: list[Tensor] = []
        result: Tensor | None = None
        while result is None:
            with capturing(self._pool) as graph:
                try:
                    qkvs.append(generator.send(attn_NX if graphs else None)[1])  # type: ignore[arg-type]
                except StopIteration as end:
                    result = end.value
            graphs.append(graph)
        return _Pieces(ids_N, ins, features_NF, attn_NX, qkvs, graphs, result)


@dataclass(frozen=True, slots=True)
class Runners:
    """How the forward passes of one layout are launched."""

    target: Forward
    first: Forward
    later: Forward


EAGER = Runners(EagerForward(), EagerForward(), EagerForward())
