"""Hides the private parts of command lines and records: values of options that look secret, keys, and names of home
folders.

The user's own paths are stored relative to `~`, so that a resumed run finds them again.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar, cast

MASK = "[redacted]"
_Record = TypeVar("_Record")

_NO_PATHS = ("stop",)  # fields whose texts are compared with answers, where ~ is a character
HOME = re.compile(r"(/home/|/Users/)([^/\\\s\"':;,]+)")
# Not just `token`: --num-tokens and --stop-token-id are numbers; --api-key-env is the name of a variable.
SECRET = r"(?:api_?-?key(?![-_]env)|access_?-?key|auth|secret|passw|credential|(?<!num[-_])token(?!s|iz|[-_]id))"
_SECRET_OPTION = re.compile(rf"^--?[\w-]*{SECRET}[\w-]*$", re.IGNORECASE)
_SECRET_VALUE = re.compile(rf"(\b[\w-]*{SECRET}[\w-]*=)[^\s\"]+", re.IGNORECASE)
# Keys of Hugging Face, OpenAI and others, GitHub, AWS: they say themselves what they are.
_KNOWN_KEY = re.compile(
    r"\b(?:hf_\w{20,}|sk-(?=[\w-]*\d)[\w-]{20,}|gh[a-z]_\w{20,}|github_pat_\w{20,}|AKIA[0-9A-Z]{16})"
)
_IN_ADDRESS = re.compile(r"(?<=/)([^/\s:@]+):[^/\s@]+@")  # user:password@host


def masked(argv: tuple[str, ...]) -> tuple[str, ...]:
    """A command line with secret-looking values masked and home folders made anonymous."""
    shown, hide_next = [], False
    for word in argv:
        inner = word.split(" ")  # a command line in one word, such as that of an engine's server
        plain = " ".join(masked(tuple(inner))) if len(inner) > 1 else plain_text(word)
        shown.append(MASK if hide_next and not word.startswith("-") else plain)
        hide_next = _SECRET_OPTION.match(word) is not None
    return tuple(shown)


def is_secret_name(name: str) -> bool:
    """Whether an option or a variable with this name looks secret."""
    return re.search(SECRET, name, re.IGNORECASE) is not None


def plain_text(text: str) -> str:
    """Masks values after names that look secret, passwords in addresses, and keys of known forms; makes home folders
    anonymous."""
    named = _IN_ADDRESS.sub(rf"\1:{MASK}@", _SECRET_VALUE.sub(rf"\1{MASK}", text))
    return HOME.sub(r"\1user", _KNOWN_KEY.sub(MASK, named))


def from_home(record: _Record) -> _Record:
    """A copy of the dataclass in which every path below the user's home begins with `~`."""
    home = str(Path.home())

    def change(text: str) -> str:
        return f"~{text[len(home) :]}" if text == home or text.startswith(home + os.sep) else text

    is_private = home != os.sep  # for a user without a home, everything would be below it
    return cast(_Record, _with_texts(record, change)) if is_private else record


def to_home(record: _Record) -> _Record:
    """A copy of the dataclass with `~` expanded to this user's home."""
    return cast(_Record, _with_texts(record, _expanded))


def _expanded(text: str) -> str:
    return os.path.expanduser(text) if text == "~" or text.startswith("~/") else text


def _with_texts(value: object, change: Callable[[str], str]) -> object:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, tuple):
        return tuple(_with_texts(item, change) for item in value)
    if isinstance(value, Mapping):
        return {key: _with_texts(item, change) for key, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value) if field.init and field.name not in _NO_PATHS]
        return dataclasses.replace(value, **{name: _with_texts(getattr(value, name), change) for name in names})
    return value
