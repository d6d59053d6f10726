import pytest
import torch

from specbench.kernels import compiled
from specbench.kernels.philox import (
    philox4x32,
    philox_uniform_block,
    philox_words,
    uniform,
    uniform_c,
    uniform_from_words,
    uniform_ref,
)
from specbench.kernels.triton_support import tl, triton

# kat_vectors of the authors' Random123: counter, key, result of philox4x32 with 10 rounds.
KNOWN_ANSWERS = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def words(text: str) -> list[int]:
    return [int(word, 16) for word in text.split()]


@pytest.mark.parametrize("counter,key,result", KNOWN_ANSWERS)
def test_published_vectors(counter, key, result):
    counter_words = tuple(torch.tensor([word]) for word in words(counter))
    key_words = tuple(torch.tensor([word]) for word in words(key))
    assert philox4x32(key_words, counter_words).flatten().tolist() == words(result)


def test_seed_and_position_are_key_and_counter():
    seed = torch.tensor([0x299F31D0_A4093822])
    expected = philox4x32(
        (torch.tensor([0xA4093822]), torch.tensor([0x299F31D0])),
        (torch.tensor([2]), torch.tensor([77]), torch.tensor([5]), torch.tensor([0])),
    )
    assert torch.equal(philox_words(seed, torch.tensor([77]), 5, 4)[0, :, 2:3], expected)


@triton.jit
def _uniform_kernel(seed_ptr, position_ptr, out_ptr, purpose, quads, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    quad = tl.arange(0, BLOCK)
    u0, u1, u2, u3 = philox_uniform_block(tl.load(seed_ptr + row), tl.load(position_ptr + row), purpose, quad)
    at = out_ptr + row * 4 * quads + quad
    tl.store(at, u0, mask=quad < quads)
    tl.store(at + quads, u1, mask=quad < quads)
    tl.store(at + 2 * quads, u2, mask=quad < quads)
    tl.store(at + 3 * quads, u3, mask=quad < quads)


@pytest.mark.parametrize("position_dtype", [torch.int32, torch.int64])
def test_triton_gives_the_same_bits(position_dtype, device):
    seed = torch.tensor([0, 1, -1, 2**63 - 1, -(2**63), 123456789012345], device=device)
    position = torch.tensor([0, 3, 8191, 2**31 - 1, 1, 65536], dtype=position_dtype, device=device)
    out = torch.full((6, 400), float("nan"), device=device)
    _uniform_kernel[(6,)](seed, position, out, 3, 100, BLOCK=128)
    assert torch.equal(out, uniform(seed, position, 3, 400))


@pytest.mark.skipif(compiled.library() is None, reason="no C compiler")
@pytest.mark.parametrize("position_dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("num", [1, 6, 401, 20_000])
def test_compiled_gives_the_same_bits(position_dtype, num):
    seed = torch.tensor([0, 1, -1, 2**63 - 1, -(2**63), 123456789012345])
    position = torch.tensor([0, 3, 8191, 2**31 - 1, 1, 65536], dtype=position_dtype)
    for seeds, positions in ((seed, position), (seed[::2], position[1::2])):
        wanted = uniform_ref(seeds, positions, 3, num)
        assert torch.equal(uniform_c(seeds, positions, 3, num), wanted)
        assert torch.equal(uniform(seeds, positions, 3, num), wanted), "and it is what runs"


def test_open_interval_and_uniformity():
    numbers = uniform(torch.arange(8), torch.arange(8), 0, 50_001)
    assert numbers.shape == (8, 50_001)
    assert (numbers > 0).all() and (numbers < 1).all()
    counts = torch.histc(numbers, 20, 0, 1)
    expected = numbers.numel() / 20
    assert ((counts - expected) ** 2 / expected).sum() < 43.8  # chi-square, 19 degrees of freedom, p = 0.001


def test_extreme_words_stay_inside_the_interval():
    smallest, largest = uniform_from_words(torch.tensor([0, 2**32 - 1])).tolist()
    assert 0 < smallest < 2**-32 and largest == 1 - 2**-24


def test_a_row_does_not_depend_on_its_batch():
    seed, position = torch.tensor([5, 6, 7]), torch.tensor([1, 2, 3])
    alone = uniform(seed[1:2], position[1:2], 0, 101)
    assert torch.equal(uniform(seed, position, 0, 101)[1:2], alone)
    for other in (uniform(seed[1:2] + 1, position[1:2], 0, 101), uniform(seed[1:2], position[1:2], 1, 101)):
        assert not torch.isclose(other, alone).any()
