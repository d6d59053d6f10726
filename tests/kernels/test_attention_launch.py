"""How the Triton attention kernel is launched, decided from host-known sizes alone."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch

from specbench.harness.engines.native.core.lookahead import Lookahead
from specbench.harness.engines.native.core.state import RoundState
from specbench.kernels.attention.launch import LaunchShape, choose_launch, choose_num_splits


def launch_shape(**changes: object) -> LaunchShape:
    defaults = dict(num_requests=1, num_rows=5, max_q=5, max_kv=4096, uniform=True, num_kv_heads=8, group=4)
    device = dict(head_dim=128, element_bytes=2, num_sms=132)
    most_kv = {"most_kv": changes.get("max_kv", 4096)}
    return LaunchShape(**(defaults | device | most_kv | changes))  # type: ignore[arg-type]


def test_splits_fill_an_idle_device_and_leave_a_full_one() -> None:
    assert choose_launch(launch_shape()).num_splits >= 16
    assert choose_launch(launch_shape(num_requests=64, num_rows=320)).num_splits == 1
    assert choose_launch(launch_shape(max_kv=64)).num_splits == 1


@pytest.mark.parametrize(
    ("num_requests", "num_kv_heads", "is_split", "block_n"),
    [(1, 8, True, 64), (8, 2, True, 64), (8, 4, False, 64), (8, 8, False, 64), (64, 8, False, 32)],
)
@pytest.mark.parametrize("max_kv", [200, 331, 523])
def test_few_keys_are_split_only_where_almost_nothing_else_runs(
    max_kv: int, num_requests: int, num_kv_heads: int, is_split: bool, block_n: int
) -> None:
    loads = dict(num_requests=num_requests, num_rows=5 * num_requests, num_kv_heads=num_kv_heads)
    launch = choose_launch(launch_shape(max_kv=max_kv, **loads))
    assert (launch.num_splits > 1, launch.block_n) == (is_split, block_n)


@pytest.mark.parametrize(("max_q", "block_m", "num_stages"), [(1, 16, 4), (5, 64, 2)])
def test_a_full_device_with_few_keys_takes_as_many_stages_as_its_rows_leave_room_for(
    max_q: int, block_m: int, num_stages: int
) -> None:
    launch = choose_launch(launch_shape(num_requests=64, num_rows=64 * max_q, max_q=max_q, max_kv=323))
    assert (launch.block_m, launch.num_stages, launch.num_splits) == (block_m, num_stages, 1)


@pytest.mark.parametrize("k", [0, 4])
@pytest.mark.parametrize("max_model_len", [128 + 128 + 64, 512])  # 320: a race's cell (benchmarks/decode_ours.py)
def test_engines_for_up_to_512_tokens_have_few_keys(max_model_len: int, k: int) -> None:
    state = RoundState(
        max_num_seqs=8,
        max_model_len=max_model_len,
        num_drafts=k,
        page_size=16,
        device=torch.device("cpu"),
        lookahead=Lookahead.of(k, None),
    )
    loads = dict(num_requests=8, num_rows=8 * (1 + k), max_q=1 + k, max_kv=state.max_kv)
    most_kv = state.block_table_SP.shape[1] * 16
    assert choose_launch(launch_shape(**loads, most_kv=most_kv)).num_splits == 1
    assert choose_launch(launch_shape(**loads, most_kv=2048)).num_splits > 1, "the rule for other engines"


def test_contexts_that_grow_never_change_the_kernel_of_a_step() -> None:
    """Each block size is a compilation; the number of splits is not."""
    for most_kv in (320, 2048):
        for num_requests, max_q in itertools.product((1, 8, 64), (1, 5)):
            loads = dict(num_requests=num_requests, num_rows=num_requests * max_q, max_q=max_q, most_kv=most_kv)
            found = {replace(choose_launch(launch_shape(max_kv=n, **loads)), num_splits=1) for n in (40, 300, most_kv)}
            assert len(found) == 1


def test_splits_even_out_a_nearly_empty_second_wave() -> None:
    assert choose_num_splits(num_programs=264, num_slots=264, max_blocks=64) == 1
    assert choose_num_splits(num_programs=270, num_slots=264, max_blocks=64) > 1


def test_num_splits_never_exceeds_blocks() -> None:
    for num_programs, max_blocks in itertools.product((1, 3, 8, 100, 263, 264, 5000), (1, 2, 5, 64)):
        num_splits = choose_num_splits(num_programs=num_programs, num_slots=264, max_blocks=max_blocks)
        assert 1 <= num_splits <= max(1, max_blocks)


def test_tiles_cover_ragged_rows() -> None:
    """The bound on the number of tiles holds for every way of sharing the rows out."""
    for block_m, group in ((16, 3), (16, 8), (64, 4)):
        for lengths in itertools.product((0, 1, 5, 16, 33), repeat=3):
            needed = sum(-(-q * group // block_m) for q in lengths)
            shape = launch_shape(num_requests=3, num_rows=sum(lengths), max_q=max(lengths), uniform=False, group=group)
            assert shape.num_tiles(block_m) >= needed


@pytest.mark.parametrize("element_bytes", [2, 4])
def test_ragged_steps_of_few_rows_share_one_block_size(element_bytes: int) -> None:
    """Acceptance decides the rows of an unpadded drafter pass: no round may need a kernel that no other round had."""
    shapes = [
        launch_shape(uniform=False, max_q=q, num_rows=q * 8, element_bytes=element_bytes, group=4) for q in range(1, 17)
    ]
    assert len({(found.block_m, found.num_warps) for found in map(choose_launch, shapes)}) == 1
