"""What an evaluation is asked to do: lm-eval tasks with how many items of each, and how they are asked."""

from __future__ import annotations

from collections.abc import Sequence

from specbench.harness.spec.arm import ArmConfig
from specbench.harness.store.evaluation_record import TaskLimit


def parse_tasks(text: str, limit: int | None = None) -> tuple[TaskLimit, ...]:
    """`gsm8k:200,other`: names, each with a limit of its own or else `limit`. ValueError for what is no number."""
    found = []
    for word in filter(None, (part.strip() for part in text.split(","))):
        name, colon, number = word.partition(":")
        if colon and not number.isdigit():
            raise ValueError(f"tasks: {word!r} is not allowed; give NAME or NAME:LIMIT, as gsm8k:200")
        found.append(TaskLimit(name=name, limit=int(number) if colon else limit))
    return tuple(found)


def check_real_text(arms: Sequence[ArmConfig]) -> None:
    """ValueError for an arm whose acceptance is forced: it accepts wrong drafts, so its text is nobody's answer."""
    forced = [arm.label for arm in arms if arm.engine.get("acceptance", "real") != "real"]
    if forced:
        raise ValueError(f"acceptance: {forced[0]}: forced acceptance gives wrong text, which has no accuracy; drop it")
