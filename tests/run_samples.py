"""Small made-up blocks for tests of metrics and reports: every time and count is chosen, nothing is measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from specbench.harness.store.arm_record import ArmRecord
from specbench.harness.store.environment import Cpu, Environment, GitState, Hardware, Software
from specbench.harness.store.inputs_record import ModelRecord, SamplingRecord, WorkloadRecord
from specbench.harness.store.run_directory import RunDirectory
from specbench.harness.store.run_record import RunRecord
from specbench.harness.store.schema import build_table

MS = 1_000_000

ENVIRONMENT = Environment(
    hardware=Hardware(cpu=Cpu(model="Test CPU", logical_cores=4)), software=Software(python="3.11")
)
GIT = GitState(sha="0" * 40, branch="main", dirty=False)
SAMPLING = SamplingRecord(temperature=0.0, seed=42)


def request(
    request_id: int,
    *,
    submit_ms: float = 0,
    first_ms: float,
    last_ms: float,
    num_output_tokens: int,
    prompt_id: str = "",
    finish_reason: str = "length",
    error: str = "",
    token: int = 7,
) -> dict[str, Any]:
    return {
        "request_id": request_id,
        "prompt_id": prompt_id or f"p{request_id}",
        "num_prompt_tokens": 10,
        "num_output_tokens": num_output_tokens,
        "finish_reason": finish_reason,
        "error": error,
        "t_submit_ns": round(submit_ms * MS),
        "t_first_ns": round(first_ms * MS),
        "t_last_ns": round(last_ms * MS),
        "t_first_device_ns": round(first_ms * MS),
        "t_last_device_ns": round(last_ms * MS),
        "output_token_ids": [token] * num_output_tokens,
    }


def step(
    step: int,
    request_id: int,
    start_ms: float,
    end_ms: float,
    *,
    k: int = 0,
    j: int = 0,
    emitted: int | None = None,
    kind: str = "decode",
    is_prefill: bool = False,
    batch_size: int = 1,
    num_syncs: int = 1,
    depth: int | None = None,
) -> dict[str, Any]:
    kept = j + 1 if emitted is None else emitted
    return {
        "step": step,
        "request_id": request_id,
        "kind": kind,
        "is_prefill": is_prefill,
        "t_start_ns": round(start_ms * MS),
        "t_host_ns": round(end_ms * MS),
        "t_device_ns": round(end_ms * MS),
        "batch_size": batch_size,
        "num_rows": batch_size * (k + 1),
        "num_proposed": k,
        "draft_depth": k if depth is None else depth,
        "num_accepted": j,
        "num_emitted": kept,
        "truncated": kept < j + 1,
        "num_syncs": num_syncs,
    }


def prefill(number: int, request_id: int, start_ms: float, end_ms: float, **more: Any) -> dict[str, Any]:
    return step(number, request_id, start_ms, end_ms, kind="mixed", is_prefill=True, **more)


def phase(step: int, name: str, duration_ms: float, instrumented: bool = False) -> dict[str, Any]:
    return {
        "step": step,
        "phase": name,
        "duration_ns": round(duration_ms * MS),
        "instrumented": instrumented,
        "source": "host_clock",
    }


def frame(table: str, rows: Sequence[dict[str, Any]], arm: str = "a", repeat: int = 0) -> pd.DataFrame:
    return build_table(table, arm, repeat, list(rows)).to_pandas()


def chain_block(
    accepted: Sequence[int], num_requests: int = 4, k: int = 4, round_ms: float = 10.0
) -> dict[str, list[dict[str, Any]]]:
    """Requests one after the other, each: a 20 ms prefill, then a round for every entry of `accepted`.

    Every third request skips the first entry, every other third the first two, so that requests differ.

    A round is 1 ms of gap, and round_ms - 1 of which 3/4 are `verify` and 1/4 `draft_first`.
    """
    requests, steps, phases = [], [], []
    number, now = 0, 0.0
    for request_id in range(num_requests):
        submit, first = now, now + 20
        steps.append(prefill(number, request_id, now, first))
        now, number = first, number + 1
        counts = [min(j, k) for j in accepted[request_id % 3 :]]
        for j in counts:
            steps.append(step(number, request_id, now + 1, now + round_ms, k=k, j=j))
            work = round_ms - 1
            phases += [phase(number, "gap", 1), phase(number, "verify", work * 0.75)]
            phases += [phase(number, "draft_first", work * 0.25)]
            now, number = now + round_ms, number + 1
        num_tokens = 1 + sum(j + 1 for j in counts)
        requests.append(
            request(request_id, submit_ms=submit, first_ms=first, last_ms=now, num_output_tokens=num_tokens)
        )
    return {"requests": requests, "steps": steps, "phases": phases}


def begun(*labels: str, **changes: Any) -> RunRecord:
    """The record of a run with these arms before its first block."""
    record = RunRecord(
        argv=("specbench", "run", "--strategy", labels[0], "--label", "it's"),
        model=ModelRecord(name="toy-model"),
        sampling=SAMPLING,
        workload=WorkloadRecord(name="toy", rule="first 4", source="made up", sha256="ab" * 32, num_prompts=4),
        arms=tuple(ArmRecord(label=label, strategy=label.split(":")[0]) for label in labels),
        environment=ENVIRONMENT,
        git=GIT,
    )
    return replace(record, **changes)


def sample_run(output_dir: Path) -> RunDirectory:
    """Three arms, two repeats: a baseline, an EAGLE with a label that is hostile to Markdown, and one that fails."""
    odd = "eagle:k=4,note=<b>x|y</b>"
    run = RunDirectory.create(output_dir, "sample", begun("no-spec", odd, "naive-eagle"))
    for repeat in range(2):
        run.append("no-spec", repeat, **chain_block([0] * 12, k=0, round_ms=8.0 + repeat * 0.1))
        run.append(odd, repeat, **chain_block([4, 0, 2, 1, 3, 0], round_ms=10.0 + repeat * 0.1))
        run.fail_blocks([("naive-eagle", repeat)], RuntimeError("graph `one` refused | no GPU"))
    run.describe_arm(odd, notes=["synthetic"])
    return run
