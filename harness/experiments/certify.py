"""A certificate: every arm compared with no-spec and with the target's own logits, stored arm by arm."""

from __future__ import annotations

from dataclasses import replace

from specbench.harness.accuracy.certify_plain import with_references
from specbench.harness.accuracy.certify_record import CertificateFile, CertifySettings, read
from specbench.harness.accuracy.certify_session import Certifier
from specbench.harness.run import runner
from specbench.harness.run.prepare import PreparedRun, all_blocks, manifest, prepare
from specbench.harness.run.progress import Progress
from specbench.harness.spec.run_config import RunConfig
from specbench.harness.store.run_directory import RunDirectory

from .session import Output, Session, check_writable, resume_by

RESUME = resume_by("specbench certify --run")
_MOST_BUILT = 12  # engines that are built before the first is needed


def certify(
    config: RunConfig, settings: CertifySettings, where: RunDirectory | Output, progress: Progress
) -> tuple[RunDirectory, bool]:
    """Judges the arms that have no certificate yet, in a stored run or a new directory, and whether all of them were
    come to: False where the user interrupted. ValueError for bad input, before anything is written."""
    if isinstance(where, Output):
        check_writable(where.folder)
    arms, references = with_references(config.arms)
    config = replace(config, arms=arms)
    with Session(progress, RESUME, _close, is_worth_keeping=_has_certificate) as held:
        # Few arms are built here, where a head that does not fit is bad input; many, or those of a run that has begun,
        # only at their turn: the memory need not hold them all.
        at_their_turn = len(arms) > _MOST_BUILT or isinstance(where, RunDirectory)
        run = prepare(config, progress, all_blocks(config) if at_their_turn else ())
        progress.say(f"{len(arms)} arms: " + " ".join(arm.label for arm in arms))
        directory = _hold(held, run, where)
        described = run.target.described
        inputs = {"workload": run.workload.sha256, **{k: described.get(k) for k in ("sha256", "dtype", "device")}}
        Certifier(run, references, settings, CertificateFile(directory.path, settings, inputs), progress).certify()
    return directory, not held.is_interrupted


def _hold(held: Session[RunDirectory], run: PreparedRun, where: RunDirectory | Output) -> RunDirectory:
    if isinstance(where, Output):
        found = manifest(run, where.argv)
        return held.create(lambda: RunDirectory.create(where.folder, where.label, found), where.folder)
    runner.check_same_inputs(where, run)
    held.reopen(where)
    held.begin()
    return where


def _close(directory: RunDirectory, status: str | None) -> None:
    if not directory.done_blocks():  # made for the certificate: it measured nothing of its own
        directory.finish({}, status or "complete")


def _has_certificate(directory: RunDirectory) -> bool:
    return read(directory.path) is not None
