"""How the paged attention kernel is launched, decided from numbers the host knows before the step.

A captured graph replays one launch for every length up to max_kv, so nothing here may depend on values on the device.
The constants per case are a fixed table: no autotuning, which would compile and time during capture.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from specbench.kernels.attention.base import AttentionMetadata

# Programs of the decode cases that run at once on one multiprocessor of an H100/H200.
_PROGRAMS_PER_SM = 2
_MAX_SPLITS = 32
FEW_KEYS = 576  # of a request of 512 tokens: drafts and the rest of the last page come on top
# In times of one block of keys: what a program spends on starting and on its partial result, and the merge's launch.
_PROGRAM_COST_BLOCKS = 1
_MERGE_COST_BLOCKS = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchShape:
    """What is known on the host: the step's sizes and the device. `max_kv`: keys that a request may have in this step,
    `most_kv`: in any step of the engine, from the pages of its block table."""

    num_requests: int
    num_rows: int
    max_q: int
    max_kv: int
    most_kv: int
    uniform: bool
    num_kv_heads: int
    group: int
    head_dim: int
    element_bytes: int
    num_sms: int

    @staticmethod
    def of(q_THD: Tensor, k_cache: Tensor, meta: AttentionMetadata) -> LaunchShape:
        num_rows, num_heads, head_dim = q_THD.shape
        num_kv_heads = k_cache.shape[2]
        return LaunchShape(
            num_requests=meta.kv_len_B.shape[0],
            num_rows=num_rows,
            max_q=meta.max_q,
            max_kv=meta.max_kv,
            most_kv=meta.block_table_BP.shape[1] * k_cache.shape[1],
            uniform=meta.is_uniform,
            num_kv_heads=num_kv_heads,
            group=num_heads // num_kv_heads,
            head_dim=head_dim,
            element_bytes=q_THD.element_size(),
            num_sms=torch.cuda.get_device_properties(q_THD.device).multi_processor_count if q_THD.is_cuda else 1,
        )

    def num_tiles(self, block_m: int) -> int:
        """Tiles of packed rows over all requests; for ragged steps a bound whose surplus programs exit at once."""
        if self.uniform:
            return self.num_requests * -(-self.max_q * self.group // block_m)
        return self.num_rows * self.group // block_m + self.num_requests


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """Block sizes (packed rows, keys), splits of the keys, and Triton's warps and pipeline stages."""

    block_m: int
    block_n: int
    num_splits: int
    num_warps: int
    num_stages: int


def choose_launch(shape: LaunchShape) -> Launch:
    """The launch for a shape: a fixed table by rows and bytes of a key, then as many splits as fill the device."""
    rows = shape.max_q * shape.group
    is_fp32 = shape.element_bytes == 4
    block_n = 32 if is_fp32 else 64
    num_stages = 4 if shape.head_dim * shape.element_bytes <= 128 else 3
    if shape.uniform and rows <= 64 and shape.head_dim == 128 and not is_fp32 and shape.most_kv <= FEW_KEYS:
        return _few_keys_launch(shape)  # by most_kv: a step must not need a kernel that earlier steps did not
    fills_device = shape.num_tiles(64) * shape.num_kv_heads >= shape.num_sms
    if not shape.uniform and (is_fp32 or rows <= 64):
        # Rows of a request differ from step to step: few block sizes, for each is a compilation.
        block_m, num_warps = (32 if is_fp32 else 64), 4
    elif rows <= 32 and fills_device and not is_fp32 and shape.head_dim == 128:
        # The keys' bandwidth is all that counts once the device is full, and 64 rows, however padded, are one warp
        # group's product on Hopper: 245 us against 301 for B=64, L=4096, 32/8 heads of 128 in bf16, pages of 16.
        block_m, num_warps = 64, 4
    elif rows <= 16:
        block_m, num_warps = 16, 4
    elif rows <= 32 or is_fp32:
        block_m, num_warps = 32, 4
    elif rows <= 64:
        block_m, num_warps = 64, 4
    else:
        block_m, num_warps = 128, 8
    num_splits = choose_num_splits(
        num_programs=shape.num_tiles(block_m) * shape.num_kv_heads,
        num_slots=shape.num_sms * _PROGRAMS_PER_SM,
        max_blocks=-(-shape.max_kv // block_n),
    )
    return Launch(block_m=block_m, block_n=block_n, num_splits=num_splits, num_warps=num_warps, num_stages=num_stages)


def _few_keys_launch(shape: LaunchShape) -> Launch:
    """Where latency counts, not bandwidth. Measured on an H200 (benchmarks/attention_h200.py --sweep) for 1 to 128
    requests of one and five rows: Llama-3.1-8B with 200 to 450 of at most 512 keys; its parts among two and four ranks,
    and those of Llama-2-70B, with 200."""
    num_programs = shape.num_tiles(64) * shape.num_kv_heads
    if num_programs < shape.num_sms // 5:  # measured: 16 are as fast or faster split, 32 are not
        splits = max(1, -(-shape.max_kv // 64))  # one block each: a second stage is all that can be used
        return Launch(block_m=64, block_n=64, num_splits=splits, num_warps=4, num_stages=2)
    if num_programs <= shape.num_sms:  # each has a multiprocessor's shared memory
        return Launch(block_m=64, block_n=64, num_splits=1, num_warps=4, num_stages=4)
    if num_programs <= 2 * shape.num_sms:
        return Launch(block_m=64, block_n=32, num_splits=1, num_warps=4, num_stages=4)
    if shape.max_q * shape.group <= 16:  # so few that several programs on a multiprocessor keep four stages each
        return Launch(block_m=16, block_n=32, num_splits=1, num_warps=4, num_stages=4)
    return Launch(block_m=64, block_n=32, num_splits=1, num_warps=4, num_stages=2)


@lru_cache(maxsize=4096)  # a step asks once for each layer
def choose_num_splits(*, num_programs: int, num_slots: int, max_blocks: int) -> int:
    """Splits of the keys that finish soonest: waves of programs times blocks of each, plus the merge.

    `num_programs` without splits, `num_slots` that run at once, `max_blocks` of keys in the longest request allowed.
    """

    def cost_blocks(num_splits: int) -> int:
        waves = -(-num_programs * num_splits // num_slots)
        blocks_each = -(-max_blocks // num_splits)
        return waves * (blocks_each + _PROGRAM_COST_BLOCKS) + _MERGE_COST_BLOCKS * (num_splits > 1)

    return min(range(1, max(1, min(_MAX_SPLITS, max_blocks)) + 1), key=cost_blocks)
