"""Kills commands at random moments and lets them go on: `make crash KILLS=20`; `--out FILE` keeps the table.

A kill is right if every file can be read afterwards, every request of a stored block is there (of `ab`: of a pair of
blocks), and of a block in progress every request that ended before the journal's last turn; if no process is left; and
if the command, killed now and then while it goes on as well, ends whole, with all that was stored before unchanged.
Exit code 1 if one was not.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
import traceback
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random

import torch

from crash.experiments import EXPERIMENTS, Experiment, Stored
from crash.process import JOURNAL_EVERY_S, LATE_S, Ended, left_behind, run, specbench
from crash.stored import Request, by_name, look

_MAX_STEPS = 6  # starts of one command, the last of which is not killed


@dataclass
class Tally:
    """Of one command. `early`: kills before anything was on disk. `requests`: told before a kill and found after it.
    `leftovers`: temporary files that stayed."""

    kills: int = 0
    early: int = 0
    ended_first: int = 0
    requests: int = 0
    leftovers: int = 0
    faults: list[str] = field(default_factory=list)


class Lost(AssertionError):
    """What a kill must not do."""


def kill_and_go_on(name: str, experiment: Experiment, folder: Path, random: Random, whole: Whole, tally: Tally) -> None:
    """One directory, from its first start to its end, killed once or more on the way."""
    known: Stored = {}
    for step in range(_MAX_STEPS):
        made = _made(folder)
        words = experiment.start(folder) if made is None else experiment.go_on(made)
        is_killed = step == 0 or (step < _MAX_STEPS - 1 and random.random() < 0.3)
        after_s = random.uniform(0, whole.seconds * 1.02) if is_killed else None
        mark = uuid.uuid4().hex
        ended = run(specbench(words, mark), folder / "log", after_s)
        if left := left_behind(mark):
            raise Lost(f"processes left: {left}")
        known = experiment.kept(_check(folder, ended, known, tally))
        if ended.code >= 0:
            tally.ended_first += is_killed
            if ended.code not in experiment.codes:
                raise Lost(f"exit code {ended.code} of specbench {' '.join(words)}")
            if name != "history add" and set(_short(known)) != whole.requests:
                raise Lost(f"{len(known)} requests at the end, {len(whole.requests)} without a kill")
            return
        tally.kills += 1
        tally.early += _made(folder) is None
    raise Lost("did not end")


def _check(folder: Path, ended: Ended, known: Stored, tally: Tally) -> dict[Request, int]:
    """What is stored now; Lost where something that was told, or known before, is not."""
    seen = run(look(folder / "runs"), folder / "log")
    if seen.code:
        raise Lost(f"a file cannot be read:\n{(folder / 'log').read_text()[-2000:]}")
    ((whole, partial, hidden),) = seen.told
    stored, journal = by_name(whole), by_name(partial)
    tally.leftovers = max(tally.leftovers, len(hidden))
    if changed := [one for one, end in known.items() if stored.get(one) != end]:
        raise Lost(f"{len(changed)} of {len(known)} stored requests are gone or changed: {changed[:3]}")
    blocks = {tuple(told[1:]) for told in ended.told if len(told) == 4}
    last = max((told[0] for told in ended.told), default=0.0)
    for when, *place, number, end in (told for told in ended.told if len(told) == 6):
        one = (place[0], place[1], place[2], number)
        is_due = tuple(place) in blocks or when < last - JOURNAL_EVERY_S - LATE_S
        if is_due and end not in (stored.get(one), journal.get(one)):
            raise Lost(f"request {one} ended {last - when:.2f} s before the last sign of life and is not on disk")
        tally.requests += is_due
    return stored


@dataclass(frozen=True)
class Whole:
    """The command without a kill: how long it takes, and its requests, without the name of their directory."""

    seconds: float
    requests: frozenset[tuple[str, int, int]]


def _short(requests: Stored) -> set[tuple[str, int, int]]:
    return {request[1:] for request in requests}


def _made(folder: Path) -> Path | None:
    """The directory that the command has made, once its record is there."""
    records = sorted((folder / "runs").glob("[!.]*/*.json")) + sorted((folder / "runs" / "runs").glob("[!.]*/run.json"))
    return next((path.parent for path in records if path.name in ("run.json", "sweep.json")), None)


def measure_whole(name: str, experiment: Experiment, folder: Path) -> Whole:
    ended = run(specbench(experiment.start(folder), "none"), folder / "log")
    if ended.code not in experiment.codes:
        raise Lost(f"{name} without a kill: exit code {ended.code}\n{(folder / 'log').read_text()[-2000:]}")
    return Whole(ended.seconds, frozenset(_short(_check(folder, ended, {}, Tally()))))


def folder_for(name: str, parent: Path) -> Path:
    folder = Path(tempfile.mkdtemp(dir=parent))
    if name == "history add":
        (folder / "given").mkdir()
        shutil.copytree(parent / "sample", folder / "given" / "run", symlinks=True)
    return folder


def kill(names: Sequence[str], num_kills: int, seed: int, parent: Path) -> dict[str, Tally]:
    made = EXPERIMENTS["run"].start(parent)
    if run(specbench(made, "none"), parent / "log").code:
        raise Lost((parent / "log").read_text()[-2000:])
    (sample,) = (parent / "runs").iterdir()
    sample.rename(parent / "sample")
    tallies = {name: Tally() for name in names}
    wholes = {name: measure_whole(name, EXPERIMENTS[name], folder_for(name, parent)) for name in names}
    number = 0
    while sum(tally.kills for tally in tallies.values()) < num_kills and number < 5 * num_kills:
        name = min(names, key=lambda one: tallies[one].kills)
        folder, random = folder_for(name, parent), Random(f"{seed} {number}")
        try:
            kill_and_go_on(name, EXPERIMENTS[name], folder, random, wholes[name], tallies[name])
        except Exception as error:
            said = str(error) if isinstance(error, Lost) else traceback.format_exc()
            tallies[name].faults.append(f"{name}, seed {seed}, number {number}: {said}")
            print(f"FAULT {tallies[name].faults[-1]}", flush=True)
        shutil.rmtree(folder)
        number += 1
    return tallies


def table(tallies: dict[str, Tally]) -> str:
    lines = ["| command | kills | before its directory | ended first | requests told and found | leftovers | faults |"]
    lines.append("| :--- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name, tally in tallies.items():
        cells = {**asdict(tally), "faults": len(tally.faults)}
        lines.append("| " + " | ".join([name, *map(str, cells.values())]) + " |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="Keeps the table, with the command.")
    parser.add_argument("names", nargs="*", choices=[*EXPERIMENTS, []])
    given = parser.parse_args()
    torch.set_num_threads(1)
    _import_all()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="specbench-crash-") as parent:
        tallies = kill(given.names or list(EXPERIMENTS), given.kills, given.seed, Path(parent))
    text = table(tallies)
    print(f"{text}{time.monotonic() - started:.0f} s")
    if given.out:
        faults = "".join(f"\n* {fault}" for tally in tallies.values() for fault in tally.faults)
        command = f"make crash KILLS={given.kills} SEED={given.seed}"
        given.out.write_text(
            f"# Killed with -9 at random moments, then resumed\n\n`{command}`, {os.cpu_count()} cores\n\n{text}{faults}"
        )
    if (num_kills := sum(tally.kills for tally in tallies.values())) < given.kills:
        print(f"{num_kills} of {given.kills} kills: the other commands had ended first", file=sys.stderr)
        return 1
    return 1 if any(tally.faults for tally in tallies.values()) else 0


def _import_all() -> None:
    """Before the first fork: what the commands would import."""
    import importlib
    import pkgutil

    import matplotlib.pyplot  # noqa: F401
    import pandas  # noqa: F401
    import pyarrow.parquet  # noqa: F401

    import specbench.harness.experiments
    import specbench.harness.judge
    import specbench.reports

    for package in (specbench.harness.experiments, specbench.harness.judge, specbench.reports):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)


if __name__ == "__main__":
    sys.exit(main())
