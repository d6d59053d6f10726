"""Hides the private parts of a command line: values of options that look secret, and the names of home folders."""

from __future__ import annotations

import re

MASK = "[redacted]"

HOME = re.compile(r"(/home/|/Users/)([^/\\\s\"':;,]+)")
# No plain `token`: --num-tokens and --stop-token-id are figures; --api-key-env is the name of a variable.
SECRET = r"(?:api_?-?key(?![-_]env)|access_?-?key|auth|secret|passw|credential|(?<!num[-_])token(?!s|iz|[-_]id))"
_SECRET_OPTION = re.compile(rf"^--?[\w-]*{SECRET}[\w-]*$", re.IGNORECASE)
_SECRET_VALUE = re.compile(rf"(\b[\w-]*{SECRET}[\w-]*=)[^\s\"]+", re.IGNORECASE)
_IN_ADDRESS = re.compile(r"(?<=/)([^/\s:@]+):[^/\s@]+@")  # user:password@host


def masked(argv: tuple[str, ...]) -> tuple[str, ...]:
    """A command line with secret-looking values masked and home folders made anonymous."""
    shown, hide_next = [], False
    for word in argv:
        inner = word.split(" ")  # a command line in one word, as of an engine's server
        plain = " ".join(masked(tuple(inner))) if len(inner) > 1 else plain_text(word)
        shown.append(MASK if hide_next and not word.startswith("-") else plain)
        hide_next = _SECRET_OPTION.match(word) is not None
    return tuple(shown)


def is_secret_name(name: str) -> bool:
    """Of an option or a variable."""
    return re.search(SECRET, name, re.IGNORECASE) is not None


def plain_text(text: str) -> str:
    """Values behind names that look secret, and passwords in addresses, masked; home folders made anonymous."""
    return HOME.sub(r"\1user", _IN_ADDRESS.sub(rf"\1:{MASK}@", _SECRET_VALUE.sub(rf"\1{MASK}", text)))
