"""The arms of a sweep: strategy arguments times numbers of drafts, no speculation always among them.

An argument that says its own number of drafts stays as it is. An arm of the grid that is not legal is a row with its
reason; an argument of which nothing is legal is bad input.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from specbench.harness.arms import resolve_arm
from specbench.harness.metrics.metrics import BASELINE
from specbench.harness.registry import STRATEGIES, lookup
from specbench.harness.run_config import ArmConfig, parse_arm

_DEPTH_OPTIONS = ("k", "num_steps")  # what strategies call the longest chain of drafts of a round

MakeArm = Callable[[str], ArmConfig]


@dataclass(frozen=True, kw_only=True, slots=True)
class GridArm:
    """One row. `family`: the argument without its number of drafts; `arm` is None where `refused` says why it cannot
    run."""

    label: str
    family: str
    num_drafts: int | None
    arm: ArmConfig | None = None
    refused: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Grid:
    """`rows` in the order of the table; `notes`: what the user did not type and should know."""

    rows: tuple[GridArm, ...]
    notes: tuple[str, ...] = ()

    @property
    def arms(self) -> tuple[ArmConfig, ...]:
        return tuple(row.arm for row in self.rows if row.arm is not None)


def make_grid(arguments: Sequence[str], num_drafts: Sequence[int], make: MakeArm, device: str, synthetic: bool) -> Grid:
    """`make`: from the text of an arm to the arm, under the command's switches. ValueError for an argument of which no
    arm can run, and for one that cannot be read."""
    notes = []
    if not any(parse_arm(text, {}).strategy == BASELINE for text in arguments):
        arguments = [BASELINE, *arguments]
        notes.append(f"{BASELINE} was added: every speed-up is measured against it")
    rows: list[GridArm] = []
    for argument in arguments:
        expanded = _expanded(argument, num_drafts)
        own = [_row(text, k, _family(argument), make, device, synthetic) for text, k in expanded]
        if all(row.arm is None for row in own):
            raise ValueError(f"strategy: {argument}: none of its arms can run; {own[0].label}: {own[0].refused}")
        rows += own
    return Grid(rows=tuple(rows), notes=tuple(notes))


def _expanded(argument: str, num_drafts: Sequence[int]) -> list[tuple[str, int | None]]:
    """The texts of an argument's arms, each with its number of drafts."""
    arm = parse_arm(argument, {})
    option = _depth_option(arm)
    if option is None or not num_drafts:
        return [(argument, None)]
    if option in arm.options:
        return [(argument, int(arm.options[option]) if arm.options[option].isdecimal() else None)]
    _, _, body = argument.partition(":")
    return [(f"{arm.strategy}:{option}={k}" + (f",{body}" if body else ""), k) for k in num_drafts]


def _depth_option(arm: ArmConfig) -> str | None:
    """What the strategy calls its number of drafts; None where it makes none. ValueError for an unknown strategy."""
    kind = lookup(STRATEGIES, arm.strategy, "strategy")
    known = arm.options
    for option in _DEPTH_OPTIONS:
        if option in known:
            return option
    options = getattr(kind(known), "options", None)
    return next((option for option in _DEPTH_OPTIONS if hasattr(options, option)), None)


def _family(argument: str) -> str:
    strategy, _, body = argument.partition(":")
    kept = [pair for pair in body.split(",") if pair and pair.partition("=")[0] not in _DEPTH_OPTIONS]
    return strategy + (f":{','.join(kept)}" if kept else "")


def _row(text: str, k: int | None, family: str, make: MakeArm, device: str, synthetic: bool) -> GridArm:
    row = GridArm(label=text, family=family, num_drafts=k)
    try:
        arm = make(text)
        resolve_arm(arm, device, synthetic)
    except ValueError as error:
        return replace(row, refused=_reason(text, error))
    return replace(row, label=arm.label, arm=arm)


def _reason(text: str, error: ValueError) -> str:
    """One line, without the arm's own name and the list of everything that was resolved."""
    whole = " ".join(str(error).partition(" (resolved: ")[0].split())
    return whole.removeprefix(f"{text}: ")


def parse_numbers(option: str, text: str, example: str) -> list[int]:
    """`1,4,16` as different numbers in order. ValueError naming the option for anything else."""
    words = [word.strip() for word in text.split(",")]
    if any(not word.isdecimal() or int(word) < 1 for word in words) or len({*map(int, words)}) < len(words):
        raise ValueError(f"{option}: {text!r} is not allowed; allowed: different numbers >= 1, as {example}")
    return sorted(map(int, words))
