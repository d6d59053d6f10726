"""Folds text to a width: at blanks, inside long words after a comma or the like, and in commands so that the lines can
be pasted."""

from __future__ import annotations

import re
import shlex

_UNIT = re.compile(r"(?:[~?] )?(?:\[[^\]]*\]\S*|\S+(?: \[[^\]]*\]\S*)*)")  # a figure stays with its interval
_PIECE = re.compile(r".+?(?:[-,;:/=<_]|$)")
_SHORT, _MIN_PROSE, _LONG = 16, 24, 40  # characters: of a cell, of a column of sentences, and what such a one has
_GLUED = "\0"  # before a piece that goes on with the word before it
_MORE = " \\"  # at the end of a command's line


def folded(text: str, width: int, indent: str = "") -> list[str]:
    """Lines of up to `width` characters, with `indent` before all but the first. A longer word is broken after a comma,
    a slash or the like if it has one, else anywhere."""
    lines, line = [], ""
    for unit in _units(text):
        for word in _parts(unit, width - len(indent)):
            glue = " " if line.strip() and not word.startswith(_GLUED) else ""
            if len(line) + len(glue) + len(word.removeprefix(_GLUED)) > width and line.strip():
                lines.append(line)
                line, glue = indent, ""
            line += glue + word.removeprefix(_GLUED)
    return [*lines, line]


def folded_command(command: str, width: int) -> list[str]:
    """Lines that a shell reads as one command."""
    lines, line = [], ""
    for word in (shlex.quote(word) for word in shlex.split(command)):
        if line.strip() and len(line) + 1 + len(word) + len(_MORE) > width:
            lines.append(line + _MORE)
            line = "    "
        line += " " * bool(line.strip()) + word
    return [*lines, line]


def least_width(text: str) -> int:
    """The narrowest column in which the text is easy to read: short texts whole, others folded between words, figures
    next to their intervals."""
    least = _SHORT if len(text) < _LONG else _MIN_PROSE
    return max([min(len(text), least), *map(len, _units(text))])


def _units(text: str) -> list[str]:
    return _UNIT.findall(text)


def _parts(unit: str, width: int) -> list[str]:
    """Of a unit that is wider than a line: its words, and their pieces; glued to what they go on with."""
    if len(unit) <= width:
        return [unit]
    found: list[str] = []
    for word in unit.split():
        pieces = [word] if len(word) <= width else _PIECE.findall(word)
        cut = [piece[i : i + width] for piece in pieces for i in range(0, len(piece), width)]
        found += [cut[0], *(_GLUED + piece for piece in cut[1:])]
    return found
