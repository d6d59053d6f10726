"""A certificate: every arm compared with no-spec of its engine and with the target's scores, stored arm by arm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from specbench.harness.engines.several import Engines
from specbench.harness.judge.rerun import certify_command
from specbench.harness.quality.certificate.certificate import CertificateFile, CertifySettings, read
from specbench.harness.quality.certificate.groups import CertifiedArms, arms_by_engine
from specbench.harness.quality.certificate.other_session import GREEDY, OtherCertifier
from specbench.harness.quality.certificate.parts import Parts
from specbench.harness.quality.certificate.session import Certifier
from specbench.harness.run import runner
from specbench.harness.run.prepare import PreparedRun, all_blocks, arm_check, initial_record, prepare
from specbench.harness.run.progress import Progress
from specbench.harness.spec.commands import CertifyOptions
from specbench.harness.spec.conditions import RunConfig
from specbench.harness.spec.cover import pairwise_cover
from specbench.harness.spec.devices import pick_device
from specbench.harness.spec.plan import named_arm, without_program
from specbench.harness.spec.same_arms import check_different
from specbench.harness.store.arm_record import Fact
from specbench.harness.store.prompts import FILE as PROMPTS
from specbench.harness.store.run_directory import RunDirectory

from .session import Destination, Session, check_writable, resume_by

RESUME = resume_by("specbench certify --run")
_WITH_RUN = frozenset({"run", "format", "quiet", "progress"})
_SETTINGS = frozenset({"temperatures", "num_seeds"})
_MAX_BUILT = 12  # engines that are built before the first is used


def certificate(options: CertifyOptions, argv: Sequence[str], progress: Progress) -> tuple[RunDirectory, bool]:
    """Makes a new certificate, that of a stored run, or resumes one; see `certify`."""
    settings = CertifySettings(temperatures=options.temperatures, num_seeds=options.num_seeds)
    if options.run is None:
        named = [without_program(named_arm(text, options), options) for text in _requested_arms(options)]
        check_different(named, options, arm_check(options))
        asked = arms_by_engine(named, Engines(options.engine))
        return certify(RunConfig.of_arms(options, asked.arms), settings, Destination.of(options, argv), progress)
    given = [options.schema()[name].flag for name in sorted(options.given - _WITH_RUN - _SETTINGS)]
    if given:
        raise ValueError(f"run: a stored run has its own options; drop {', '.join(given)}")
    directory = RunDirectory.open(options.run)
    if directory.record.ab is not None:
        instead = certify_command(directory.record) or "certify each side by itself, with -s"
        raise ValueError(f"run: the sides of an A/B are not arms of one run; {instead}")
    stored = read(directory.path)
    if stored is not None:
        if options.given & _SETTINGS:
            raise ValueError("run: a certificate resumes with its own settings; drop --temperature and --num-seeds")
        settings = stored.settings
    return certify(directory.config_to_go_on(), settings, directory, progress)


def certify(
    config: RunConfig, settings: CertifySettings, where: RunDirectory | Destination, progress: Progress
) -> tuple[RunDirectory, bool]:
    """Judges the arms that have no certificate yet, in a stored run or a new directory. Also returns whether all arms
    were judged: False if the user interrupted. ValueError for bad input, before anything is written."""
    if isinstance(where, Destination):
        check_writable(where.folder)
    asked = arms_by_engine(config.arms, Engines(config.engine))
    arms = asked.arms
    _check(asked, settings, config)
    config = replace(config, arms=arms)
    with Session(progress, RESUME, _close, is_worth_keeping=_has_certificate) as session:
        # Few arms are built here, where a head that does not fit is bad input. Many arms, or those of a stored run, are
        # built only at their turn, since they may not fit in memory together.
        at_their_turn = len(arms) > _MAX_BUILT or isinstance(where, RunDirectory)
        done, num_sent = all_blocks(config) if at_their_turn else (), max(config.num_requests, settings.num_seeds)
        run = session.enter(prepare(config, progress, done, num_sent=num_sent))
        progress.say(f"{len(arms)} arms: " + " ".join(arm.label for arm in arms))
        directory = _hold(session, run, where)
        run.deployments.logs.keep_in(directory.path)
        described = run.model.described
        inputs = {"workload": run.workload.sha256, "sha256": described.sha256}
        inputs |= {"dtype": described.dtype, "device": described.device}
        file = CertificateFile(directory.path, settings, inputs)
        certifiers: list[Certifier | OtherCertifier] = []
        if asked.own:
            certifiers.append(Certifier(run, asked.own, asked.references, settings, file, progress))
        certifiers += [OtherCertifier(run, group, file, progress) for group in asked.groups]
        parts = Parts((kind for certifier in certifiers for kind in certifier.parts_to_come()), progress)
        for certifier in certifiers:
            certifier.certify(parts)
        file.finish()
    return directory, not session.is_interrupted


def _check(asked: CertifiedArms, settings: CertifySettings, config: RunConfig) -> None:
    check = arm_check(config)
    for arm in asked.arms:
        capabilities = check(arm).capabilities
        for fact in (Fact.TOKEN_IDS, Fact.ROUNDS, Fact.SCORES) if arm.label in asked.own else ():
            capabilities.require(fact, "a certificate")
    if asked.groups and GREEDY not in settings.temperatures:
        raise ValueError(
            f"temperature: {list(settings.temperatures)} is not allowed for arms of {asked.groups[0].engine}, whose "
            "sampling noise is unknown; they are judged at 0"
        )


def _requested_arms(options: CertifyOptions) -> Sequence[str]:
    """Strategy arguments, from the user or a cover. ValueError unless exactly one of the two is given."""
    if options.cover is None:
        if not options.strategy:
            raise ValueError("strategy: none is given; allowed: one or more, a cover (--cover) or a stored run (--run)")
        return options.strategy
    if options.cover != "pairwise":
        raise ValueError(f"cover: {options.cover!r} is not known; allowed: pairwise")
    for name in ("strategy", "attention"):
        if name in options.given:
            raise ValueError(f"cover: it chooses every arm's switches itself; drop --{name}")
    return [cell.text() for cell in pairwise_cover(pick_device(options.device).type, arm_check(options))]


def _hold(session: Session[RunDirectory], run: PreparedRun, where: RunDirectory | Destination) -> RunDirectory:
    if isinstance(where, Destination):
        record = initial_record(run, where.argv)
        return session.create(lambda: RunDirectory.create(where.folder, where.label, record), where.folder)
    runner.check_same_inputs(where, run)
    session.reopen(where)
    session.begin()
    return where


def _close(directory: RunDirectory, status: str | None) -> None:
    is_run = (directory.path / PROMPTS).is_file()  # written before its first block; older runs have none
    if not (is_run or directory.done_blocks() or directory.failed_blocks()):  # created for the certificate
        directory.finish(None, status or "complete")


def _has_certificate(directory: RunDirectory) -> bool:
    return read(directory.path) is not None
