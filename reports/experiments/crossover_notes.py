"""The notes below the tables of a sweep: doubts about its rows, errors, dips, and what is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from specbench.harness.metrics.doubts import DISTURBED, UNRECORDED, UNSTABLE
from specbench.harness.store.crossover_file import NO_VERDICT, Crossover, CrossoverArm


def doubts(arm: CrossoverArm) -> list[tuple[int, str]]:
    """The marks of the rows, by load."""
    return [(cell.load, mark) for cell in arm.points for mark in cell.doubts]


_OF_THE_MACHINE = (DISTURBED, UNRECORDED, UNSTABLE)


def doubt_notes(record: Crossover, names: Mapping[str, str]) -> list[str]:
    """A line per mark. Machine marks that differ only in load and seconds share a line per kind."""
    found = [(arm, load, mark) for arm in record.arms for load, mark in doubts(arm)]
    notes = [f"{names[a.label]}, concurrency {n}: {m}" for a, n, m in found if not m.startswith(_OF_THE_MACHINE)]
    for word in _OF_THE_MACHINE:
        arms: dict[str, list[str]] = {}
        for arm, load, mark in found:
            if mark.startswith(word):
                arms.setdefault(arm.label, []).append(str(load))
        by_loads: dict[str, list[str]] = {}
        for label, loads in arms.items():
            by_loads.setdefault(", ".join(loads), []).append(label)
        if arms:
            where = [f"{_names(labels, record)} at concurrency {loads}" for loads, labels in by_loads.items()]
            first = next(mark.partition(": ")[2] for _, _, mark in found if mark.startswith(word))
            notes.append(f"{word}: {'; '.join(where)}" + (f" (the first: {first})" if first else ""))
    return notes


def _names(labels: Sequence[str], record: Crossover) -> str:
    return "all arms" if len(labels) == len(record.arms) else ", ".join(labels)


def troubles(record: Crossover, names: Mapping[str, str]) -> list[str]:
    """Why arms have no verdict, what failed at which load, and what was refused."""
    notes = []
    for arm in record.arms:
        notes += [f"{names[arm.label]}: {why}." for why in no_verdict(arm)]
        notes += [f"{names[arm.label]}, concurrency {at}: {error}" for error, at in errors(arm).items()]
    return [*notes, *(f"{refused.label}: refused: {refused.refused}" for refused in record.refused)]


def no_verdict(arm: CrossoverArm) -> list[str]:
    """Why the speed-ups give no break-even concurrency, if they do not."""
    return [note for note in arm.notes if note.startswith(NO_VERDICT)]


def errors(arm: CrossoverArm) -> dict[str, str]:
    """Each error once, with all loads at which it occurred."""
    loads: dict[str, list[str]] = {}
    for cell in arm.points:
        if cell.error:
            loads.setdefault(cell.error, []).append(str(cell.load))
    return {error: ", ".join(at) for error, at in loads.items()}


def dips(record: Crossover, figure: str, names: Mapping[str, str]) -> list[str]:
    """Arms that are slower at some concurrency below their break-even, which that one number does not show."""
    notes = []
    for arm in record.arms:
        if no_verdict(arm):
            continue
        below = [(cell.load, found.ratio < 1) for cell in arm.points if (found := cell.speedup(figure))]
        kept = [is_below for _, is_below in below]
        while kept and kept[-1]:
            kept.pop()
        slower = [str(load) for (load, is_below) in below[: len(kept)] if is_below]
        if slower:
            notes.append(f"{names[arm.label]}: slower than no-spec also at lower concurrency: {', '.join(slower)}.")
    return notes


def missing(record: Crossover) -> list[str]:
    """That the sweep is unfinished, and which loads have no figures yet."""
    left = [str(load) for load in record.asked_loads if load not in record.loads]
    if record.status == "complete":
        return []
    loads = f"; not begun: concurrency {', '.join(left)}" if left else ""
    return [f"The sweep is not complete (status {record.status}): figures cover only what was measured{loads}."]
