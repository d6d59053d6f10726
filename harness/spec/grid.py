"""The arms of a sweep: strategy arguments times numbers of drafts, always including no-spec.

An argument with its own number of drafts is kept unchanged. An illegal arm of the grid becomes a row with the reason;
an argument without any legal arm is bad input.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from specbench.harness.registry import BASELINE, STRATEGIES, strategy_class

from .arm import ArmConfig, CheckArm, arm_key, parse_arm, with_pairs
from .legality import Refused
from .table_records import SweepArm

MakeArm = Callable[[str], ArmConfig]


@dataclass(frozen=True, kw_only=True, slots=True)
class Grid:
    """`rows`: in the order of the table; `arms`: those that can run, each of one of the `arguments`; `notes`: what was
    added to the user's input."""

    rows: tuple[SweepArm, ...]
    arms: tuple[ArmConfig, ...]
    arguments: tuple[str, ...]
    notes: tuple[str, ...] = ()


def make_grid(arguments: Sequence[str], num_drafts: Sequence[int], make: MakeArm, check: CheckArm) -> Grid:
    """`make`: parses the text of an arm, under the command's switches. ValueError for an argument that cannot be parsed
    or none of whose arms can run."""
    notes = []
    if not any(parse_arm(text).strategy == BASELINE for text in arguments):
        engine = parse_arm(arguments[0]).engine_name
        baseline = f"{engine}/{BASELINE}" if engine else BASELINE
        arguments = [baseline, *arguments]
        notes.append(f"{baseline} was added: every speed-up is measured against it")
    rows: list[SweepArm] = []
    arms: list[ArmConfig] = []
    of_arms: list[str] = []
    for argument in arguments:
        family, num_before, refused = _family(argument), len(arms), []
        for text, k in _expanded(argument, num_drafts):
            row = SweepArm(label=text, family=family, num_drafts=k)
            try:
                arm = make(text)
                check(arm)
            except ValueError as error:
                reason = " ".join(str(error).split())
                if isinstance(error, Refused):
                    reason = f"{error.rule} is refused: {error.reason}"
                rows.append(replace(row, refused=reason))
                refused.append(f"{text}: {reason}")
            else:
                rows.append(replace(row, label=arm.label))
                arms.append(arm)
                of_arms.append(argument)
        if len(arms) == num_before:
            raise ValueError(f"strategy: {argument}: none of its arms can run; {refused[0]}")
    return Grid(rows=tuple(rows), arms=tuple(arms), arguments=tuple(of_arms), notes=tuple(notes))


def _expanded(argument: str, num_drafts: Sequence[int]) -> list[tuple[str, int | None]]:
    """The texts of an argument's arms, each with its number of drafts. ValueError for an unknown option.

    A strategy that only another engine has is left unchanged; whether the engine has it is known there."""
    arm = parse_arm(argument)
    if arm.strategy not in STRATEGIES:
        return [(argument, None)]
    kind = strategy_class(arm.strategy)
    option = kind.depth_option
    if option in arm.options:
        return [(argument, int(arm.options[option]) if arm.options[option].isdecimal() else None)]
    kind.of(arm.options)
    if option is None or not num_drafts:
        return [(argument, None)]
    name, _, body = argument.partition(":")
    return [(with_pairs(f"{name}:{option}={k}", [body] if body else []), k) for k in num_drafts]


def _family(argument: str) -> str:
    name, _, body = argument.partition(":")
    strategy = name.rpartition("/")[2]
    depth_option = strategy_class(strategy).depth_option if strategy in STRATEGIES else None
    return with_pairs(name, [p for p in body.split(",") if p and arm_key(p.partition("=")[0]) != depth_option])
