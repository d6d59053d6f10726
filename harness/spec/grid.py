"""The arms of a sweep: strategy arguments times numbers of drafts, no speculation always among them.

An argument that says its own number of drafts stays as it is. An arm of the grid that is not legal is a row with its
reason; an argument of which nothing is legal is bad input.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from specbench.harness.registry import BASELINE, strategy_class

from .arm import ArmConfig, arm_key, parse_arm
from .legality import Refused
from .variant import CheckArm, Variant

MakeArm = Callable[[str], ArmConfig]


@dataclass(frozen=True, kw_only=True, slots=True)
class Grid:
    """`rows` in the order of the table; `notes`: what the user did not type and should know."""

    rows: tuple[Variant, ...]
    notes: tuple[str, ...] = ()

    @property
    def arms(self) -> tuple[ArmConfig, ...]:
        return tuple(row.arm for row in self.rows if row.arm is not None)


def make_grid(arguments: Sequence[str], num_drafts: Sequence[int], make: MakeArm, check: CheckArm) -> Grid:
    """`make`: from the text of an arm to the arm, under the command's switches. ValueError for an argument of which no
    arm can run, and for one that cannot be read."""
    notes = []
    if not any(parse_arm(text).strategy == BASELINE for text in arguments):
        arguments = [BASELINE, *arguments]
        notes.append(f"{BASELINE} was added: every speed-up is measured against it")
    rows: list[Variant] = []
    for argument in arguments:
        expanded = _expanded(argument, num_drafts)
        own = [_row(text, k, _family(argument), make, check) for text, k in expanded]
        if all(row.arm is None for row in own):
            raise ValueError(f"strategy: {argument}: none of its arms can run; {own[0].label}: {own[0].refused}")
        rows += own
    return Grid(rows=tuple(rows), notes=tuple(notes))


def _expanded(argument: str, num_drafts: Sequence[int]) -> list[tuple[str, int | None]]:
    """The texts of an argument's arms, each with its number of drafts. ValueError for an unknown strategy or option."""
    arm = parse_arm(argument)
    kind = strategy_class(arm.strategy)
    option = kind.depth_option
    if option in arm.options:
        return [(argument, int(arm.options[option]) if arm.options[option].isdecimal() else None)]
    kind.of(arm.options)
    if option is None or not num_drafts:
        return [(argument, None)]
    _, _, body = argument.partition(":")
    return [(f"{arm.strategy}:{option}={k}" + (f",{body}" if body else ""), k) for k in num_drafts]


def _family(argument: str) -> str:
    strategy, _, body = argument.partition(":")
    kept = [
        pair
        for pair in body.split(",")
        if pair and arm_key(pair.partition("=")[0]) != strategy_class(strategy).depth_option
    ]
    return strategy + (f":{','.join(kept)}" if kept else "")


def _row(text: str, k: int | None, family: str, make: MakeArm, check: CheckArm) -> Variant:
    row = Variant(label=text, family=family, num_drafts=k)
    try:
        arm = make(text)
        check(arm)
    except Refused as error:
        return replace(row, refused=f"{error.rule} is refused: {error.reason}")
    except ValueError as error:
        return replace(row, refused=" ".join(str(error).split()))
    return replace(row, label=arm.label, arm=arm)
