"""A run: prepare, measure, certify graphs, score. Measured blocks are kept if a later step fails."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from specbench.harness.exit_codes import ExitCode
from specbench.harness.run import runner
from specbench.harness.run.prepare import PreparedRun, all_blocks, arm_check, initial_record, prepare
from specbench.harness.run.progress import Progress
from specbench.harness.spec.conditions import RunConfig
from specbench.harness.spec.options import RunOptions
from specbench.harness.spec.plan import RunPlan, plan_run
from specbench.harness.store.prompts import write_prompts
from specbench.harness.store.purpose import Purpose
from specbench.harness.store.run_directory import RunDirectory
from specbench.harness.store.run_record import ROWS_VERSION

from . import run_accuracy, run_graphs
from .session import INTERRUPTED, Destination, Resume, Session, check_writable, resume_by
from .session import exit_code as session_exit_code

RESUME = resume_by("specbench run --resume")
ROWS_ALONE = "SPECBENCH_ROWS_ALONE"
"""Environment variable of a process that measures a block of an experiment, which uses only the rows: no reports are
made. Not an option, because the side may be an older revision."""


def runs(options: RunOptions, argv: Sequence[str], progress: Progress) -> Iterator[RunDirectory]:
    """Measures one run per batch size and yields each once it is closed; or resumes a stored run.

    Stops after an interrupted run. ValueError for bad input, before anything is written.
    """
    if options.resume is not None:
        options.check_alone("a run")
        yield resume_run(options.resume, argv, progress)
        return
    plan = plan_run(options, arm_check(options))
    check_writable(options.output_dir)
    purpose = purpose_of(plan, options, progress)
    for config, label in by_batch_size(plan, options.label):
        run = new_run(config, purpose, Destination(options.output_dir, label, tuple(argv)), progress)
        yield run
        if run.record.status == INTERRUPTED:
            return


def by_batch_size(plan: RunPlan, label: str) -> list[tuple[RunConfig, str]]:
    """A configuration for each size, with the label of its run."""
    many, sizes = len(plan.batch_sizes) > 1, plan.batch_sizes
    return [(replace(plan.config, max_concurrency=size), f"{label}-b{size}" if many else label) for size in sizes]


def purpose_of(plan: RunPlan, options: RunOptions, progress: Progress) -> Purpose:
    """The tables that the run is for, and what is done after its timed blocks. ValueError for what is impossible."""
    accuracy = run_accuracy.parse_accuracy(options, plan.config.arms)
    return Purpose(
        recipe=plan.recipe,
        ablation=plan.ablation,
        acceptance=plan.acceptance,
        certify_graphs=run_graphs.graph_record(options.certify_graphs, plan.config),
        evaluation=None if accuracy is None else run_accuracy.find_items(accuracy, plan.config, progress),
    )


def new_run(
    config: RunConfig,
    purpose: Purpose,
    to: Destination,
    progress: Progress,
    *,
    check: Callable[[PreparedRun], None] | None = None,
    resume: Resume = RESUME,
) -> RunDirectory:
    """Prepares, measures and closes one run. `check` may refuse what was prepared, before anything is written. With
    `check`, an arm whose engine cannot be built becomes a failed row; without it, that is bad input: a ValueError that
    leaves nothing behind."""
    gc.collect()  # the memory of an earlier run's engines
    with _session(config, progress, resume) as session:
        num_sent = run_accuracy.num_sent(config, purpose.evaluation)
        run = session.enter(prepare(config, progress, num_sent=num_sent, keep_refused=check is not None))
        if check is not None:
            check(run)
        begun = initial_record(run, to.argv, purpose)
        directory = session.create(lambda: RunDirectory.create(to.folder, to.label, begun), to.folder)
        _measure(run, directory, progress)
    return directory


def resume_run(
    path: Path, argv: Sequence[str], progress: Progress, *, keep_refused: bool = False, resume: Resume = RESUME
) -> RunDirectory:
    """Measures what is missing from a stored run. ValueError if it is not a run or cannot be resumed here."""
    directory = RunDirectory.open(path)
    directory.check_has_tables()
    if directory.record.ab is not None:
        raise ValueError(f"resume: {directory.path} is an A/B run; resume with: specbench ab --resume {directory.path}")
    if directory.record.pooled:
        raise ValueError(f"resume: {directory.path} is a pooled run; its repeats come from other runs")
    config = directory.config_to_go_on()
    is_unfinished = run_accuracy.is_missing(directory, config) or bool(run_graphs.missing(directory))
    with _session(config, progress, resume) as session:
        session.reopen(directory)
        directory.check_tables()
        if missing := all_blocks(config) - directory.done_blocks():
            _check_same_rows(directory)
        if missing or is_unfinished:
            runner.check_same_machine(directory)
            done, num_sent = directory.done_blocks(), run_accuracy.num_sent(config, directory.record.evaluation)
            run = session.enter(prepare(config, progress, done, num_sent=num_sent, keep_refused=keep_refused))
            runner.check_same_inputs(directory, run)
            session.resume(argv)
            _measure(run, directory, progress)
        else:
            progress.say(f"nothing to do: all {len(all_blocks(config))} blocks of {directory.path} are measured")
            if directory.record.status != "complete":  # killed between its last block and its end
                session.begin()
    return directory


def _check_same_rows(directory: RunDirectory) -> None:
    """ValueError if the missing blocks would count other times or tokens than those that are there."""
    version, sampling = directory.record.rows_version, directory.record.sampling
    if version != ROWS_VERSION and sampling is not None and (sampling.request_rate is not None or sampling.stop):
        what = f"rows of version {version} (TTFT at a request rate, tokens at stop strings), now {ROWS_VERSION}"
        raise ValueError(f"resume: {directory.path} has {what}; start a new run")


def exit_code(directory: RunDirectory) -> ExitCode:
    """The exit code of a run: interrupted, partly failed, or complete."""
    has_failed = run_accuracy.has_failed(directory) or run_graphs.has_failed(directory)
    return session_exit_code(directory.record.status, has_failed=bool(directory.failed_blocks()) or has_failed)


def _measure(run: PreparedRun, directory: RunDirectory, progress: Progress) -> None:
    write_prompts(directory.path, run.workload.prompts, has_ids=run.model.has_token_ids)
    runner.measure(run, directory, progress)
    run_graphs.certify(run, directory, progress)
    run_accuracy.score(run, directory, progress)


def _session(config: RunConfig, progress: Progress, resume: Resume) -> Session[RunDirectory]:
    def close(directory: RunDirectory, status: str | None) -> None:
        progress.say("deriving figures")
        runner.close(directory, status)
        run_accuracy.close(directory, config)

    return Session(progress, resume, close)
