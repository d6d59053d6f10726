"""The ideal: the reference table to its printed digits, closed forms, simulation, and what must hold for any sizes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbench.harness.engines.native.models.shapes import published_shape
from specbench.harness.roofline.ideal import (
    PHASES,
    Round,
    free_rows,
    head_parts_s,
    pass_parts_s,
    round_parts_s,
    sampling_s,
)
from specbench.harness.roofline.shape import eagle3_shape, model_shape
from specbench.harness.store.roofline_record import Machine

LLAMA = published_shape("llama-3.1-8b").config
TARGET = model_shape(LLAMA, number_bytes=2)
HEAD = eagle3_shape(replace(LLAMA, num_layers=1), draft_vocab_size=32000, num_features=3 * 4096, number_bytes=2)
H200 = Machine(
    device="H200",
    dtype="bfloat16",
    read_bytes_per_s=4.3e12,
    matmul_flops_per_s=780e12,
    attention_flops_per_s=780e12,
    kernel_launch_s=0,
)
DRAFTS = (1, 2, 4, 8)

# Context, batch, target ms, verify ratios, speed-ups at alpha 0.6 / 0.8, drafter ms first / next, sampling ms (K = 4).
# Computed apart from this code, by hand-written formulas; K = 1, 2, 4, 8 where there are four.
TABLE = """
1024 |   1 |  3.52 | 1.00 1.00 1.00 1.00 | 1.51/1.70 1.77/2.21 1.91/2.79 1.76/3.08 | 0.20 0.18 | 0.00
1024 |   8 |  3.74 | 1.00 1.00 1.00 1.00 | 1.52/1.71 1.77/2.21 1.91/2.79 1.77/3.09 | 0.21 0.18 | 0.01
1024 |  32 |  4.49 | 1.00 1.00 1.00 1.46 | 1.52/1.71 1.78/2.21 1.92/2.80 1.33/2.33 | 0.23 0.21 | 0.06
1024 |  64 |  5.49 | 1.00 1.04 1.49 2.39 | 1.52/1.71 1.73/2.15 1.36/1.99 0.88/1.54 | 0.33 0.24 | 0.11
1024 | 128 |  7.49 | 1.19 1.52 2.18 3.50 | 1.29/1.45 1.20/1.50 0.96/1.40 0.63/1.10 | 0.65 0.30 | 0.23
1024 | 256 | 12.92 | 1.38 1.76 2.53 4.05 | 1.11/1.25 1.04/1.30 0.84/1.22 0.55/0.96 | 1.30 0.50 | 0.46
8192 |  32 | 11.48 | 1.00 1.00 1.00 1.18 | 1.54/1.73 1.82/2.26 2.00/2.91 1.66/2.91 | 0.45 0.42 | 0.06
8192 | 128 | 35.46 | 1.04 1.11 1.25 1.53 | 1.49/1.67 1.66/2.06 1.65/2.41 1.36/2.38 | 1.52 1.17 | 0.23
"""


def chain(batch: float, context: float, k: int, first_rows: float | None = None) -> Round:
    """K drafts, one behind the other."""
    return Round.tree(batch, context, num_nodes=k + 1, depth=k, topk=1, first_rows=first_rows)


def iid_tokens(alpha: float, k: int) -> float:
    """Tokens a round where every draft is accepted with chance alpha, independently."""
    return 1 + sum(alpha**i for i in range(1, k + 1))


def pass_s(*of: Any, **shape: Any) -> float:
    return sum(pass_parts_s(*of, **shape).values())


def head_s(*of: Any) -> float:
    return sum(head_parts_s(*of).values())


def round_s(*of: Any) -> dict[str, float]:
    return {phase: sum(parts.values()) for phase, parts in round_parts_s(*of).items()}


def speedup(machine: Machine, drafter, r: Round, tokens: float) -> float:
    base_s = sum(round_s(machine, TARGET, None, Round(batch=r.batch, context=r.context)).values())
    return tokens * base_s / sum(round_s(machine, TARGET, drafter, r).values())


def target_s(batch: float, rows: float, context: float) -> float:
    return pass_s(H200, TARGET, batch=batch, rows=rows, context=context, head_rows=rows)


@pytest.mark.parametrize("line", TABLE.strip().splitlines())
def test_reference_table(line):
    context, batch, *groups = (cell.strip() for cell in line.split("|"))
    length, b = int(context), int(batch)
    base_s = target_s(b, 1, length)
    rounds = {k: chain(b, length, k) for k in DRAFTS}

    def gain(k: int, alpha: float) -> str:
        return f"{speedup(H200, HEAD, rounds[k], iid_tokens(alpha, k)):.2f}"

    phases = round_s(H200, TARGET, HEAD, rounds[4])
    assert groups == [
        f"{base_s * 1e3:.2f}",
        " ".join(f"{target_s(b, k + 1, length) / base_s:.2f}" for k in DRAFTS),
        " ".join(f"{gain(k, 0.6)}/{gain(k, 0.8)}" for k in DRAFTS),
        f"{phases['draft_first'] * 1e3:.2f} {phases['draft_next'] / 3 * 1e3:.2f}",
        f"{sampling_s(H200, TARGET, 5 * b) * 1e3:.2f}",
    ]


def test_the_knee():
    """Below 181 rows a product is as long as the reading of its weights, above it grows with the rows."""
    assert int(free_rows(H200, TARGET)) == 181
    h20 = replace(H200, read_bytes_per_s=4e12, matmul_flops_per_s=148e12)
    assert int(free_rows(h20, TARGET)) == 37 == int(148 / 4)
    assert head_s(H200, TARGET, 181) == head_s(H200, TARGET, 1) < head_s(H200, TARGET, 182)


def test_one_pass_by_hand():
    """A model of 100 numbers in its layers and 20 in lm_head, on a machine with figures of one digit."""
    shape = replace(
        TARGET,
        layer_params=100,
        head_params=20,
        vocab_size=5,
        num_layers=1,
        num_q_heads=2,
        num_kv_heads=1,
        head_dim=3,
        num_kernels=7,
        num_head_kernels=2,
    )
    machine = replace(
        H200, read_bytes_per_s=2.0, matmul_flops_per_s=10.0, attention_flops_per_s=8.0, kernel_launch_s=0.5
    )
    # Reads 240 B in 120 s, multiplies 2 * 3 * 120 in 72 s; 12 B a cached token: 12 * 3 * (4 + 1) / 2 = 90 s against
    # 4 * 6 * 3 * 4 / 8 = 36 s; 9 kernels.
    assert pass_s(machine, shape, batch=3, rows=1, context=4, head_rows=1) == 120 + 90 + 4.5
    # Twenty rows: 2 * 60 * 120 / 10 = 1440 s; attention 720 s against 12 * 3 * 24 / 2 = 432 s.
    assert pass_s(machine, shape, batch=3, rows=20, context=4, head_rows=20) == 1440 + 720 + 4.5
    assert sampling_s(machine, shape, rows=3, logit_bytes=4) == 4 * 3 * 5 / 2
    with_fc = pass_s(machine, replace(shape, first_params=60), batch=3, rows=1, context=4, head_rows=1, first=True)
    assert with_fc == 180 + 90 + 4.5
    # 20 rows, one of them with logits: 2 * 3 * (40 * 20 + 80 * 1) / 10 = 528 s; in later passes all rows have them.
    head = replace(shape, last_params=60)
    first_s = pass_s(machine, head, batch=3, rows=20, context=4, head_rows=1, first=True)
    assert first_s == 528 + 720 + 4.5
    assert pass_s(machine, head, batch=3, rows=20, context=4, head_rows=20) == 1440 + 720 + 4.5


def test_lm_head_apart_is_the_same_pass():
    machine = replace(H200, kernel_launch_s=1e-6)
    for batch in (1, 36, 37, 200):
        whole = pass_s(machine, TARGET, batch=batch, rows=5, context=100, head_rows=5)
        layers = pass_s(machine, TARGET, batch=batch, rows=5, context=100, head_rows=0)
        assert whole == pytest.approx(layers + head_s(machine, TARGET, 5 * batch), rel=1e-12)


def test_the_best_number_of_drafts_falls_with_the_batch():
    """Short context: naive EAGLE's claim that one draft is best at a large batch; a drafter as slow as the target
    never pays."""

    def best(batch: int, context: int = 1024, drafter=HEAD) -> int:
        gains = {k: speedup(H200, drafter, chain(batch, context, k), iid_tokens(0.6, k)) for k in range(9)}
        return max(gains, key=gains.__getitem__)

    found = [best(b) for b in (1, 32, 128, 256)]
    assert found == sorted(found, reverse=True) and found[0] >= 4 and found[-1] == 1
    assert best(128, context=8192) > best(128)  # memory-bound attention moves the crossover right
    assert best(1, context=10, drafter=TARGET) == 0


def test_rows_of_a_round():
    four = chain(2, 100, 4)
    assert (four.verify_rows, four.first_rows, four.num_next, four.next_rows) == (5, 5, 3, 1)
    assert chain(2, 100, 4, first_rows=2.5).first_rows == 2.5
    tree = Round.tree(2, 100, num_nodes=32, depth=5, topk=8)
    assert (tree.verify_rows, tree.first_rows, tree.num_next, tree.next_rows) == (32, 6, 4, 8)
    assert Round.tree(2, 100, num_nodes=5, depth=4, topk=1) == four
    assert chain(2, 100, 0) == Round(batch=2, context=100)


def test_unpadded_drafting_is_cheaper_where_rows_cost():
    padded, unpadded = (round_s(H200, TARGET, HEAD, chain(128, 1024, 4, rows)) for rows in (None, 2.3))
    assert unpadded["draft_first"] < padded["draft_first"]
    assert [padded[p] for p in PHASES if p != "draft_first"] == [unpadded[p] for p in PHASES if p != "draft_first"]


def test_tree_steps_cost_topk_rows():
    """At a large batch eight rows a step take longer than one, at batch 1 as long but for the cached tokens."""

    def steps(batch: int, topk: int) -> float:
        r = Round.tree(batch, 1024, num_nodes=32, depth=5, topk=topk)
        return round_s(H200, TARGET, HEAD, r)["draft_next"]

    assert steps(1, 8) == pytest.approx(steps(1, 1), rel=0.001)
    assert steps(128, 8) > 2 * steps(128, 1)


def test_without_a_drafter_drafts_cost_nothing():
    phases = round_s(H200, TARGET, None, chain(8, 512, 3))
    assert phases["draft_first"] == phases["draft_next"] == 0 < phases["verify"]


machines = st.builds(
    Machine,
    device=st.just("any"),
    dtype=st.just("bfloat16"),
    read_bytes_per_s=st.floats(1e9, 1e13),
    matmul_flops_per_s=st.floats(1e10, 1e16),
    attention_flops_per_s=st.floats(1e10, 1e16),
    kernel_launch_s=st.floats(0, 1e-4),
)
loads = st.tuples(st.floats(1, 512), st.floats(0, 1e5))


@settings(max_examples=60)
@given(machines, loads, st.integers(0, 8), st.floats(0, 1), st.booleans())
def test_what_holds_for_any_machine_and_load(machine, load, k, alpha, has_drafter):
    drafter = HEAD if has_drafter else None
    r = chain(*load, k)
    tau = iid_tokens(alpha, k)
    gain = speedup(machine, drafter, r, tau)
    assert 0 < gain <= tau * (1 + 1e-12)
    assert k or gain == pytest.approx(1)
    total = sum(round_s(machine, TARGET, drafter, r).values())
    for name in ("read_bytes_per_s", "matmul_flops_per_s", "attention_flops_per_s"):
        better = replace(machine, **{name: 2 * getattr(machine, name)})
        assert sum(round_s(better, TARGET, drafter, r).values()) <= total * (1 + 1e-12)
    more = replace(r, batch=r.batch + 1)
    assert sum(round_s(machine, TARGET, drafter, more).values()) >= total * (1 - 1e-12)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: Round(batch=0, context=1), "round.batch"),
        (lambda: Round(batch=1, context=-1), "round.context"),
        (lambda: Round(batch=float("nan"), context=1), "round.batch"),
        (lambda: Round(batch=1, context=1, verify_rows=0.5), "round.verify_rows"),
        (lambda: chain(1, 1, -1), "num_nodes|depth"),
        (lambda: chain(1, 1, 1.5), "num_nodes|depth"),
        (lambda: Round.tree(1, 1, num_nodes=3, depth=5, topk=2), "num_nodes: 3"),
        (lambda: Round.tree(1, 1, num_nodes=6, depth=5, topk=0), "topk: 0"),
    ],
)
def test_bad_input_names_the_field(call, named):
    with pytest.raises(ValueError, match=named):
        call()
