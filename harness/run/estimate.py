"""How long a command will take, estimated before it starts from earlier runs of the same arms on this machine.

An upper estimate: prompts may stop before their last token.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median

from specbench.harness.metrics.figures import TPS
from specbench.harness.run.prepare import PreparedRun
from specbench.harness.run.remaining import duration
from specbench.harness.store.ab_record import AbPlan
from specbench.harness.store.block_records import read_records
from specbench.harness.store.environment import collect_environment
from specbench.harness.store.run_directory import RunDirectory
from specbench.harness.store.run_file import read_run_record
from specbench.harness.store.run_record import RunRecord
from specbench.harness.store.sweep_directory import is_sweep

_UNREADABLE = (OSError, ValueError)  # damaged, or another user's: told where its figures are read
_NEWEST = 20  # number of earlier runs to read
UNKNOWN = "estimated time: - (no stored run of these arms on this machine; available once a part has finished)"


def block_estimate(run: PreparedRun, directory: RunDirectory, arms: Iterable[str]) -> str:
    """`arms`: the arm of each remaining block, by the label that an ordinary run gives it."""
    most = sum(prompt.max_tokens for prompt in run.workload.prompts)
    return token_estimate(run, directory.path, {label: most * num for label, num in Counter(arms).items()})


def token_estimate(run: PreparedRun, path: Path, tokens: Mapping[str, int]) -> str:
    """`path`: the directory of the run. `tokens`: the maximum output of each arm, by label."""
    seconds = _seconds(run, path, tokens, run.config.max_concurrency)
    if seconds is None:
        return UNKNOWN
    return (
        f"estimated time: at most about {duration(seconds)} for up to {sum(tokens.values()):,} tokens, at the speed of "
        "stored runs of these arms; without loading and warm-up"
    )


def sweep_estimate(run: PreparedRun, path: Path, loads: Sequence[int]) -> str:
    """For the remaining points, each with the arms, prompts and repeats of `run`. `path`: the directory of the
    sweep."""
    most = sum(prompt.max_tokens for prompt in run.workload.prompts) * run.config.num_repeats
    tokens = {arm.config.label: most for arm in run.arms}
    by_load = {load: seconds for load in loads if (seconds := _seconds(run, path, tokens, load)) is not None}
    of_all = f"estimated time of all {len(loads)} remaining points"
    if not by_load:
        return f"{of_all}: - (no stored run of these arms on this machine at their concurrencies)"
    unknown = ", ".join(str(load) for load in loads if load not in by_load)
    at_most = f"at most about {duration(sum(by_load.values()))}"
    but = f" for {len(by_load)} of them, - for concurrency {unknown} (no stored run)" if unknown else ""
    return f"{of_all}: {at_most}{but}, at the speed of stored runs of these arms; without loading and warm-up"


def _seconds(run: PreparedRun, path: Path, tokens: Mapping[str, int], concurrency: int | None) -> float | None:
    """None if an arm has no stored run of this model at that load. TPS at a request rate may be mostly waiting."""
    model, tps = run.model.described, dict[str, float]()
    load = (concurrency, None if math.isinf(run.config.request_rate) else run.config.request_rate)
    for _, record in _earlier(path):
        if record.model is None or (record.model.name, record.model.dtype) != (model.name, model.dtype):
            continue
        sampling = record.sampling
        if sampling is None or (sampling.max_concurrency, sampling.request_rate) != load:
            continue
        for arm in record.results.arms if record.results else ():
            if found := arm.median(TPS.block):
                tps.setdefault(arm.label, found)
    if not tokens or not tokens.keys() <= tps.keys():
        return None
    return sum(num / tps[label] for label, num in tokens.items())


def process_estimate(plan: AbPlan, directory: RunDirectory, sides: Iterable[str]) -> str:
    """`sides`: the side of each remaining process. Estimated from processes with the same options, including loading
    and warm-up."""
    words = {side.label: (side.words, side.sha) for side in plan.sides}
    took: dict[tuple[tuple[str, ...], str | None], float] = {}
    for path, record in _earlier(directory.path):
        if record.ab is None or record.ab.plan.in_process:
            continue
        try:
            blocks = [seen for seen in read_records(path).values() if seen.wall_s is not None]
        except _UNREADABLE:
            continue
        for side in record.ab.plan.sides:
            if own := [seen.wall_s for seen in blocks if seen.arm == side.label and seen.wall_s is not None]:
                took.setdefault((side.words, side.sha), median(own))
    if not set(words.values()) <= took.keys():
        return UNKNOWN
    seconds = sum(took[words[label]] for label in sides)
    return f"estimated time: about {duration(seconds)}, as a stored experiment with these sides took"


def _earlier(path: Path) -> Iterator[tuple[Path, RunRecord]]:
    """The newest runs in the same folder, or in sweeps there, on this hardware."""
    folder = path.parent
    root = folder.parent.parent if is_sweep(folder.parent) else folder
    files = [*root.glob("*/run.json"), *root.glob("*/runs/*/run.json")]
    hardware = collect_environment().describe_hardware()
    for file in sorted(files, key=lambda file: file.parent.name, reverse=True)[:_NEWEST]:
        try:
            record = read_run_record(file)
        except _UNREADABLE:
            continue
        if record.environment.describe_hardware() == hardware and file.parent != path:
            yield file.parent, record
