"""A run: arms interleaved over repeats, every block written as soon as it is measured."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch

from . import targets
from .arms import ResolvedArm, build_engine, resolve_arm
from .engine.engine import Engine
from .engine.request import Request
from .engine.sampler import SamplingMode
from .measure.drive import Load, run_block, warm_up
from .measure.instrument import instrumented_phases
from .measure.metrics import results
from .measure.record import RunDirectory
from .measure.warmup import WarmUp
from .registry import WORKLOADS, lookup
from .run_config import RunConfig
from specbench.workloads.arrivals import arrival_times
from specbench.workloads.base import Workload


class Progress(Protocol):
    """What a run tells whoever watches it."""

    def say(self, text: str) -> None: ...

    def asset(self, name: str, done: int, total: int) -> None: ...

    def start_block(self, arm: str, repeat: int, num_requests: int) -> None: ...

    def request_done(self, request: Request) -> None: ...


@dataclass(slots=True)
class PreparedRun:
    """A run whose inputs are loaded and checked."""

    config: RunConfig
    target: targets.Target
    workload: Workload
    arms: list[ResolvedArm]


def prepare(config: RunConfig, progress: Progress) -> PreparedRun:
    """Checks all arms first, then loads model and workload. Raises ValueError before anything is measured."""
    device = targets.pick_device(config.device)
    dummy = config.load_format == "dummy"
    arms = [resolve_arm(arm, device.type, synthetic_weights=dummy) for arm in config.arms]
    load_workload = lookup(WORKLOADS, config.workload.name, "dataset-name")
    if dummy and config.workload.name != "random":
        raise ValueError(
            f"dataset-name: {config.workload.name!r} needs a tokenizer, which --load-format dummy does not have; "
            "use --dataset-name random"
        )
    progress.say(f"loading {config.model}")
    target = targets.load(config, progress.asset)
    model_config = target.model.config
    if config.workload.max_model_len > model_config.max_position:
        raise ValueError(
            f"max_model_len: {config.workload.max_model_len} is longer than the model's {model_config.max_position} positions"
        )
    request = replace(config.workload, vocab_size=model_config.vocab_size)
    progress.say(f"loading {config.workload.name}")
    return PreparedRun(config, target, load_workload(request, target.tokenizer), arms)


def manifest(run: PreparedRun, argv: Sequence[str]) -> dict[str, Any]:
    """The first run.json: everything known before the first block."""
    c = run.config
    return dict(
        argv=list(argv),
        config=c.to_dict(),
        model=run.target.described,
        workload=dict(
            name=run.workload.name,
            rule=run.workload.rule,
            source=run.workload.source,
            sha256=run.workload.sha256,
            num_prompts=len(run.workload.prompts),
            synthetic=run.workload.synthetic,
        ),
        sampling=dict(
            temperature=c.temperature, top_k=c.top_k, top_p=c.top_p, ignore_eos=c.ignore_eos, seed=c.seed,
            max_concurrency=c.max_concurrency, request_rate=c.request_rate,
        ),
        arms=[
            dict(label=a.config.label, strategy=a.config.strategy, config=a.described(), notes=list(a.notes))
            for a in run.arms
        ],
    )


def create_directory(run: PreparedRun, output_dir: Path, label: str, argv: Sequence[str]) -> RunDirectory:
    return RunDirectory.create(output_dir, label, manifest(run, argv))


def check_same_workload(directory: RunDirectory, run: PreparedRun) -> None:
    """A resumed run must send the same prompts; ValueError otherwise."""
    stored = directory.manifest["workload"]["sha256"]
    if stored != run.workload.sha256:
        raise ValueError(
            f"resume: {directory.path} was measured on prompts {stored[:12]}, they are now {run.workload.sha256[:12]}; "
            "start a new run"
        )


def _load_of(run: PreparedRun) -> Load:
    c = run.config
    eos = () if c.ignore_eos else run.target.eos_token_ids
    return Load(
        prompts=run.workload.prompts,
        arrival_s=arrival_times(len(run.workload.prompts), c.request_rate, c.seed, c.burstiness),
        max_concurrency=c.max_concurrency,
        temperature=c.temperature,
        top_k=c.top_k,
        top_p=c.top_p,
        stop_token_ids=(*eos, *c.stop_token_ids),
        seed=c.seed,
    )


class _Arms:
    """Engines of a run, made and warmed when first used; a failing arm is recorded and left out."""

    def __init__(self, run: PreparedRun, load: Load, directory: RunDirectory, progress: Progress):
        self._run, self._load, self._directory, self._progress = run, load, directory, progress
        self._engines: dict[str, Engine] = {}
        self._phases: dict[str, list[dict]] = {}

    def engine(self, arm: ResolvedArm) -> Engine:
        label, c = arm.config.label, self._run.config
        if label not in self._engines:
            self._progress.say(f"{label}: preparing")
            engine = build_engine(arm, c, self._run.target.model)
            # Before anything is timed: a capture in the middle of a block would stand in its figures.
            engine.launcher.capture([SamplingMode.of([self._load.request(0).sampling])])
            warmup = WarmUp(window_s=c.warmup_window_s, max_s=c.warmup_max_s)
            self._progress.say(f"{label}: warming up")
            warm_up(engine, self._load, warmup)
            self._phases[label] = instrumented_phases(engine, self._load)
            self._directory.describe_arm(label, config={**arm.described(), "warmup": warmup.describe()})
            self._engines[label] = engine
        return self._engines[label]

    def take_phases(self, label: str) -> list[dict]:
        """Instrumented phases of the arm, once: they are stored with its first block."""
        return self._phases.pop(label, [])

    def drop(self, label: str) -> None:
        self._engines.pop(label, None)
        gc.collect()


@torch.inference_mode()
def measure(run: PreparedRun, directory: RunDirectory, progress: Progress) -> None:
    """Measures every block that the directory does not hold yet, arms interleaved: each repeat starts with another arm.

    A block that fails is stored as failed with its error, and the others go on.
    """
    load = _load_of(run)
    done = directory.done_blocks()
    arms = _Arms(run, load, directory, progress)
    for repeat in range(run.config.num_repeats):
        shift = repeat % len(run.arms)
        for arm in run.arms[shift:] + run.arms[:shift]:
            label = arm.config.label
            if (label, repeat) in done:
                continue
            try:
                engine = arms.engine(arm)
                progress.start_block(label, repeat, len(load.prompts))
                rows = run_block(engine, load, progress.request_done)
            except (RuntimeError, ValueError, AssertionError) as error:  # stored with the arm and shown in its row
                directory.fail_arm(label, repeat, error)
                progress.say(f"{label}: failed: {error}")
                arms.drop(label)
                continue
            directory.append(label, repeat, rows.requests, rows.steps, rows.phases + arms.take_phases(label))


def close(directory: RunDirectory, status: str | None = None) -> None:
    """Derives all figures and closes the run."""
    directory.finish(results(directory.frames()), status)
