"""Routing and grouped products of experts against a loop over rows in fp64."""

import pytest
import torch

from specbench.kernels.experts import ExpertWeights, experts, experts_ref, experts_triton
from specbench.kernels.fp8 import E4M3, GROUP, quantize_groups_ref, widen_blocks
from specbench.kernels.route_experts import num_blocks, route_ref


def by_rows(x, logits, gate_up, down, k, normalised, rounded=torch.Tensor.double):
    """fp64; a row at a time, an expert at a time. `rounded`: what a product sees of its inputs."""
    out, prob = torch.zeros(x.shape, dtype=torch.float64), logits.double().softmax(-1)
    for row in range(len(x)):
        order = sorted(range(logits.shape[1]), key=lambda e: (-prob[row, e].item(), e))[:k]
        whole = prob[row, order].sum() if normalised else 1.0
        for expert in order:
            gate, up = (gate_up[expert].double() @ rounded(x[row])).chunk(2)
            inner = gate / (1 + torch.exp(-gate)) * up
            out[row] += down[expert].double() @ rounded(inner) * (prob[row, expert] / whole)
    return out


def in_e4m3(x_I: torch.Tensor) -> torch.Tensor:
    """fp64 [I]: each group of 128 quantized by its largest value."""
    quantized, scale = quantize_groups_ref(x_I[None])
    return (quantized.double() * scale.double().repeat_interleave(GROUP, 1))[0]


def numbers(*shape: int, scale: float = 1.0) -> torch.Tensor:
    return torch.randn(*shape) * scale


SHAPES = {  # rows, experts, k, hidden, inner
    "one row": (1, 4, 2, 64, 96),
    "odd": (5, 6, 3, 80, 48),
    "one expert a row": (7, 5, 1, 64, 64),
    "all experts": (3, 4, 4, 64, 64),
    "several blocks of an expert": (40, 2, 2, 64, 64),
    "no row": (0, 4, 2, 64, 64),
}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("op", [experts_ref, experts_triton, experts])
def test_experts_equal_a_loop_over_rows(op, normalised, name, device):
    rows, count, k, hidden, inner = SHAPES[name]
    x, logits = numbers(rows, hidden), numbers(rows, count, scale=2.0)
    gate_up, down = numbers(count, 2 * inner, hidden, scale=hidden**-0.5), numbers(count, hidden, inner, scale=0.2)
    read = torch.zeros(2, dtype=torch.int64)
    on = [t.to(device) for t in (x, logits, gate_up, down, read)]
    y = op(on[0], on[1], ExpertWeights(on[2], on[3], on[4]), k, normalised)
    torch.testing.assert_close(y.cpu().double(), by_rows(x, logits, gate_up, down, k, normalised), atol=2e-5, rtol=2e-5)
    if rows:
        hit = len({e for row in logits.topk(k).indices.tolist() for e in row})
        assert on[4].tolist() == [hit, 1]


@pytest.mark.parametrize(
    ("op", "device"),
    [
        (experts_ref, "cpu"),
        # The interpreter multiplies bf16 by its bits.
        pytest.param(experts_triton, "cuda", marks=pytest.mark.gpu),
    ],
)
def test_in_bfloat16(op, device):
    x, logits = numbers(6, 64).bfloat16(), numbers(6, 8, scale=2.0).bfloat16()
    gate_up, down = numbers(8, 128, 64, scale=0.12).bfloat16(), numbers(8, 64, 64, scale=0.12).bfloat16()
    weights = ExpertWeights(*(t.to(device) for t in (gate_up, down, torch.zeros(2, dtype=torch.int64))))
    y = op(x.to(device), logits.to(device), weights, 2, True)
    exact = by_rows(x, logits, gate_up, down, 2, True)
    assert y.dtype == torch.bfloat16 and (y.cpu().double() - exact).abs().max() < 0.02 * exact.abs().max()


@pytest.mark.parametrize("op", [experts_ref, experts_triton])
def test_every_row_may_choose_the_same_expert_and_ties_go_to_the_first(op, device):
    x, logits = numbers(20, 64), torch.zeros(20, 4)
    logits[:, 2] = 9.0
    gate_up, down = numbers(4, 128, 64, scale=0.12), numbers(4, 64, 64, scale=0.12)
    read = torch.zeros(2, dtype=torch.int64, device=device)
    y = op(x.to(device), logits.to(device), ExpertWeights(gate_up.to(device), down.to(device), read), 2, True)
    torch.testing.assert_close(y.cpu().double(), by_rows(x, logits, gate_up, down, 2, True), atol=2e-5, rtol=2e-5)
    assert read.tolist() == [2, 1] and route_ref(logits, 2, True)[1][0].tolist() == [2, 0]


@pytest.mark.parametrize("op", [experts_ref, experts_triton])
@pytest.mark.parametrize("k", [1, 3])
def test_rows_of_nan_leave_the_others_as_they_are(op, k, device):
    """Rows that pad a graph: whatever they hold, each is sent to experts that there are."""
    x, logits = numbers(9, 64), numbers(9, 6)
    x[2:7] = logits[2:7] = torch.nan
    gate_up, down = numbers(6, 128, 64, scale=0.12), numbers(6, 64, 64, scale=0.12)
    read = torch.zeros(2, dtype=torch.int64, device=device)
    y = op(x.to(device), logits.to(device), ExpertWeights(gate_up.to(device), down.to(device), read), k, True).cpu()
    live = [0, 1, 7, 8]
    exact = by_rows(x[live], logits[live], gate_up, down, k, True)
    torch.testing.assert_close(y[live].double(), exact, atol=2e-5, rtol=2e-5)
    assert y[2:7].isnan().all() and read[0] <= 6


def test_the_counter_goes_on_from_pass_to_pass(device):
    read = torch.zeros(2, dtype=torch.int64, device=device)
    weights = ExpertWeights(numbers(4, 64, 64).to(device), numbers(4, 64, 32).to(device), read)
    for op in (experts_triton, experts_triton, experts):
        op(numbers(1, 64).to(device), numbers(1, 4).to(device), weights, 2, True)
    assert read.tolist() == [6, 3]


def test_blocks_suffice_for_every_routing():
    assert num_blocks(1, 128, 16) == 1 and num_blocks(8, 4, 16) == 4 and num_blocks(40, 2, 16) == 4
    for counts in ([33, 1, 1, 1], [9, 9, 9, 9], [36, 0, 0, 0]):
        assert sum(-(-c // 16) for c in counts) <= num_blocks(36, 4, 16)


@pytest.mark.parametrize("scales", ["block", "row"])
@pytest.mark.parametrize("rows", [1, 9])
def test_e4m3_experts_by_triton(scales, rows, device):
    """What goes into gate, up and down is rounded by the kernel as torch rounds it."""
    count, k, hidden, inner = 3, 2, 256, 128
    x, logits = numbers(rows, hidden), numbers(rows, count, scale=2.0)
    gate_up, down = (numbers(count, 2 * inner, hidden) * 60).to(E4M3), (numbers(count, hidden, inner) * 60).to(E4M3)
    if scales == "block":
        s1, s2 = (torch.rand(count, o // 128, i // 128) / 900 for o, i in ((256, hidden), (hidden, inner)))
        wide = [torch.stack([widen_blocks(w[e], s[e]) for e in range(count)]) for w, s in ((gate_up, s1), (down, s2))]
    else:
        s1, s2 = (torch.rand(count, o, 1) / 900 for o in (2 * inner, hidden))
        wide = [gate_up.float() * s1, down.float() * s2]
    read = torch.zeros(2, dtype=torch.int64)
    on = [t.to(device) for t in (gate_up, down, read, s1, s2)]
    y = experts_triton(x.to(device), logits.to(device), ExpertWeights(*on), k, True).cpu().double()
    exact = by_rows(x, logits, *wide, k, True, rounded=in_e4m3)
    # Other last bits of exp and of a sum give some inputs of down the next E4M3 value, on a GPU more of them.
    bound = 0.05 if device.type == "cuda" else 1e-3
    assert (y - exact).square().mean().sqrt() < bound * exact.square().mean().sqrt()
