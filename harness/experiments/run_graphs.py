"""`specbench run --certify-graphs`: after the timed blocks, a trace of each arm shows whether it ran as its row claims.

run.json records the request, so that a resumed run certifies what is missing. Results are in
profile/<arm>/profile.json of the run directory.
"""

from __future__ import annotations

from pathlib import Path

from specbench.harness.engines.base import ResolvedArm
from specbench.harness.profiling.certify_graphs import NUM_ROUNDS, certify_arm, write_failure
from specbench.harness.profiling.graph_certificate import VOID
from specbench.harness.profiling.profile_file import FAILURE, FILE, read_profile
from specbench.harness.profiling.profile_run import FOLDER, arm_folder
from specbench.harness.run.prepare import PreparedRun
from specbench.harness.run.progress import Progress
from specbench.harness.spec.conditions import RunConfig
from specbench.harness.spec.devices import pick_device
from specbench.harness.store.purpose import GraphCertificates
from specbench.harness.store.run_directory import RunDirectory
from specbench.workloads.guarded import first_line


def graph_record(requested: bool, config: RunConfig) -> GraphCertificates | None:
    """The entry in run.json; None if not requested. ValueError without a GPU, since there are no graphs to certify."""
    if not requested:
        return None
    device = pick_device(config.device).type
    if device != "cuda":
        raise ValueError(f"certify_graphs: needs a GPU, and the device is {device}; leave --certify-graphs out")
    return GraphCertificates(num_rounds=NUM_ROUNDS)


def certify(run: PreparedRun, directory: RunDirectory, progress: Progress) -> None:
    """Certifies the measured arms without a certificate, on the deployments that were timed if these are open."""
    labels = missing(directory)
    for arm in run.arms:
        if arm.config.label in labels:
            _try_arm(run, arm, _folder(directory, arm.config.label), progress)


def has_failed(directory: RunDirectory) -> bool:
    """Whether the trace of an arm failed, or shows that the arm did not run the graphs of its row."""
    if directory.record.purpose.certify_graphs is None:
        return False
    labels = missing(directory)
    if any((_folder(directory, label) / FAILURE).is_file() for label in labels):
        return True
    certified = {arm for arm, _ in directory.done_blocks()} - labels
    return any(read_profile(_folder(directory, label) / FILE).graph.verdict == VOID for label in sorted(certified))


def _try_arm(run: PreparedRun, arm: ResolvedArm, folder: Path, progress: Progress) -> None:
    label = arm.config.label
    progress.say(f"{label}: certifying graphs")
    try:
        profile = certify_arm(arm, run.deployments.of(arm), run.load, folder)
    except Exception as error:  # stored with the arm, shown in its row
        run.deployments.drop(label)
        write_failure(folder, label, error)
        progress.say(f"{label}: graphs not certified: {first_line(error)}")
        return
    reasons = "; ".join(profile.graph.reasons)
    progress.say(f"{label}: graph claim {profile.graph.verdict}" + (f": {reasons}" if reasons else ""))


def missing(directory: RunDirectory) -> set[str]:
    """Measured arms that were to be certified and have no certificate yet."""
    if directory.record.purpose.certify_graphs is None:
        return set()
    measured = {arm for arm, _ in directory.done_blocks()}
    return {label for label in measured if not (_folder(directory, label) / FILE).is_file()}


def _folder(directory: RunDirectory, label: str) -> Path:
    return directory.path / FOLDER / arm_folder(label)
