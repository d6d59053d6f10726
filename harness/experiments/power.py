"""The noise floor of a machine: the effects that it can detect, from A/A blocks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from specbench.harness.experiments.ab import new_experiment, plan_experiment, resume_experiment
from specbench.harness.experiments.ab_sides import aa_configs
from specbench.harness.judge.noise import noise_floor, read_floors, store_floor
from specbench.harness.run.progress import Progress
from specbench.harness.spec.commands import PowerOptions
from specbench.harness.store.ab_judgement import INVALID, Judgement
from specbench.harness.store.codec import write_document
from specbench.harness.store.environment import collect_environment
from specbench.harness.store.noise_record import NoiseFloor
from specbench.harness.store.run_directory import RunDirectory

from .session import Destination, resume_by

FLOOR_FILE = "noise.json"
RESUME = resume_by("specbench power --resume")


def measure_aa(options: PowerOptions, words: Sequence[str], argv: Sequence[str], progress: Progress) -> RunDirectory:
    """Measures a new A/A, or what is missing from a stored one. `words`: options of a run, with one arm. ValueError for
    bad input, before hours of measurement."""
    if options.resume is not None:
        options.check_alone("an experiment", words)
        _check_is_aa(options.resume)
        return resume_experiment(options.resume, argv, progress, RESUME)
    if options.aa is None or options.aa < 2:
        raise ValueError(f"aa: {options.aa} is not allowed; allowed: 2 or more (10 or more give a good estimate)")
    plan = plan_experiment(options, words, options.aa)
    return new_experiment(plan, aa_configs(words), Destination.of(options, argv), progress, RESUME)


def stored_floor(options: PowerOptions, words: Sequence[str]) -> NoiseFloor:
    """The latest noise floor measured on this hardware. `words`: options of a run, which have no meaning here, and
    neither have those of a measurement."""
    own = [options.schema()[name].flag for name in sorted(options.given) if name not in options.WITH_RESUME]
    if own or words:
        raise ValueError(
            f"aa: {' '.join([*own, *words])} selects what to measure; set the number of blocks with --aa 10"
        )
    floors = read_floors(collect_environment())
    if not floors:
        raise ValueError("aa: no noise floor is stored for this hardware; measure it with --aa 10 and options of a run")
    return floors[0]


def _check_is_aa(path: Path) -> None:
    """ValueError unless it is an A/A: the sides are identical or were requested to be."""
    directory = RunDirectory.open(path)
    stored = directory.record.ab
    if stored is None:
        raise ValueError(
            f"resume: {directory.path} is not an A/A run; resume with: specbench run --resume {directory.path}"
        )
    a, b = stored.plan.sides
    is_aa = (a.words, a.sha) == (b.words, b.sha) if stored.is_aa is None else stored.is_aa
    if not is_aa:
        raise _two_sides(directory)


def learn_floor(judged: Judgement, directory: RunDirectory) -> tuple[NoiseFloor, Path | None]:
    """The noise floor from a judged A/A, and where it was stored for this hardware: None if the A/A is invalid."""
    if not judged.is_aa:
        raise _two_sides(directory)
    floor = noise_floor(judged, directory.record)
    write_document(directory.path / FLOOR_FILE, floor)
    if judged.verdict == INVALID:
        return floor, None
    return floor, store_floor(floor, directory.record.environment)


def _two_sides(directory: RunDirectory) -> ValueError:
    return ValueError(
        f"resume: {directory.path} compares two different sides; resume with: specbench ab --resume {directory.path}"
    )
