"""The arms of a sweep: strategy arguments times numbers of drafts, always including each engine's no-spec.

An argument with its own number of drafts is kept unchanged. An illegal arm of the grid becomes a row with the reason;
an argument without any legal arm is bad input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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


def make_grid(
    arguments: Sequence[str], num_drafts: Sequence[int], default_engine: str, make: MakeArm, check: CheckArm
) -> Grid:
    """`default_engine`: serves the arms that name none. `make`: parses the text of an arm, under the command's
    switches. ValueError for an argument that cannot be parsed or none of whose arms can run."""
    added = list(_missing_baselines(arguments, default_engine))
    notes = [f"{baseline} was added: every speed-up of its engine is measured against it" for baseline in added]
    arguments = [*added, *arguments]
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


def _missing_baselines(arguments: Sequence[str], default_engine: str) -> Iterator[str]:
    """no-spec for each engine without one, in the program of its first arm. The user's own server gets none beside
    other baselines: only the user knows how to run it without speculation."""
    arms = [(arm.engine_name or default_engine, arm) for arm in map(parse_arm, arguments)]
    having = {engine for engine, arm in arms if arm.strategy == BASELINE}
    for engine, arm in arms:
        if engine in having or (having and arm.engine.keys() & {"command", "url"}):
            continue
        having.add(engine)
        name = f"{arm.engine_name}/{BASELINE}" if arm.engine_name else BASELINE
        yield with_pairs(name, [f"{key}={arm.engine[key]}" for key in ("python", "ref") if key in arm.engine])


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
