"""Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).

A number depends only on (seed, position, purpose, element, V), never on the batch, the launch or the strategy.
Key = the 64-bit seed, low word first. Counter = (quad, position, purpose, 0): one Philox call gives four words, which
serve the elements quad, quad + Qr, quad + 2*Qr and quad + 3*Qr of a row, where Qr = ceil(V/4).
Legend: R rows, V elements of a row.
"""

import torch
from torch import Tensor

from specbench.kernels import compiled
from specbench.kernels.triton_support import tl, triton

PURPOSE_SAMPLE = 0  # choice of the target's token

_MULTIPLIER_0, _MULTIPLIER_1 = 0xD2511F53, 0xCD9E8D57
_KEY_STEP_0, _KEY_STEP_1 = 0x9E3779B9, 0xBB67AE85
_WORD = 0xFFFFFFFF
_LARGEST_UNIFORM = 1 - 2**-24


def philox_words(seed_R: Tensor, position_R: Tensor, purpose: int, num_quads: int) -> Tensor:
    """The raw 32-bit words for quads 0..num_quads-1 of each row, as int64 [R, 4, num_quads]."""
    seed_R1 = seed_R.to(torch.int64).unsqueeze(1)
    quad_Q = torch.arange(num_quads, dtype=torch.int64, device=seed_R.device)
    return philox4x32(
        (seed_R1 & _WORD, (seed_R1 >> 32) & _WORD),
        (quad_Q, position_R.to(torch.int64).unsqueeze(1) & _WORD, torch.full_like(seed_R1, purpose), 0 * seed_R1),
    )


def philox4x32(key: tuple[Tensor, Tensor], counter: tuple[Tensor, Tensor, Tensor, Tensor]) -> Tensor:
    """Ten rounds over int64 tensors that hold 32-bit words; the four result words are stacked along dimension -2."""
    key_0, key_1 = key
    c0, c1, c2, c3 = counter
    for _ in range(10):
        # The products wrap modulo 2^64 in int64, so their bits are those of the unsigned products. c1 and c3 keep the
        # high halves, which the mask of the next round's c0 and c2 takes away: two operations fewer a round.
        product_0, product_1 = c0 * _MULTIPLIER_0, c2 * _MULTIPLIER_1
        c0, c1 = ((product_1 >> 32) ^ (c1 ^ key_0)) & _WORD, product_1
        c2, c3 = ((product_0 >> 32) ^ (c3 ^ key_1)) & _WORD, product_0
        key_0, key_1 = (key_0 + _KEY_STEP_0) & _WORD, (key_1 + _KEY_STEP_1) & _WORD
    return torch.stack((c0, c1 & _WORD, c2, c3 & _WORD), dim=-2)


def uniform(seed_R: Tensor, position_R: Tensor, purpose: int, num: int) -> Tensor:
    """Numbers in (0, 1), fp32 [R, num].

    The grid is fine (2^-33) near 0, so that -log1p(-u) resolves the rare large Gumbel values.
    """
    if seed_R.device.type == "cpu" and compiled.library() is not None:
        return uniform_c(seed_R, position_R, purpose, num)
    return uniform_ref(seed_R, position_R, purpose, num)


def uniform_ref(seed_R: Tensor, position_R: Tensor, purpose: int, num: int) -> Tensor:
    words_R4Q = philox_words(seed_R, position_R, purpose, (num + 3) // 4)
    return uniform_from_words(words_R4Q).flatten(1)[:, :num]


def uniform_c(seed_R: Tensor, position_R: Tensor, purpose: int, num: int) -> Tensor:
    functions = compiled.library()
    assert functions is not None
    seed_R = seed_R.to(torch.int64).contiguous()
    position_R = position_R.to(torch.int64).expand(seed_R.shape).contiguous()
    quads = (num + 3) // 4
    out_RX = torch.empty(seed_R.shape[0], 4 * quads)
    functions.specbench_uniform(
        seed_R.data_ptr(), position_R.data_ptr(), out_RX.data_ptr(), seed_R.shape[0], quads, purpose
    )
    return out_RX[:, :num]


def uniform_from_words(words: Tensor) -> Tensor:
    return (words.float() * 2**-32 + 2**-33).clamp_(max=_LARGEST_UNIFORM)


@triton.jit
def philox_uniform_block(seed, position, purpose, quad):
    """Four fp32 blocks of uniform numbers for int32 `quad`, bit for bit those of `uniform`."""
    zeros = quad * 0
    counter_1 = zeros + position.to(tl.int32)
    w0, w1, w2, w3 = tl.philox(seed, quad, counter_1, zeros + purpose, zeros, 10)
    return _to_uniform(w0), _to_uniform(w1), _to_uniform(w2), _to_uniform(w3)


@triton.jit
def _to_uniform(word):
    scaled = word.to(tl.uint32, bitcast=True).to(tl.float32) * 2.3283064365386963e-10  # 2^-32
    return tl.minimum(scaled + 1.1641532182693481e-10, 0.9999999403953552)  # 2^-33, 1 - 2^-24
