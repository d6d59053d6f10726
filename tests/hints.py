"""Commands that pages and terminals show, and whether they can be typed as they stand."""

from __future__ import annotations

import re
import shlex
from html.parser import HTMLParser
from pathlib import Path

import typer

from specbench.harness.cli.main import app

COMMANDS = typer.main.get_command(app)
HINT = re.compile(rf"specbench (?:{'|'.join(map(re.escape, COMMANDS.commands))})\b.*")  # type: ignore[attr-defined]
PLACEHOLDER = re.compile(r"\b(OLDER|NEWER|RUN|RUNS|DIR|PATH|SWEEP|FILE|HISTORY)\b|\.\.\.|<|…")
BLOCKS = {"p", "pre", "td", "th", "li", "h1", "h2", "h3", "caption", "figcaption", "summary", "button", "dd", "dt"}


def check(hint: str) -> None:
    """A command stands at the end of its line or block, with at most the full stop of its sentence behind it."""
    words = shlex.split(hint.rstrip("."), comments=True)[1:]
    assert not PLACEHOLDER.search(hint), hint
    command = COMMANDS
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]  # type: ignore[attr-defined]
    try:
        command.make_context("specbench", words).close()
    except Exception as error:  # typer's click is its own or another's, by version
        raise AssertionError(f"{hint!r}: {error}") from error


class _Texts(HTMLParser):
    """The text of every block, scripts left out."""

    def __init__(self) -> None:
        super().__init__()
        self.found, self._now, self._hidden = list[str](), "", False

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._hidden = tag in ("script", "style")
        self._end(tag)

    def handle_endtag(self, tag: str) -> None:
        self._hidden = False
        self._end(tag)

    def handle_data(self, data: str) -> None:
        self._now += "" if self._hidden else data

    def _end(self, tag: str) -> None:
        if tag in BLOCKS:
            self.found.append(self._now)
            self._now = ""


def hints_of(page: Path) -> list[str]:
    texts = _Texts()
    texts.feed(page.read_text(encoding="utf-8"))
    return [hint for text in texts.found for hint in HINT.findall(" ".join(text.split()))]


def hints_in(text: str) -> list[str]:
    """Of a terminal or of Markdown."""
    return [hint for line in text.splitlines() for hint in HINT.findall(line.replace("`", "").replace("\\_", "_"))]
