"""Pages of the site: documents with a path, and shared parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from specbench.reports.document import Document, Section

_Item = TypeVar("_Item")


@dataclass(frozen=True, kw_only=True, slots=True)
class Page(Document):
    """`path`: within the site, with `/`."""

    path: str

    @property
    def root(self) -> str:
        """From the page to the root of the site."""
        return "../" * self.path.count("/")


def newest_sections(items: Sequence[_Item], maximum: int, section: Callable[[_Item, int], Section]) -> list[Section]:
    """A section for each of the first workloads, by its number, and one that says how many are left out."""
    sections = [section(item, n) for n, item in enumerate(items[:maximum])]
    if len(items) <= maximum:
        return sections
    sentence = f"{len(items) - maximum} older workloads are left out; the page of each run has its figures."
    return [*sections, Section(title="Older workloads", sentences=(sentence,))]


def or_nothing(sections: Sequence[Section], title: str, sentence: str) -> tuple[Section, ...]:
    """The sections; if there are none, one that says why."""
    return tuple(sections) or (Section(title=title, sentences=(sentence,)),)
