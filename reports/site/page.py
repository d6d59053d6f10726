"""Pages of the site: documents with a path, and shared parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from specbench.reports.document import Document, Section, filled

_Item = TypeVar("_Item")


@dataclass(frozen=True, kw_only=True, slots=True)
class Page(Document):
    """`path`: within the site, with `/`. `files`: copied next to it for links, by their path within the site."""

    path: str
    files: Mapping[str, Path] = field(default_factory=dict)

    @property
    def root(self) -> str:
        """The relative path from the page to the root of the site."""
        return "../" * self.path.count("/")


def newest_sections(items: Sequence[_Item], maximum: int, section: Callable[[_Item, int], Section]) -> list[Section]:
    """A section for each of the first workloads, by number, and one that says how many are left out."""
    sections = [section(item, n) for n, item in enumerate(items[:maximum])]
    if len(items) <= maximum:
        return sections
    sentence = f"{len(items) - maximum} older workloads are not shown; each run's own page has its figures."
    return [*sections, Section(title="Older workloads", sentences=(sentence,))]


def one_open(sections: Sequence[Section]) -> list[Section]:
    """The sections that have content: the first unchanged, the others folded."""
    return [section if n == 0 else replace(section, folded=True) for n, section in enumerate(filled(sections))]


def or_nothing(sections: Sequence[Section], title: str, sentence: str) -> tuple[Section, ...]:
    """The sections; if there are none, one that says why."""
    return tuple(sections) or (Section(title=title, sentences=(sentence,)),)
