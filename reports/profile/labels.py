"""Labels of arms as headings: broken where a line may break, without what all arms have in common."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_ARM = re.compile(r"[\w-]+:\w+=[^,]*(,\w+=[^,]*)*")


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmTitles:
    """`titles`: of each label, in order. `shared`: options that every arm with options has, which no title repeats."""

    titles: tuple[str, ...]
    shared: tuple[str, ...]


def arm_titles(labels: Sequence[str]) -> ArmTitles:
    """`eagle:k=4,head=random,sync=single` beside `naive-eagle:k=4,head=random`: `eagle: sync=single`, `naive-eagle`.

    Names that are not written as arms are (those that users gave, file names) stay as they are.
    """
    options = [label.split(":", 1)[1].split(",") for label in labels if _ARM.fullmatch(label)]
    shared = [word for word in options[0] if all(word in other for other in options)] if len(options) > 1 else []
    titles = tuple(_title(label, shared) for label in labels)
    if len(set(titles)) < len(set(labels)):  # arms of one name that a shorter title would not tell apart
        return ArmTitles(titles=tuple(_title(label, []) for label in labels), shared=())
    return ArmTitles(titles=titles, shared=tuple(shared))


def _title(label: str, shared: Sequence[str]) -> str:
    if not _ARM.fullmatch(label):
        return label
    strategy, options = label.split(":", 1)
    own = [word for word in options.split(",") if word not in shared]
    return f"{strategy}: {', '.join(own)}" if own else strategy
