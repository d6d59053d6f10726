"""E4M3 products against plain sums of values that E4M3 holds exactly, and the rounding of others against torch's."""

import pytest
import torch

from specbench.kernels.fp8 import (
    E4M3,
    fp8_block_linear,
    fp8_block_linear_ref,
    fp8_block_linear_triton,
    quantize_rows,
    quantize_rows_ref,
    quantize_rows_triton,
    tile,
    widen_blocks,
)


def exact_rows(rows: int, inputs: int, group: int) -> torch.Tensor:
    """Whole numbers of three bits times a power of two for each group, whose largest is 448 times that power."""
    x = torch.randint(-15, 16, (rows, inputs // group, group)).float()
    x[:, :, 3] = 448.0
    return (x * 2.0 ** torch.randint(-6, 3, (rows, inputs // group, 1))).view(rows, inputs)


def weights(outputs: int, inputs: int) -> tuple[torch.Tensor, torch.Tensor]:
    weight = (torch.randn(outputs, inputs) * 60).to(E4M3)
    return weight, torch.rand(outputs // 128, inputs // 128) / 100 + 1e-3


@pytest.mark.parametrize("shape", [(1, 128, 128), (5, 256, 384), (40, 384, 256), (130, 128, 128), (0, 128, 128)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("op", [fp8_block_linear_ref, fp8_block_linear_triton, fp8_block_linear])
def test_block_products(op, shape, dtype, device, assert_close):
    rows, outputs, inputs = shape
    x = exact_rows(rows, inputs, 128).to(dtype)
    weight, scale = weights(outputs, inputs)
    bias = torch.randn(outputs).to(dtype)
    wide = widen_blocks(weight, scale).double()
    for b in (bias, None):
        y = op(x.to(device), weight.to(device), scale.to(device), None if b is None else b.to(device))
        assert y.dtype == dtype and y.is_contiguous()
        expected = x.double() @ wide.t() + (0 if b is None else b.double())
        terms = x.double().abs() @ wide.abs().t() + (0 if b is None else b.double().abs())
        magnitude = terms.clamp(min=1e-30)  # sums cancel: errors are of their terms
        share = (y.cpu().double() / magnitude).to(dtype)
        if device.type == "cuda" and op is not fp8_block_linear_ref and tile(rows, outputs, device)[0] >= 64:
            # Tiles of 64 rows go through wgmma, which adds E4M3 products in about 14 bits (DeepSeek-V3, section 3.5.2);
            # then the product and its share are rounded to bf16, by half of 2**-8 each.
            assert (share.double() - expected / magnitude).abs().max() < (
                2**-10 if dtype == torch.float32 else 2**-10 + 2**-8
            )
        else:
            assert_close(share, expected / magnitude)


def test_a_block_has_its_own_scale():
    scale = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    wide = widen_blocks(torch.ones(130, 200).to(E4M3), scale)
    assert wide[0, 0] == 1 and wide[127, 128] == 2 and wide[128, 127] == 3 and wide[129, 199] == 4


@pytest.mark.parametrize("op", [quantize_rows_ref, quantize_rows_triton, quantize_rows])
def test_rows_are_quantized_by_their_own_largest_value(op, device):
    x = exact_rows(3, 1536, 1536)
    x[1] = 0.0
    quantized, scale = op(x.to(device))
    assert quantized.dtype == E4M3 and scale.shape == (3, 1)
    assert torch.equal(quantized.float().cpu() * scale.cpu(), x)
    assert quantized.float().abs().amax(1).tolist() == [448.0, 0.0, 448.0]


def test_random_values_are_rounded_as_torch_rounds_them_by_triton(device):
    """Interpreted, the conversion itself is torch's (toy/interpreter.py)."""
    x = torch.randn(70, 512).to(device, torch.bfloat16)
    weight, scale = (t.to(device) for t in weights(256, 512))
    ours, theirs = fp8_block_linear_triton(x, weight, scale), fp8_block_linear_ref(x, weight, scale)
    # Sums in the tensor cores' own width, then bf16.
    assert (ours - theirs).float().square().mean().sqrt() < 0.01 * theirs.float().std()
    for mine, other in zip(quantize_rows_triton(x), quantize_rows_ref(x), strict=True):
        assert torch.equal(mine.float(), other.float())


def test_tiles_cut_the_weight_into_whole_parts_of_blocks():
    for rows in (1, 17, 64, 4096):
        block_t, block_o = tile(rows, 4096, torch.device("cpu"))
        assert 16 <= block_t <= 128 and 128 % block_o == 0 and block_o >= 32
