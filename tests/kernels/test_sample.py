import math

import numpy as np
import pytest
import torch

from specbench.kernels.philox import PURPOSE_SAMPLE, uniform
from specbench.kernels.sample import filter_top_k_top_p, gumbel_ref, sample, sample_ref, sample_triton

INF, NAN = float("inf"), float("nan")
OPS = [sample_ref, sample_triton, sample]
# 256-wide chunks on the CPU path, one part or several in Triton, and sizes that no quad divides.
VOCABS = [1, 3, 130, 4096, 5001]


def keys(rows: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.arange(rows, device=device) * 7919 + 3, torch.arange(rows, device=device) * 5


def greedy(op, logits: torch.Tensor) -> list[int]:
    rows = logits.shape[0]
    # Temperatures are ignored under all_greedy.
    return op(logits, torch.ones(rows, device=logits.device), *keys(rows, logits.device), True).tolist()


@pytest.mark.parametrize("vocab", VOCABS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("op", OPS)
def test_greedy_takes_the_first_largest(op, vocab, dtype, device):
    # bf16 makes many ties; numpy's argmax gives the first.
    logits = torch.randn(3, vocab, generator=torch.Generator().manual_seed(vocab)).to(device, dtype)
    assert greedy(op, logits) == np.argmax(logits.float().cpu().numpy(), axis=1).tolist()


@pytest.mark.parametrize("vocab", [2, 257, 4096])
@pytest.mark.parametrize("op", OPS)
def test_nan_infinities_and_ties(op, vocab, device):
    logits = torch.zeros(7, vocab, device=device)
    logits[1] = -INF
    logits[2] = NAN
    logits[3, : vocab - 1] = NAN
    logits[4, 0], logits[4, 1] = NAN, 1
    logits[5, vocab - 1] = INF
    logits[6, : vocab - 1] = -INF
    assert greedy(op, logits) == [0, 0, 0, vocab - 1, 1, vocab - 1, vocab - 1]
    rows = logits[[1, 2, 3, 5, 6]]
    random = op(rows, torch.ones(5, device=device), *keys(5, device), False)
    assert random.tolist() == [0, 0, vocab - 1, vocab - 1, vocab - 1]


@pytest.mark.parametrize("op", OPS)
def test_infinity_is_more_than_the_largest_number(op, device):
    largest = torch.finfo(torch.float32).max
    assert greedy(op, torch.tensor([[largest, INF, 0.0], [-INF, -largest, NAN]], device=device)) == [1, 1]


@pytest.mark.parametrize("vocab", VOCABS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("op", OPS)
def test_random_rows_against_float64(op, vocab, dtype, device):
    """Greedy and random rows in one batch, against the formula in double precision."""
    rows = 6
    logits = (torch.randn(rows, vocab, generator=torch.Generator().manual_seed(vocab)) * 3).to(device, dtype)
    temperature = torch.tensor([0.0, 1.0, 0.5, 2.0, 0.0, 10.0], device=device)
    seed, position = keys(rows, device)
    out = torch.full((rows,), -7, dtype=torch.int64, device=device)
    assert op(logits, temperature, seed, position.int(), False, out) is out

    noise = -np.log(-np.log1p(-uniform(seed, position, PURPOSE_SAMPLE, vocab).cpu().double().numpy()))
    t = temperature.cpu().double().numpy()[:, None]
    score = logits.cpu().double().numpy() / np.where(t > 0, t, 1) + np.where(t > 0, noise, 0)
    chosen = out.cpu().numpy()
    # A near-tie may fall either way in fp32; none occurs by much.
    assert (score[np.arange(rows), chosen] >= score.max(axis=1) - 1e-4).all()
    assert (chosen == score.argmax(axis=1)).sum() >= rows - 1


@pytest.mark.parametrize("op", OPS)
def test_a_token_does_not_depend_on_its_batch(op, device):
    logits = torch.randn(4, 300, generator=torch.Generator().manual_seed(0)).to(device)
    temperature = torch.ones(4, device=device)
    seed, position = keys(4, device)
    batch = op(logits, temperature, seed, position, False).tolist()
    for row in range(4):
        part = slice(row, row + 1)
        assert op(logits[part], temperature[part], seed[part], position[part], False).tolist() == batch[row : row + 1]


@pytest.mark.parametrize("op", [sample_ref, sample_triton])
def test_strided_logits(op, device):
    wide = torch.full((2, 90), INF, device=device)
    wide[:, :60] = torch.randn(2, 60, generator=torch.Generator().manual_seed(0))
    assert greedy(op, wide[:, :60]) == wide[:, :60].argmax(dim=1).tolist()


@pytest.mark.parametrize("op", OPS)
def test_no_rows(op, device):
    empty = torch.empty(0, device=device)
    assert op(torch.empty(0, 12, device=device), empty, empty.long(), empty.long(), True).shape == (0,)


def test_gumbel_is_accurate_over_its_whole_range():
    u = torch.cat([torch.logspace(-9.8, -1, 2000), torch.linspace(0.1, 1 - 2**-24, 2000)]).float()
    exact = -np.log(-np.log1p(-u.double().numpy()))
    assert np.abs(gumbel_ref(u).double().numpy() - exact).max() < 2e-5


def chi_square_bound(degrees: int) -> float:
    """Wilson and Hilferty's approximation of the 0.9999 quantile (z = 3.719)."""
    return degrees * (1 - 2 / (9 * degrees) + 3.719 * math.sqrt(2 / (9 * degrees))) ** 3


@pytest.mark.parametrize("top_k,top_p", [(0, 1.0), (5, 1.0), (0, 0.8), (6, 0.7)])
@pytest.mark.parametrize("op", [sample_ref, sample_triton])
def test_frequencies_are_those_of_softmax(op, top_k, top_p, device):
    draws = 200 if op is sample_triton and device.type == "cpu" else 20_000  # the interpreter is slow
    logits = torch.tensor([1.0, 0.5, -0.5, 2.0, 0.0, 1.5, -1.0, 0.2, 0.7, -0.2], device=device)
    temperature = 0.8
    expected = allowed_softmax(logits.double().cpu().numpy(), temperature, top_k, top_p)
    full = lambda value, dtype: torch.full((draws,), value, dtype=dtype, device=device)  # noqa: E731
    filtered = filter_top_k_top_p(
        logits.expand(draws, -1), full(temperature, torch.float32), full(top_k, torch.int32), full(top_p, torch.float32)
    )
    position = torch.arange(draws, device=device)
    ids = op(filtered, full(temperature, torch.float32), full(42, torch.int64), position, False)
    counts = np.bincount(ids.cpu().numpy(), minlength=10)
    possible = expected > 0
    assert counts[~possible].sum() == 0
    statistic = ((counts - draws * expected)[possible] ** 2 / (draws * expected[possible])).sum()
    assert statistic < chi_square_bound(int(possible.sum()) - 1)


def allowed_softmax(logits: np.ndarray, temperature: float, top_k: int, top_p: float) -> np.ndarray:
    """One row, token by token from the most likely on."""
    order = sorted(range(len(logits)), key=lambda token: -logits[token])
    if 0 < top_k < len(logits):
        order = [token for token in order if logits[token] >= logits[order[top_k - 1]]]
    mass = np.exp((logits - logits.max()) / temperature)
    total, kept, sum_kept = sum(mass[token] for token in order), [], 0.0
    for token in order:
        if kept and top_p < 1 and sum_kept >= top_p * total:
            break
        kept.append(token)
        sum_kept += mass[token]
    return np.array([mass[token] / sum_kept if token in kept else 0.0 for token in range(len(logits))])


@pytest.mark.parametrize("vocab", [1, 7, 200])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_filter_against_one_row_at_a_time(vocab, dtype, device):
    cases = [(k, p, t) for k in (-1, 0, 1, 3, vocab, vocab + 9) for p in (0.0, 0.31, 0.9, 1.0) for t in (0.0, 0.7, 2.0)]
    logits = torch.randn(len(cases), vocab, generator=torch.Generator().manual_seed(vocab)).to(device, dtype)
    columns = [torch.tensor(column, device=device) for column in zip(*cases, strict=True)]
    before = logits.clone()
    out = filter_top_k_top_p(logits, columns[2].float(), columns[0].int(), columns[1].float())
    assert torch.equal(logits, before) and out.dtype == dtype
    for row, (top_k, top_p, temperature) in enumerate(cases):
        values = before[row].double().cpu().numpy()
        allowed = torch.from_numpy(allowed_softmax(values, temperature or 1.0, top_k, top_p) > 0)
        # bf16 makes ties at the edge of a top-p set; any of the equal tokens may stay.
        assert torch.equal(out[row].cpu().sort().values, before[row].cpu().masked_fill(~allowed, -INF).sort().values)
        kept = out[row] > -INF
        assert torch.equal(out[row][kept], before[row][kept])


def test_filter_takes_nan_for_minus_infinity_and_keeps_ties_of_top_k(device):
    logits = torch.tensor([[NAN, 1.0, 2.0, 1.0, 0.0]], device=device)
    one = torch.ones(1, device=device)
    assert filter_top_k_top_p(logits, one, one.int() * 2, one).tolist() == [[-INF, 1.0, 2.0, 1.0, -INF]]
