"""A run: arms interleaved over repeats, every block written as soon as it is measured."""

from __future__ import annotations

import gc
import traceback

import torch

from specbench.harness.arms import ResolvedArm
from specbench.harness.engine.engine import Engine
from specbench.harness.engine.sampler import SamplingMode
from specbench.harness.metrics.metrics import results
from specbench.harness.roofline.forwards import FORWARDS
from specbench.harness.roofline.of_engine import forwards_of
from specbench.harness.run.drive import BlockRows, run_block, warm_up
from specbench.harness.run.instrument import instrumented_phases
from specbench.harness.run.interrupts import deferred_interrupt
from specbench.harness.run.prepare import PreparedRun, first_line
from specbench.harness.run.progress import Progress
from specbench.harness.run.warmup import WarmUp
from specbench.harness.store.environment import collect_environment, hardware_line
from specbench.harness.store.run_directory import RunDirectory

ERROR_LOG = "errors.log"
# What must be as it was for a resumed run's blocks to stand in one table with the earlier ones.
_SAME_MODEL = ("name", "sha256", "dtype", "device", "num_layers")


def check_same_machine(directory: RunDirectory) -> None:
    """A run goes on on the hardware where it began; ValueError otherwise."""
    before, now = hardware_line(directory.manifest["environment"]), hardware_line(collect_environment())
    if before != now:
        raise ValueError(f"resume: {directory.path} was measured on {before}, this is {now}; start a new run")


def check_same_inputs(directory: RunDirectory, run: PreparedRun) -> None:
    """A resumed run must send the same prompts to the same model; ValueError otherwise."""
    stored, model = directory.manifest["workload"]["sha256"], directory.manifest["model"]
    if stored != run.workload.sha256:
        raise ValueError(
            f"resume: {directory.path} was measured on prompts {stored[:12]}, they are now {run.workload.sha256[:12]}; "
            "start a new run"
        )
    for key in _SAME_MODEL:
        if model.get(key) != run.target.described.get(key):
            raise ValueError(
                f"resume: {directory.path} was measured with the model's {key} {model.get(key)!r}, it is now "
                f"{run.target.described.get(key)!r}; start a new run"
            )


class Arms:
    """Engines of a run, warmed when first used; a failing arm is recorded and left out."""

    def __init__(self, run: PreparedRun, directory: RunDirectory, progress: Progress):
        self._run, self._directory, self._progress = run, directory, progress
        self._warm: set[str] = set()
        self._phases: dict[str, list[dict]] = {}

    def engine(self, arm: ResolvedArm) -> Engine:
        label, engines = arm.config.label, self._run.engines
        if label not in engines:
            engines[label] = self._run.build(arm)
        if label not in self._warm:
            self._warm_up(arm, engines[label])
            self._warm.add(label)
        return engines[label]

    def _warm_up(self, arm: ResolvedArm, engine: Engine) -> None:
        label, c, load = arm.config.label, self._run.config, self._run.load
        # Before anything is timed: a capture in the middle of a block would stand in its figures.
        engine.launcher.capture([SamplingMode.of([load.request(0).sampling])])
        warmup = WarmUp(window_s=c.warmup_window_s, max_s=c.warmup_max_s)
        self._progress.say(f"{label}: warming up")
        warm_up(engine, load, warmup)
        self._phases[label] = instrumented_phases(engine, load)
        self._directory.describe_arm(label, config={**arm.described(), "warmup": warmup.describe()})
        forwards = self._directory.manifest.get(FORWARDS, {})
        self._directory.note(**{FORWARDS: {**forwards, label: forwards_of(engine).to_dict()}})

    def take_phases(self, label: str) -> list[dict]:
        """Instrumented phases of the arm, once: they are stored with its first block."""
        return self._phases.pop(label, [])

    def drop(self, label: str) -> None:
        self._run.engines.pop(label, None)
        self._warm.discard(label)
        gc.collect()


@torch.inference_mode()
def measure(run: PreparedRun, directory: RunDirectory, progress: Progress) -> None:
    """Measures every block that the directory does not hold yet, arms interleaved: each repeat starts with another arm.

    A block that fails, for whatever reason, is stored as failed with its error, and the others go on. Raises OSError
    where the run directory cannot be written; what it holds is whole.
    """
    done = directory.done_blocks()
    arms = Arms(run, directory, progress)
    for repeat in range(run.config.num_repeats):
        shift = repeat % len(run.arms)
        for arm in run.arms[shift:] + run.arms[:shift]:
            label = arm.config.label
            if (label, repeat) in done:
                continue
            rows = try_block(run, arms, arm, repeat, directory, progress)
            if rows is None:
                arms.drop(label)
                continue
            with deferred_interrupt():
                directory.append(label, repeat, rows.requests, rows.steps, rows.phases + arms.take_phases(label))


def try_block(
    run: PreparedRun, arms: Arms, arm: ResolvedArm, repeat: int, directory: RunDirectory, progress: Progress
) -> BlockRows | None:
    """The block's rows; None where it failed. A function of its own so that nothing keeps a failed engine alive."""
    label = arm.config.label
    try:
        engine = arms.engine(arm)
        progress.start_block(label, repeat, len(run.load.prompts))
        return run_block(engine, run.load, progress.request_done)
    except Exception as error:  # stored with the arm, shown in its row, traceback in errors.log
        _record_failure(directory, label, repeat, error)
        progress.say(f"{label}: failed: {first_line(error)} (traceback: {directory.path / ERROR_LOG})")
        return None


def _record_failure(directory: RunDirectory, label: str, repeat: int, error: Exception) -> None:
    with deferred_interrupt():
        directory.fail_arm(label, repeat, error)
        with (directory.path / ERROR_LOG).open("a", encoding="utf-8") as log:
            log.write(f"{label}, repeat {repeat + 1}\n{''.join(traceback.format_exception(error))}\n")


def close(directory: RunDirectory, status: str | None = None) -> None:
    """Derives all figures and closes the run."""
    with deferred_interrupt():
        directory.finish(results(directory.frames()), status)
