"""Whether another engine took the same rounds as ours: token by token, and accepted drafts round by round.

    python benchmarks/engine_agreement.py RUN

RUN: a finished run (fp32, greedy) with arms of both engines: -s eagle:k=4 -s vllm/eagle:k=4. Each arm of another engine
is compared with ours of the same strategy. Every difference is listed; where answers part, with the distance between
the two tokens in our target's own logits. The other engine's counters stand beside a count of its rounds. Exit code 1
for a difference that is not a near-tie, for fewer rounds than --least, and for an unexplained counter or token.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / ".ns"))

from specbench.harness.engines.native import target as targets  # noqa: E402
from specbench.harness.engines.native.models.score import last_logits  # noqa: E402
from specbench.harness.metrics.recount import recount  # noqa: E402
from specbench.harness.metrics.same_rounds import Difference, same_rounds  # noqa: E402
from specbench.harness.registry import WORKLOADS, lookup  # noqa: E402
from specbench.harness.spec.conditions import RunConfig  # noqa: E402
from specbench.harness.store.run_directory import RunDirectory  # noqa: E402
from specbench.harness.store.schema import Frames  # noqa: E402

NEAR_TIE = 1e-4  # between two logits
OURS = "specbench"


def pairs_of(config: RunConfig) -> list[tuple[str, str]]:
    """Labels of arms of ours and of another engine that ask for the same strategy with the same options."""
    ours = {
        (arm.strategy, *sorted(arm.options.items())): arm.label
        for arm in config.arms
        if (arm.engine_name or config.engine) == OURS
    }
    others = [arm for arm in config.arms if (arm.engine_name or config.engine) != OURS]
    keyed = [((arm.strategy, *sorted(arm.options.items())), arm.label) for arm in others]
    return [(ours[key], label) for key, label in keyed if key in ours]


def gap_in_target(config: RunConfig) -> Callable[[Difference], float]:
    """Between the two tokens that follow the same ones, in the logits of our target."""
    target = targets.load(config, lambda name, done, total: None)
    load = lookup(WORKLOADS, config.workload.name, "dataset-name")
    prompts = {prompt.id: prompt.token_ids for prompt in load(config.workload, target.tokenizer).prompts}

    @torch.inference_mode()
    def gap(found: Difference) -> float:
        if found.a is None or found.b is None:
            return float("inf")  # one of the answers ends: no choice between two tokens
        logits_V = last_logits(target.model, [*prompts[found.prompt_id], *found.before], 1)[0].float()
        return abs(float(logits_V[found.a] - logits_V[found.b]))

    return gap


def compare(config: RunConfig, frames: Frames, gap: Callable[[Difference], float], least: int) -> list[str]:
    """Prints everything; what is not explained."""
    failed, total = [], 0
    for ours, theirs in pairs_of(config):
        sides = [
            (table[table["arm"] == label]) for label in (ours, theirs) for table in (frames.requests, frames.steps)
        ]
        same = same_rounds(*sides)
        total += same.num_rounds
        print(f"{ours} and {theirs}")
        print(f"  answers: {same.num_same_answers} of {same.num_requests} the same")
        print(
            f"  rounds:  {same.num_equal} of {same.num_rounds} accepted the same number of drafts; "
            f"{same.num_apart} at other positions"
        )
        for found in same.differences:
            distance = gap(found) if found.what == "token" else None
            near = distance is not None and distance < NEAR_TIE
            print(f"  {found}" + ("" if distance is None else f"; {distance:.2g} apart in the target's logits"))
            failed += [] if near else [f"{theirs}: {found}"]
        counters = frames.counters[frames.counters["arm"] == theirs].groupby("name")["value"].sum().to_dict()
        counted = recount(sides[2], sides[3], counters)
        for line in counted.lines():
            print(f"  {line}")
        failed += [f"{theirs}: {line}" for line in counted.differences]
        failed += [] if counted.is_balanced else [f"{theirs}: tokens do not add up"]
    print(f"{total} rounds in all")
    return failed + ([f"only {total} rounds; {least} wanted"] if total < least else [])


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--least", type=int, default=500, help="rounds (default: %(default)s)")
    given = parser.parse_args(argv)
    directory = RunDirectory.open(given.run)
    config = directory.record.config
    assert isinstance(config, RunConfig)
    failed = compare(config, directory.frames(), gap_in_target(config), given.least)
    for line in failed:
        print(f"NOT EXPLAINED: {line}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
