"""Which sizes of a step get graphs: requests of a decode round, rows of a mixed step."""

from __future__ import annotations

from specbench.harness.engines.native.models.config import ModelConfig

# A mixed step of fewer rows is captured whatever the model, as in vLLM.
MIN_CAPTURED_ROWS = 512
# Operations that keep a Hopper GPU busy while the host launches a layer kernel by kernel: 0.8 ms at 650 TFLOP/s of bf16
# (launching thirty layers took 15 to 20 ms on an H100's host).
_HIDES_A_LAYER_FLOPS = 5e11


def capture_sizes(max_num_seqs: int) -> list[int]:
    """Batch sizes (requests) that get a graph: 1, 2, 4, then multiples of 8 (of 16 beyond 64) up to the largest batch.

    The sizes are in requests, not rows: each request has its K+1 rows, so no K can lead to a size that is not a
    multiple of K+1.
    """
    sizes = {1, 2, 4, *range(8, 65, 8), *range(80, max_num_seqs + 1, 16), max_num_seqs}
    return sorted(size for size in sizes if size <= max_num_seqs)


def most_captured_rows(model: ModelConfig) -> int:
    """Rows of a mixed step beyond which the model's work hides the launches, so that a graph would save nothing.
    Experts count whole: a step of hundreds of rows reads nearly all of them."""
    work_a_row = 2 * model.num_layer_weights / model.num_layers
    return max(MIN_CAPTURED_ROWS, int(_HIDES_A_LAYER_FLOPS / work_a_row))


def row_sizes(most: int) -> list[int]:
    """Row counts that get graphs in mixed steps, up to `most`: 1, 2, 4, 8, then multiples of 16; beyond 256, steps of
    an eighth of the power of two below, so that at most one row in eight is padding."""
    sizes = {1, 2, 4, 8, *range(16, 257, 16), most}
    start = 256
    while start < most:
        sizes |= set(range(start, 2 * start, start // 8))
        start *= 2
    return sorted(size for size in sizes if size <= most)
