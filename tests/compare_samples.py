"""Made-up runs with the noise of real ones, for comparisons, gates and histories: everything follows from seeds.

A block is sequential: requests one after another, each a prefill and then rounds. What a prompt accepts is its own and
the same in every run (greedy decoding); times have noise by round and by run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from known_results import results
from run_samples import GIT, SAMPLING, begun

from specbench.harness.spec.arm import ArmSetup
from specbench.harness.store.run_directory import RunDirectory
from specbench.harness.store.run_record import RunRecord

K = 4
_PREFILL_NS, _ROUND_NS = 20_000_000, 10_000_000
ARMS = ("no-spec", "eagle:k=4")


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """What a run is measured with. Factors of 1 and no extras: unchanged code. `noise_seed`: of its times only."""

    noise_seed: int = 0
    step_factor: float = 1.0
    acceptance_loss: float = 0.0  # tokens per step lost, a fraction
    num_syncs: int = 1
    graph: str = "full"
    round_cv: float = 0.01
    run_cv: float = 0.001
    num_prompts: int = 24
    num_rounds: int = 20
    num_repeats: int = 3
    sha: str = "a" * 40
    changes: tuple[tuple[str, Any], ...] = ()  # of the record: dotted name, value


def make_run(output_dir: Path, machine: Machine, label: str = "sample", arms: tuple[str, ...] = ARMS) -> Path:
    """A finished run directory with `arms`."""
    run = RunDirectory.create(output_dir, label, _begun(machine, arms))
    noise = np.random.default_rng([7, machine.noise_seed])
    drift = np.exp(noise.normal(0, machine.run_cv))
    for repeat in range(machine.num_repeats):
        for arm in arms:
            run.append(arm, repeat, **_block(machine, arm, drift, noise))
    run.finish(results(run.frames()))
    return run.path


def _begun(machine: Machine, labels: tuple[str, ...]) -> RunRecord:
    record = begun(*labels, git=replace(GIT, sha=machine.sha), sampling=replace(SAMPLING, max_concurrency=1))
    arms = (replace(a, config=ArmSetup(num_drafts=0 if a.strategy == "no-spec" else K)) for a in record.arms)
    record = replace(record, arms=tuple(arms))
    for name, value in machine.changes:
        record = changed(record, name, value)
    return record


def changed(part: Any, name: str, value: Any) -> Any:
    """The dataclass with the field of that dotted name replaced, however deep it lies."""
    first, _, rest = name.partition(".")
    return replace(part, **{first: changed(getattr(part, first), rest, value) if rest else value})


def _block(machine: Machine, arm: str, drift: float, noise: np.random.Generator) -> dict[str, dict[str, list]]:
    k = 0 if arm == "no-spec" else K
    n, rounds = machine.num_prompts, machine.num_rounds
    accepted = _accepted(machine, k)
    factor = machine.step_factor * drift * (1 if k else 0.8)
    times = _ROUND_NS * factor * np.exp(noise.normal(0, machine.round_cv, size=(n, rounds)))
    times = np.concatenate([np.full((n, 1), _PREFILL_NS * drift), times], axis=1).round().astype(np.int64)
    ends = times.ravel().cumsum().reshape(n, rounds + 1)
    starts = np.concatenate([[0], ends.ravel()[:-1]]).reshape(n, rounds + 1)
    tokens = 1 + (accepted + 1).sum(axis=1)
    first, last = ends[:, 0].tolist(), ends[:, -1].tolist()
    requests = {
        "request_id": list(range(n)),
        "prompt_id": [f"p{i}" for i in range(n)],
        "num_prompt_tokens": [10] * n,
        "num_output_tokens": tokens.tolist(),
        "finish_reason": ["length"] * n,
        "t_submit_ns": starts[:, 0].tolist(),
        "t_first_ns": first,
        "t_last_ns": last,
        "t_first_device_ns": first,
        "t_last_device_ns": last,
        "output_token_ids": [[7 + i] * 5 for i in range(n)],
    }
    emitted = np.concatenate([np.ones((n, 1), dtype=int), accepted + 1], axis=1)
    is_prefill = np.zeros((n, rounds + 1), dtype=bool)
    is_prefill[:, 0] = True
    flat = is_prefill.ravel()
    drafts = np.where(flat, 0, k)
    steps = {
        "step": list(range(flat.size)),
        "request_id": np.repeat(np.arange(n), rounds + 1).tolist(),
        "kind": np.where(flat, "mixed", "decode").tolist(),
        "is_prefill": flat.tolist(),
        "t_start_ns": starts.ravel().tolist(),
        "t_host_ns": ends.ravel().tolist(),
        "t_device_ns": ends.ravel().tolist(),
        "batch_size": [1] * flat.size,
        "num_rows": (drafts + 1).tolist(),
        "num_proposed": drafts.tolist(),
        "num_accepted": (emitted.ravel() - 1).tolist(),
        "num_emitted": emitted.ravel().tolist(),
        "truncated": [False] * flat.size,
        "graph": np.where(flat, "none", machine.graph).tolist(),
        "num_syncs": np.where(flat, 1, machine.num_syncs).tolist(),
    }
    return {"requests": requests, "steps": steps}


def _accepted(machine: Machine, k: int) -> np.ndarray:
    """Accepted drafts by prompt and round [n, rounds], the same in every run but for what is lost on purpose."""
    prompts = np.random.default_rng(42)
    n, rounds = machine.num_prompts, machine.num_rounds
    accepted = prompts.binomial(k, prompts.beta(6, 4, size=(n, 1)), size=(n, rounds))
    if machine.acceptance_loss and k:
        lost = machine.acceptance_loss * (accepted + 1).mean() / accepted.mean()
        accepted = np.random.default_rng(43).binomial(accepted, 1 - lost)
    return accepted
