"""Made-up A/B run directories: every round's duration and every acceptance is chosen, nothing is measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from run_samples import begun, chain_block

from specbench.harness.spec.arm import ArmSetup
from specbench.harness.store.ab_record import AbPlan, AbRecord, Side
from specbench.harness.store.arm_record import ArmRecord
from specbench.harness.store.block_records import BlockRecord, add_record
from specbench.harness.store.run_directory import RunDirectory

ACCEPTED = (4, 0, 2, 1, 3, 0, 2, 2)


def sides(a: str = "eagle:k=2", b: str = "eagle:k=4") -> tuple[Side, Side]:
    return (Side(label="A", text=a, words=("-s", a)), Side(label="B", text=b, words=("-s", b)))


def experiment(
    output_dir: Path,
    *,
    change: float = 0.0,
    noise: float = 0.003,
    num_blocks: int = 10,
    num_requests: int = 12,
    accepted_b: Sequence[int] = ACCEPTED,
    seed: int = 1,
    is_aa: bool = False,
    reasons: Mapping[tuple[str, int], list[str]] | None = None,
    failed: Sequence[tuple[str, int]] = (),
    missing: Sequence[tuple[str, int]] = (),
    finished: bool = True,
    driven: tuple[str | None, str | None] = (None, None),
    **plan: Any,
) -> RunDirectory:
    """B's rounds last (1 + change) times A's 10 ms, blocks drift by 2 % and sides differ by `noise` within a block.

    `reasons`, `failed`, `missing`: blocks (arm, number) to reject, that failed, that were never measured.
    `driven`: of A and B.
    """
    whole = AbPlan(sides=sides(), num_blocks=num_blocks, **plan)
    names = {"A": "eagle:k=2", "B": "eagle:k=4"}
    stored = begun(
        "A",
        "B",
        ab=AbRecord(plan=whole, names=names, unchecked=("throttling",), is_aa=is_aa),
        arms=tuple(
            ArmRecord(label=label, strategy="eagle", config=ArmSetup(driven=how), notes=(name, "synthetic <weights>"))
            for (label, name), how in zip(names.items(), driven, strict=True)
        ),
    )
    run = RunDirectory.create(output_dir, "ab", stored)
    draw = np.random.default_rng(seed)
    for block, order in enumerate(whole.order()):
        base_ms = 10.0 * float(np.exp(0.02 * draw.standard_normal()))
        for position, label in enumerate(order):
            if (label, block) in missing:
                continue
            round_ms = base_ms * float(np.exp(noise * draw.standard_normal())) * (1 + change * (label == "B"))
            told = tuple((reasons or {}).get((label, block), ()))
            seen = BlockRecord(arm=label, block=block, position=position, load_average=(0.5, 1.25), reasons=told)
            add_record(run.path, seen)
            if (label, block) in failed:
                run.fail_blocks([(label, block)], RuntimeError("out of memory"))
            else:
                accepted = ACCEPTED if label == "A" else accepted_b
                run.append(label, block, **chain_block(accepted, num_requests, round_ms=round_ms))
    if finished:
        run.put(replace(run.record, status="complete"))  # the parts stay as they are: closing a run is tested elsewhere
    return run
