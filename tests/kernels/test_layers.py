"""All layers in one call: the bits of their steps, for every kind of rows, and what is left to the steps."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from kernels.test_attention import Case, make_step

from specbench.kernels import compiled
from specbench.kernels.attention import torch_attention
from specbench.kernels.attention.torch_attention import TorchAttention
from specbench.kernels.layers import MAX_ROWS, Layers, LayerWeights
from specbench.kernels.product import after_attention, pack, product
from specbench.kernels.rms_norm import rms_norm
from specbench.kernels.rope_store_kv import rope_store_kv

CPU, BF16, EPS = torch.device("cpu"), torch.bfloat16, 1e-5
HIDDEN, INTERMEDIATE, NUM_LAYERS = 96, 192, 3
pytestmark = pytest.mark.skipif(pack(torch.zeros(1, 2, dtype=BF16)) is None, reason="no C compiler, or no AVX512-BF16")


class Toy:
    """Layers of random weights over the step of a case; `run` takes what the call takes in its place."""

    def __init__(self, case: Case, has_extras: bool = False):
        self.step = make_step(replace(case, dtype=BF16), CPU)
        self.drawn = torch.Generator().manual_seed(5)
        _, self.hq, self.d = self.step.q_THD.shape
        self.hkv = self.step.k_cache.shape[2]
        self.num_rows = int(self.step.meta.cu_q_B1[-1])
        self.weights = [self._layer(has_extras) for _ in range(NUM_LAYERS)]
        self.caches = [(self._like(self.step.k_cache), self._like(self.step.v_cache)) for _ in range(NUM_LAYERS)]
        self.residual_TH = self._draw(self.num_rows, HIDDEN)
        self.cos_sin_MD = torch.rand(self.step.meta.max_kv + 1, self.d, generator=self.drawn)
        cu_q, page = self.step.meta.cu_q_B1.tolist(), self.step.k_cache.shape[1]
        positions, slots = [], []
        for (first, end), keys, pages in zip(
            pairwise(cu_q), self.step.meta.kv_len_B.tolist(), self.step.meta.block_table_BP.tolist(), strict=True
        ):
            positions += (own := range(keys - (end - first), keys))
            slots += [pages[at // page] * page + at % page for at in own]
        self.position_T, self.slot_T = torch.tensor(positions), torch.tensor(slots)

    def _draw(self, *shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=self.drawn).to(BF16)

    def _like(self, cache: torch.Tensor) -> torch.Tensor:
        return self._draw(*cache.shape)

    def _packed(self, outputs: int, inputs: int) -> torch.Tensor:
        found = pack((torch.randn(outputs, inputs, generator=self.drawn) * inputs**-0.5).to(BF16))
        assert found is not None
        return found

    def _layer(self, has_extras: bool) -> LayerWeights:
        mixed = (self.hq + 2 * self.hkv) * self.d
        return LayerWeights(
            self._packed(mixed, HIDDEN),
            self._draw(mixed) if has_extras else None,
            self._draw(2, self.d) if has_extras else None,
            self._packed(HIDDEN, self.hq * self.d),
            self._draw(HIDDEN),
            self._packed(2 * INTERMEDIATE, HIDDEN),
            self._packed(HIDDEN, INTERMEDIATE),
            self._draw(HIDDEN),
        )

    def inputs(self):
        residual_TH = self.residual_TH.clone()
        normed_TH = rms_norm(residual_TH, torch.ones(HIDDEN, dtype=BF16), EPS)
        return residual_TH, normed_TH, [(k.clone(), v.clone()) for k, v in self.caches]

    def in_steps(self):
        residual_TH, x_TH, caches = self.inputs()
        kept = []
        for w, (k, v) in zip(self.weights, caches, strict=True):
            qkv = product(x_TH, w.qkv, (self.hq + 2 * self.hkv) * self.d, w.qkv_bias)
            where = (self.cos_sin_MD, self.position_T, self.slot_T, k, v, self.hq, self.hkv, w.head_norm_2D, EPS)
            q_THD = rope_store_kv(qkv, *where)
            attn = TorchAttention().forward(q_THD, k, v, self.step.meta, self.step.scale).view(self.num_rows, -1)
            mlp = (w.gate_up, w.down, w.next_norm_H, EPS)
            x_TH = after_attention(attn, residual_TH, w.o, w.post_norm_H, *mlp)
            kept.append(residual_TH.clone())
        return x_TH, residual_TH, caches, kept

    def in_one(self, kept: dict[int, torch.Tensor] | None = None):
        residual_TH, normed_TH, caches = self.inputs()
        run = Layers(self.weights, self.hq, self.hkv, EPS)
        where = (self.cos_sin_MD, self.position_T, self.slot_T, self.step.meta, self.step.scale)
        out_TH = run(residual_TH, normed_TH, caches, kept or {}, *where)
        return out_TH, residual_TH, caches


CASES = [
    Case(lengths=((1, 1),)),
    Case(lengths=((1, 200),), head_dim=64),
    Case(lengths=((5, 70),), head_dim=128),
    Case(lengths=((5, 70), (1, 33), (9, 20))),
    Case(lengths=((3, 40), (0, 21), (2, 9))),
    Case(lengths=((6, 50), (6, 13)), tree=True, older=7),
]


@pytest.mark.parametrize("has_extras", [False, True], ids=["plain", "bias and head norms"])
@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_bits_are_those_of_its_steps(case, threads, has_extras, monkeypatch):
    toy = Toy(case, has_extras)
    right, residual, caches, states = toy.in_steps()
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    kept_TF = torch.full((toy.num_rows, 2 * HIDDEN), float("nan"), dtype=BF16)
    out, own_residual, own_caches = toy.in_one({0: kept_TF[:, HIDDEN:], 2: kept_TF[:, :HIDDEN]})
    assert torch.equal(out, right) and torch.equal(own_residual, residual) and right.isfinite().all()
    assert torch.equal(kept_TF, torch.cat([states[2], states[0]], dim=1))
    for (k, v), (own_k, own_v) in zip(caches, own_caches, strict=True):
        assert torch.equal(k, own_k) and torch.equal(v, own_v)


def test_more_scores_than_attention_alone_takes(monkeypatch):
    toy = Toy(Case(lengths=((6, 1200),)))
    out = toy.in_one()[0]
    monkeypatch.setattr(torch_attention, "_MAX_COMPILED_SCORES", 1 << 30)
    assert torch.equal(out, toy.in_steps()[0])


def test_many_times_in_a_row_threads_wait_for_each_other():
    toy = Toy(Case(lengths=((2, 40),)))
    right = toy.in_one()[0]
    assert all(torch.equal(toy.in_one()[0], right) for _ in range(300))


def test_rows_that_it_leaves_to_its_steps():
    few, many = Toy(Case(lengths=((2, 40),))), Toy(Case(lengths=((MAX_ROWS + 1, 40),)))
    assert many.in_one()[0] is None
    few.step.meta.kv_len_B.fill_(1)  # fewer keys than rows
    out, residual, caches = few.in_one()
    assert out is None and torch.equal(residual, few.residual_TH)
    assert all(torch.equal(k, given) for (k, _), (given, _) in zip(caches, few.caches, strict=True))


def test_weights_that_it_takes():
    weights = Toy(CASES[0]).weights[0]
    odd = pack(torch.zeros(HIDDEN, INTERMEDIATE - 2, dtype=BF16))
    assert odd is not None and Layers.take(weights)
    assert not Layers.take(weights._replace(down=odd))
    assert not Layers.take(weights._replace(post_norm_H=torch.ones(HIDDEN)))
    assert not Layers.take(weights._replace(next_norm_H=torch.ones(2 * HIDDEN, dtype=BF16)[::2]))


def test_no_memory_is_an_error(monkeypatch):
    functions = compiled.library()

    class Refuses:
        def __getattr__(self, name):
            return (lambda *given: -1) if name == "specbench_layers" else getattr(functions, name)

    toy = Toy(CASES[0])
    monkeypatch.setattr(compiled, "library", Refuses)
    with pytest.raises(MemoryError, match="1 rows of 3 layers"):
        toy.in_one()
