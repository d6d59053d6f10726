"""The profiled process: `python -m specbench.harness.profiling.child JOB`, JOB a file of a Job or its JSON itself.

It builds and warms one arm as a run does, traces its steady rounds, and ends by itself.
"""

from __future__ import annotations

import dataclasses
import sys
import traceback
from pathlib import Path

import torch

from specbench.harness.engine.engine import Engine
from specbench.harness.engine.sampler import SamplingMode
from specbench.harness.exit_codes import ExitCode
from specbench.harness.run.drive import warm_up
from specbench.harness.run.prepare import PreparedRun, manifest, prepare
from specbench.harness.run.progress import NullProgress
from specbench.harness.run.warmup import WarmUp

from .job import ChildReport, Job, write_error
from .node_map import FILE as NODES
from .node_map import NodeMap, record_node_maps, write_node_maps
from .steady import IGNORED_STOPS, trace_rounds
from .subject import subject_of
from .tracers import NoTracer, NsysRange, TorchTracer, Tracer


class _Lines(NullProgress):
    """Progress as lines on stderr, which the process that started this one keeps."""

    def say(self, text: str) -> None:
        print(f"specbench: {text}", file=sys.stderr, flush=True)


@torch.inference_mode()
def run_job(job: Job) -> None:
    """Raises ValueError for bad input; what it found stands in the job's folder."""
    job.folder.mkdir(parents=True, exist_ok=True)
    progress = _Lines()
    run = prepare(job.config, progress)
    (arm,) = run.arms
    engine = run.engines.get(arm.config.label) or run.build(arm)
    mode = SamplingMode.of([run.load.request(0).sampling])
    progress.say(f"{arm.config.label}: capturing graphs, warming up")
    _warm(run, engine, mode)
    notes = [IGNORED_STOPS] if run.load.stop_token_ids else []
    if job.tool != "none":
        notes += write_nodes(engine, job.config.max_concurrency, mode, job.folder)
    progress.say(f"{arm.config.label}: {job.num_rounds} rounds")
    rounds = trace_rounds(engine, run.load, job.num_rounds, _tracer(job, run.target.model.device))
    ChildReport(
        subject=dataclasses.asdict(subject_of(arm, engine, mode, rounds, None)),
        rounds={**dataclasses.asdict(rounds), "median_ns": rounds.median_ns},
        device=run.target.model.device.type,
        notes=tuple(notes),
        manifest=manifest(run, ()),
    ).write(job.folder)


def _warm(run: PreparedRun, engine: Engine, mode: SamplingMode) -> None:
    engine.launcher.capture([mode])
    c = run.config
    warm_up(engine, run.load, WarmUp(window_s=c.warmup_window_s, max_s=c.warmup_max_s))


def write_nodes(engine: Engine, num_requests: int, mode: SamplingMode, folder: Path) -> list[str]:
    """Counts the operations of the captured round into `nodes.json`; what a reader must know where that failed."""
    maps: tuple[NodeMap, ...] = ()
    notes: list[str] = []
    try:
        maps = record_node_maps(engine.launcher, num_requests, mode)
    except RuntimeError as error:
        notes.append(f"phases inside graphs are not told apart: {error}")
    write_node_maps(maps, folder / NODES)
    return notes


def _tracer(job: Job, device: torch.device) -> Tracer:
    if job.tool == "torch":
        assert job.trace is not None
        return TorchTracer(job.trace, device)
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
    except Exception as error:  # whoever started the process reads it in error.json
        write_error(job.folder, error)
        traceback.print_exc()
        return ExitCode.FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
