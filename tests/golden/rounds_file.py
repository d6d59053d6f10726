"""rounds.json: cases by device and name, one a line; long values stand once in a table of their own, by their hash."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

Value = str | list[str]
PATH = Path(__file__).parent / "rounds.json"
_SHORT = 24  # characters of a value that is printed in its case


@dataclass(slots=True)
class Rounds:
    """What is stored: {device: {case: {key: value}}}."""

    cases: dict[str, dict[str, dict[str, Value]]] = field(default_factory=dict)

    @staticmethod
    def read(path: Path = PATH) -> Rounds:
        """Empty where there is no such file."""
        if not path.exists():
            return Rounds()
        stored = json.loads(path.read_text(encoding="utf-8"))
        table = stored["values"]
        return Rounds(
            {
                device: {name: {k: _looked_up(v, table) for k, v in case.items()} for name, case in cases.items()}
                for device, cases in stored["cases"].items()
            }
        )

    def merge(self, other: Rounds) -> None:
        for device, cases in other.cases.items():
            self.cases.setdefault(device, {}).update(cases)

    def write(self, path: Path) -> None:
        table: dict[str, Value] = {}
        devices = [
            f" {json.dumps(device)}: {{\n" + _lines({n: _interned(c, table) for n, c in cases.items()}) + "\n }"
            for device, cases in sorted(self.cases.items())
        ]
        values = _lines(table)
        text = '{"values": {\n' + values + '\n},\n"cases": {\n' + ",\n".join(devices) + "\n}}\n"
        path.write_text(text, encoding="utf-8")


def _lines(entries: Mapping[str, object]) -> str:
    return ",\n".join(
        f"  {json.dumps(key)}: {json.dumps(value, separators=(',', ':'))}" for key, value in sorted(entries.items())
    )


def _interned(case: dict[str, Value], table: dict[str, Value]) -> dict[str, str]:
    short = {}
    for key, value in case.items():
        if isinstance(value, str) and len(value) <= _SHORT or key == "error":
            short[key] = value
        else:
            digest = "#" + hashlib.sha256(json.dumps(value).encode()).hexdigest()[:10]
            assert table.setdefault(digest, value) == value, f"two values hash to {digest}"
            short[key] = digest
    return short


def _looked_up(value: str, table: dict[str, Value]) -> Value:
    return table[value] if value.startswith("#") else value
