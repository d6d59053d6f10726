"""A made-up run whose ideal can be worked out by hand: a machine and models with figures of few digits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from run_samples import begun, phase, prefill, request, step

from specbench.harness.roofline.of_run import ideal_arms_of
from specbench.harness.store.roofline_record import Forwards, ForwardShape, IdealArm, Machine
from specbench.harness.store.run_directory import RunDirectory

# Reads 1 MB a ms; so many FLOP/s that nothing but reading counts.
MACHINE = Machine(
    device="made up",
    dtype="bfloat16",
    read_bytes_per_s=1e9,
    matmul_flops_per_s=1e18,
    attention_flops_per_s=1e18,
    kernel_launch_s=0,
)
# 3 MB of layers, 1 MB of lm_head, 20 kB a cached token.
TARGET = ForwardShape(
    layer_params=1_500_000,
    first_params=0,
    head_params=500_000,
    vocab_size=1000,
    num_layers=5,
    num_q_heads=4,
    num_kv_heads=2,
    head_dim=500,
    number_bytes=2,
    num_kernels=1,
    num_head_kernels=1,
)
# 0.2 MB a pass, 0.1 MB more in the first one, 4 kB a cached token.
DRAFTER = ForwardShape(
    layer_params=75_000,
    first_params=50_000,
    head_params=25_000,
    vocab_size=50,
    num_layers=1,
    num_q_heads=4,
    num_kv_heads=2,
    head_dim=500,
    number_bytes=2,
    num_kernels=1,
    num_head_kernels=1,
)
BASE, CHAIN, FAILED = "no-spec", "eagle:k=2", "naive-eagle"


def forwards(num_drafts: int, drafter: ForwardShape | None = None, **changes: Any) -> Forwards:
    plain = dict(dtype="bfloat16", target=TARGET, drafter=drafter, num_drafts=num_drafts, depth=num_drafts, topk=1)
    return Forwards(**{**plain, **changes})  # type: ignore[arg-type]


def rounds(accepted: Sequence[int], *, k: int, round_ms: float, first_rows: int = 0) -> dict[str, list[dict[str, Any]]]:
    """Two requests of ten prompt tokens side by side: a mixed step of 20 ms, then a round for each entry of `accepted`.

    Of a round, 1 ms is before the launch; `verify` takes half of it, `draft_first` a tenth where there are drafts.
    """
    steps, phases = [{**prefill(0, n, 0, 20, batch_size=2), "num_draft_rows": 0} for n in range(2)], []
    now = 20.0
    for number, j in enumerate(accepted, start=1):
        rows = [step(number, n, now + 1, now + round_ms, k=k, j=j, batch_size=2) for n in range(2)]
        steps += [{**row, "num_draft_rows": 2 * first_rows} for row in rows]
        phases.append(phase(number, "verify", round_ms / 2))
        phases += [phase(number, "draft_first", round_ms / 10)] if k else []
        now += round_ms
    tokens = 1 + sum(j + 1 for j in accepted)
    requests = [request(n, first_ms=20, last_ms=now, num_output_tokens=tokens) for n in range(2)]
    return {"requests": requests, "steps": steps, "phases": phases}


def roofline_run(output_dir: Path) -> RunDirectory:
    """Two repeats of three arms; the last arm failed."""
    run = RunDirectory.create(output_dir, "roofline", begun(BASE, CHAIN, FAILED))
    for repeat in range(2):
        run.append(BASE, repeat, **rounds([0, 0, 0, 0], k=0, round_ms=10.0))
        run.append(CHAIN, repeat, **rounds([2, 0, 1, 1], k=2, round_ms=15.0, first_rows=3))
        run.fail_blocks([(FAILED, repeat)], RuntimeError("out of memory"))
    run.put(replace(run.record, forwards={BASE: forwards(0), CHAIN: forwards(2, DRAFTER)}))
    return run


def ideal_arms(run: RunDirectory, machine: Machine) -> list[IdealArm]:
    return ideal_arms_of(run.record, run.frames(), machine)
