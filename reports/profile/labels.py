"""Arm labels as headings: written so that lines can break, and without the options that all arms share."""

from __future__ import annotations

import re
from collections.abc import Sequence

_ARM = re.compile(r"[\w-]+:\w+=[^,]*(,\w+=[^,]*)*")


def arm_titles(labels: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """A title per label, in order, and the options of every arm that has options, which no title repeats:
    `eagle:k=4,head=random,sync=single` beside `naive-eagle:k=4,head=random` are `eagle: sync=single`, `naive-eagle`.

    Names that are not arm labels (given by users, file names) are kept.
    """
    options = [label.split(":", 1)[1].split(",") for label in labels if _ARM.fullmatch(label)]
    shared = [word for word in options[0] if all(word in other for other in options)] if len(options) > 1 else []
    titles = tuple(_title(label, shared) for label in labels)
    if len(set(titles)) < len(set(labels)):  # shorter titles would not be unique
        return tuple(_title(label, []) for label in labels), ()
    return titles, tuple(shared)


def _title(label: str, shared: Sequence[str]) -> str:
    if not _ARM.fullmatch(label):
        return label
    strategy, options = label.split(":", 1)
    own = [word for word in options.split(",") if word not in shared]
    return f"{strategy}: {', '.join(own)}" if own else strategy
