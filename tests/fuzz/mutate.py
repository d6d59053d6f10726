"""Changes a valid input a little, knowing its form: what is left is often accepted half way, where faults are."""

from __future__ import annotations

import copy
import gzip
import json
import re
import struct
import sys
import zlib
from collections.abc import Callable
from random import Random
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Mutate = Callable[[bytes, Random], bytes]

_LONG, _DEEP = "@long@", "@deep@"  # what no Python value is written as
_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 3.5, -0.0, 2**31, 2**63, -(2**63), 1e308, -1e308, 1e-320),
    *(float("nan"), float("inf"), float("-inf")),
    *("", "x", "0", "nan", "inf", "1e999", "\ud800", "\x00", "\n", "a" * 3000, "../../x", "/etc/passwd", "<b>", "@me"),
    *([], {}, [None], [[]], {"": 1}, {"x": {}}, [1, "a", None], _LONG, _DEEP),
)
_SIZES = (0, 1, 7, 2**16, 2**31 - 1, 2**32 - 1, 2**63 - 1, 2**64 - 1)


def mutate_bytes(data: bytes, random: Random) -> bytes:
    """One to three cuts, copies, bytes and sizes."""
    out = bytearray(data)
    for _ in range(random.randint(1, 3)):
        at = random.randrange(len(out) + 1)
        end = min(len(out), at + random.choice((1, 2, 8, 50)))
        kind = random.randrange(5)
        if kind == 0:
            del out[at:end]
        elif kind == 1:
            del out[at:]
        elif kind == 2:
            out[at:at] = out[at:end]
        elif kind == 3:
            out[at : at + 1] = bytes([random.randrange(256)])
        else:
            out[at : at + 8] = struct.pack("<Q", random.choice(_SIZES))
    return bytes(out)


def mutate_json(data: bytes, random: Random) -> bytes:
    """One to three values replaced, dropped, doubled or renamed; now and then bytes."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return mutate_bytes(data, random)
    if random.randrange(10) == 0:
        return mutate_bytes(data, random)
    try:
        return _json(_changed(value, random)).encode()
    except RecursionError:  # read, but too deep to be copied
        return mutate_bytes(data, random)


def mutate_lines(data: bytes, random: Random) -> bytes:
    """JSON lines, or the events of a stream: what stands behind an optional `data: ` is JSON."""
    lines = data.split(b"\n")
    for _ in range(random.randint(1, 2)):
        number = random.randrange(len(lines))
        kind = random.randrange(8)
        if kind == 0:
            del lines[number]
            lines = lines or [b""]
        elif kind == 1:
            lines.insert(number, random.choice(lines))
        else:
            head, text = re.fullmatch(rb"(data: ?)?(.*)", lines[number], re.DOTALL).groups()  # type: ignore[union-attr]
            lines[number] = (head or b"") + mutate_json(text, random)
    return b"\n".join(lines)


def mutate_toml(data: bytes, random: Random) -> bytes:
    try:
        value = tomllib.loads(data.decode())
    except (ValueError, RecursionError):
        return mutate_bytes(data, random)
    if random.randrange(5) == 0:
        return mutate_bytes(data, random)
    try:
        changed = _changed(value, random)
    except RecursionError:
        return mutate_bytes(data, random)
    tables = changed if isinstance(changed, dict) else {"x": changed}
    return "\n".join(f"{json.dumps(key)} = {_toml(item)}" for key, item in tables.items()).encode()


def mutate_framed(data: bytes, random: Random) -> bytes:
    """safetensors: a JSON header behind its length."""
    size = int.from_bytes(data[:8], "little")
    if random.randrange(3) == 0 or not 8 + size <= len(data):
        return mutate_bytes(data, random)
    header = mutate_json(data[8 : 8 + size], random)
    return struct.pack("<Q", len(header)) + header + data[8 + size :]


def mutate_packed(data: bytes, random: Random) -> bytes:
    """gzipped JSON."""
    try:
        inner = gzip.decompress(data)
    except (OSError, EOFError, zlib.error):
        return mutate_bytes(data, random)
    return mutate_bytes(data, random) if random.randrange(5) == 0 else gzip.compress(mutate_json(inner, random), 1)


def mutate_words(data: bytes, random: Random) -> bytes:
    """Words of a command line, apart by NUL."""
    words = data.decode(errors="replace").split("\0")
    for _ in range(random.randint(1, 3)):
        at = random.randrange(len(words) + 1)
        text = str(random.choice(_VALUES))
        kind = random.randrange(4)
        if kind == 0:
            del words[at : at + 1]
        elif kind == 1:
            words.insert(at, random.choice(words) if words else text)
        else:
            words[at : at + 1] = [words[at] + text] if kind == 2 and at < len(words) else [text]
    return "\0".join(words).encode(errors="replace")


def _changed(value: Any, random: Random) -> Any:
    holder = [copy.deepcopy(value)]
    for _ in range(random.randint(1, 3)):
        places = list(_places(holder))
        box, key = random.choice(places)
        kind = random.randrange(6)
        if kind == 0 and box is not holder:
            del box[key]
        elif kind == 1:
            other_box, other_key = random.choice(places)
            box[key] = copy.deepcopy(other_box[other_key])
        elif kind == 2 and isinstance(box, dict):
            box[random.choice(("", "x", "\ud800", str(key) + "s"))] = box.pop(key)
        elif kind == 3 and isinstance(box, list) and box is not holder:
            box.insert(key, copy.deepcopy(box[key]))
        else:
            box[key] = copy.deepcopy(random.choice(_VALUES))
    return holder[0]


def _places(box: Any):
    """(container, key) of every value below."""
    for key, value in list(box.items() if isinstance(box, dict) else enumerate(box)):
        yield box, key
        if isinstance(value, (dict, list)):
            yield from _places(value)


def _json(value: Any) -> str:
    return _spelled(json.dumps(value))


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return _spelled(json.dumps(value, default=str).replace("NaN", "nan").replace("Infinity", "inf"))


def _spelled(text: str) -> str:
    return text.replace(f'"{_LONG}"', "1" * 5000).replace(f'"{_DEEP}"', "[" * 20000 + "]" * 20000)
