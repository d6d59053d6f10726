"""The profiled process: `python -m specbench.harness.profiling.child JOB`, JOB being a Job as a file or as JSON.

It builds and warms up one arm as a run does, traces its steady rounds, and exits by itself.
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path

from specbench.harness.engines.traced import TRACED, Tracer
from specbench.harness.engines.warmup import WarmUp
from specbench.harness.exit_codes import ExitCode
from specbench.harness.run.prepare import initial_record, prepare
from specbench.harness.run.progress import NullProgress
from specbench.harness.spec.devices import pick_device

from .job import ChildReport, Job, subject_of, write_error
from .node_map import FILE as NODES
from .node_map import write_node_maps
from .tracers import NoTracer, NsysRange, TorchTracer


class _Lines(NullProgress):
    """Progress as lines on stderr, which the parent process keeps."""

    def say(self, text: str) -> None:
        print(f"specbench: {text}", file=sys.stderr, flush=True)


def run_job(job: Job) -> None:
    """Raises ValueError for bad input; the outcome is in the job's folder."""
    job.folder.mkdir(parents=True, exist_ok=True)
    os.environ[TRACED] = job.tool  # SGLang's ranges are put in before its rounds begin
    progress, c = _Lines(), job.config
    with prepare(c, progress, num_sent=c.max_concurrency) as run:  # prompts are repeated until the batch is full
        (arm,) = run.arms
        deployment = run.deployments.of(arm)
        progress.say(f"{arm.config.label}: capturing graphs, warming up")
        deployment.warm_up(run.load, WarmUp(window_s=c.warmup_window_s, max_s=c.warmup_max_s))
        progress.say(f"{arm.config.label}: {job.num_rounds} rounds")
        traced = deployment.trace(run.load, job.num_rounds, _tracer(job))
        if job.tool != "none":
            write_node_maps(traced.node_maps, job.folder / NODES)
        ChildReport(
            subject=subject_of(arm, traced),
            rounds=traced.rounds,
            device=_device(deployment.described.hardware, c.device),
            notes=traced.notes,
            record=initial_record(run, ()),
        ).write(job.folder)


def _device(hardware: str | None, requested: str) -> str:
    """cuda or cpu, as the engine reports it; it may use another torch than this process."""
    return pick_device(requested).type if hardware is None else "cpu" if hardware.startswith("cpu") else "cuda"


def _tracer(job: Job) -> Tracer:
    if job.tool == "torch":
        assert job.trace is not None
        return TorchTracer(job.trace, pick_device(job.config.device))
    return NsysRange() if job.tool == "nsys" else NoTracer()


def main(words: list[str]) -> int:
    """The exit code: 0, 1 for a failure (its traceback on stderr), 2 for bad input."""
    (word,) = words
    job = Job.from_json(word if word.lstrip().startswith("{") else Path(word).read_text(encoding="utf-8"))
    try:
        run_job(job)
    except ValueError as error:
        write_error(job.folder, error)
        print(f"specbench: error: {error}", file=sys.stderr)
        return ExitCode.BAD_INPUT
    except Exception as error:  # the parent process reads it from error.json
        write_error(job.folder, error)
        traceback.print_exc()
        return ExitCode.FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
