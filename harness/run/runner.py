"""A run: arms interleaved over repeats, every block written as soon as it is measured."""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace

from specbench.harness.engines.base import Deployment, EndedError, ResolvedArm
from specbench.harness.engines.warmup import WarmUp
from specbench.harness.metrics.run_results import results
from specbench.harness.roofline.of_engine import forwards_of
from specbench.harness.run.block_sink import BlockSink
from specbench.harness.run.estimate import block_estimate
from specbench.harness.run.interrupts import deferred_interrupt
from specbench.harness.run.machine_watch import Watcher
from specbench.harness.run.prepare import PreparedRun
from specbench.harness.run.progress import Place, Progress
from specbench.harness.run.remaining import Remaining
from specbench.harness.store.block_records import add_record
from specbench.harness.store.block_store import Block
from specbench.harness.store.environment import collect_environment
from specbench.harness.store.inputs_record import ModelRecord, WorkloadRecord
from specbench.harness.store.journal import OpenBlock
from specbench.harness.store.run_directory import RunDirectory
from specbench.workloads.guarded import first_line

ERROR_LOG = "errors.log"
# Fields of the model that must match when a run is resumed.
_SAME_MODEL = ("name", "sha256", "dtype", "device", "num_layers")


def check_same_machine(directory: RunDirectory) -> None:
    """ValueError unless a resumed run continues on the hardware where it began."""
    before, now = (e.describe_hardware() for e in (directory.record.environment, collect_environment()))
    if before != now:
        raise ValueError(f"resume: {directory.path} was measured on {before}, this is {now}; start a new run")


def check_same_inputs(directory: RunDirectory, run: PreparedRun) -> None:
    """A resumed run must send the same prompts to the same model, on the same engines; ValueError otherwise."""
    workload, model = directory.record.workload or WorkloadRecord(), directory.record.model or ModelRecord()
    stored = workload.sha256 or ""
    if stored != run.workload.sha256:
        raise ValueError(
            f"resume: {directory.path} was measured on prompts {stored[:12]}, they are now {run.workload.sha256[:12]}; "
            "start a new run"
        )
    for key in _SAME_MODEL:
        before, now = getattr(model, key), getattr(run.model.described, key)
        if before != now:
            raise ValueError(
                f"resume: {directory.path} was measured with the model's {key} {before!r}, it is now "
                f"{now!r}; start a new run"
            )
    for arm in run.arms:
        if arm.config.label in run.deployments:  # one that starts at its turn is checked then
            _check_same_engine(directory, arm.config.label, run.deployments.of(arm))


class _OtherEngineError(ValueError):
    """Not a failure of a block: the run must not go on."""


def _check_same_engine(directory: RunDirectory, label: str, deployment: Deployment) -> None:
    """The repeats of a row are of one version of its engine."""
    facts, now = directory.record.arm(label).engine, deployment.described.version
    if facts is None or facts.version == now:
        return
    if label in {measured for measured, _ in directory.done_blocks()}:
        raise _OtherEngineError(
            f"resume: {label} of {directory.path} was measured on version {facts.version} of its engine, it is now "
            f"{now}; start a new run"
        )


class Arms:
    """The arms of a run, measured block by block. A deployment is warmed up at its first use; one that fails is
    recorded and dropped."""

    def __init__(
        self,
        run: PreparedRun,
        directory: RunDirectory,
        progress: Progress,
        where: Callable[[str, int], Place],
        place_of: Callable[[str, int], int],
        watcher: Watcher,
        to_come: Sequence[str],
    ):
        """`where`: the place of a block, from its arm and number; `place_of`: its position among the arms of that
        number. `to_come`: the arms of the blocks that will be tried, in order."""
        self._run, self._directory, self._progress, self._where = run, directory, progress, where
        self._place_of, self._watcher = place_of, watcher
        self._remaining = Remaining(to_come)
        self._warm: dict[str, Deployment] = {}
        self._ended: dict[str, EndedError] = {}  # by arm
        self._untried: list[Block] = []
        run.deployments.logs.keep_in(directory.path)

    def warm(self, arm: ResolvedArm) -> Deployment:
        label = arm.config.label
        deployment = self._run.deployments.of(arm)
        if self._warm.get(label) is not deployment:  # new, or restarted after it ended
            self._warm_up(arm, deployment)
            self._warm[label] = deployment
        return deployment

    def try_block(self, arm: ResolvedArm, repeat: int) -> OpenBlock | None:
        """Measures one block, which is not yet stored as complete; None if it failed, which is stored, or if the arm's
        engine has ended (`fail_untried`). If a block does not end, its finished requests are kept."""
        if arm.config.label in self._ended:
            self._untried.append((arm.config.label, repeat))
            return None
        block = self._directory.begin_block(arm.config.label, repeat, len(self._run.load))
        began = time.monotonic()
        try:
            if self._measure(arm, repeat, block):
                return block
        except BaseException:
            block.keep()
            raise
        finally:
            self._remaining.ended(arm.config.label, time.monotonic() - began)
        block.keep()
        self.drop(arm.config.label)
        return None

    def store(self, arm: ResolvedArm, repeat: int, block: OpenBlock) -> None:
        with deferred_interrupt():
            self._directory.finish_block(arm.config.label, repeat, block)

    def fail_untried(self) -> None:
        """Stores the blocks of engines that had ended as failed. One by one, hundreds would take a minute."""
        with deferred_interrupt():
            for label, error in self._ended.items():
                self._directory.fail_blocks([block for block in self._untried if block[0] == label], error)

    def drop(self, label: str) -> None:
        self._run.deployments.drop(label)
        self._warm.pop(label, None)

    def _warm_up(self, arm: ResolvedArm, deployment: Deployment) -> None:
        label, c = arm.config.label, self._run.config
        _check_same_engine(self._directory, label, deployment)
        warmup = WarmUp(window_s=c.warmup_window_s, max_s=c.warmup_max_s)
        self._progress.say(f"{label}: warming up")
        deployment.warm_up(self._run.load, warmup)
        self._directory.describe_arm(
            label,
            config=arm.setup(),
            warmup=warmup.describe(),
            notes=deployment.described.notes,
            engine=deployment.described,
            unknown=deployment.capabilities.unknown,
        )
        forwards, record = forwards_of(deployment), self._directory.record
        if forwards is not None:
            self._directory.put(replace(record, forwards={**record.forwards, label: forwards}))

    def _measure(self, arm: ResolvedArm, repeat: int, block: OpenBlock) -> bool:
        """A separate function, so that no reference keeps a failed deployment alive."""
        label = arm.config.label
        try:
            deployment = self.warm(arm)
            place = replace(self._where(label, repeat), remaining_s=self._remaining.left_s)
            self._progress.at(place)
            self._progress.start_block(block_name(place) + self._remaining.text(), len(self._run.load))
            deployment.reset()
            sink = BlockSink(block, self._progress)
            with self._watcher.watch() as watch:
                deployment.measure(self._run.load, sink)
        except _OtherEngineError:
            raise
        except Exception as error:  # stored with the arm, shown in its row, traceback in errors.log
            self._run.deployments.logs.explain(label, error)
            record_failure(self._directory, label, repeat, error, f"repeat {repeat + 1}")
            if isinstance(error, EndedError):  # the block in which it ended has said why
                self._ended[label] = error
            else:
                log = self._directory.path / ERROR_LOG
                self._progress.say(f"{label}: failed: {first_line(error)} (traceback: {log})")
            return False
        c = self._run.config
        if not math.isinf(c.request_rate) and sink.is_slower_than(self._run.load.arrival_s):
            self._directory.describe_arm(label, notes=(slower_than_asked(c.request_rate, c.max_concurrency),))
        add_record(self._directory.path, watch.record(label, repeat, self._place_of(label, repeat)))
        return True


def measure(run: PreparedRun, directory: RunDirectory, progress: Progress) -> None:
    """Measures every block that the directory does not contain yet, with interleaved arms: each repeat starts with a
    different arm.

    A block that fails for any reason is stored as failed with its error, and the others continue. Raises OSError if the
    run directory cannot be written; its content stays consistent.
    """
    done = directory.done_blocks()
    labels, num_repeats = [arm.config.label for arm in run.arms], run.config.num_repeats

    def where(label: str, repeat: int) -> Place:
        arm = (labels.index(label) + 1, len(labels))
        return Place(label, {"arm": arm, "repeat": (repeat + 1, num_repeats)})

    def place_of(label: str, repeat: int) -> int:
        return (labels.index(label) - repeat) % len(labels)

    order = [
        (arm, repeat)
        for repeat in range(num_repeats)
        for arm in (*run.arms[repeat % len(run.arms) :], *run.arms[: repeat % len(run.arms)])
        if (arm.config.label, repeat) not in done
    ]
    to_come = [arm.config.label for arm, _ in order]
    if order:
        progress.say(block_estimate(run, directory, to_come))
    watcher = Watcher.of(run)
    for busy in watcher.busy_now():
        progress.say(f"the machine is busy ({busy}): this will take longer, and figures will be noisy")
    arms = Arms(run, directory, progress, where, place_of, watcher, to_come)
    for arm, repeat in order:
        if (block := arms.try_block(arm, repeat)) is not None:
            arms.store(arm, repeat, block)
    arms.fail_untried()


def slower_than_asked(request_rate: float, max_concurrency: int) -> str:
    """The note of an arm that could not keep up; without figures of its own, so that all blocks have the same one."""
    return (
        f"not the load of --request-rate {request_rate:g}: it cannot keep up with --max-concurrency {max_concurrency}, "
        "and requests that wait for a place are not yet sent, so TTFT is without that wait"
    )


def block_name(place: Place) -> str:
    """`eagle:k=4, arm 2 of 3: repeat 1 of 5`; in an A/B `block 1 of 10: A`."""
    first, *rest = (f"{name} {n} of {num}" for name, (n, num) in place.counts.items())
    return f"{place.label}, {': '.join([first, *rest])}" if rest else f"{first}: {place.label}"


def record_failure(directory: RunDirectory, label: str, block: int, error: Exception, name: str) -> None:
    """`name`: of the block, in the log."""
    with deferred_interrupt():
        directory.fail_blocks([(label, block)], error)
        with (directory.path / ERROR_LOG).open("a", encoding="utf-8") as log:
            log.write(f"{label}, {name}\n{''.join(traceback.format_exception(error))}\n")


def close(directory: RunDirectory, status: str | None) -> None:
    """Derives all figures and closes the run."""
    with deferred_interrupt():
        directory.finish(results(directory.frames()), status)
