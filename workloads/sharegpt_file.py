"""Reads ShareGPT's big JSON file record by record, complete or truncated, in little memory.

The published file is a JSON list indented by two spaces, so every record ends on a line that is exactly ``  }`` or
``  },``. The copy on PyPI stops in the middle of a record: its last, broken record is dropped (the repair that closes
the list at the last whole record, without building the repaired file). The first question and answer of each record
are kept in a compact file in the cache, which later runs read in a fraction of a second.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from specbench.workloads.assets.cache import atomic_file, cache_root, require_free_disk
from specbench.workloads.assets.seal import check_seals, write_seals
from specbench.workloads.guarded import ANY_SIZE, open_file, parse_json
from specbench.workloads.json_values import JsonObject
from specbench.workloads.records import as_record, objects_field, read_records, text_field

COMPACT_VERSION = 1
HUMAN, MODEL = ("human", "user"), ("gpt", "chatgpt", "assistant")


@dataclass(frozen=True, kw_only=True, slots=True)
class Exchange:
    """First question and first answer of one conversation. ``id`` is ``<position in the file>:<record id>``."""

    id: str
    question: str
    answer: str


def first_exchanges(path: Path, sha256: str) -> list[Exchange]:
    """All records whose first two turns are a person's and the model's, in file order."""
    compact = cache_root() / "derived" / f"sharegpt-{sha256[:16]}-v{COMPACT_VERSION}.jsonl"
    seal = cache_root() / "hashes" / f"{compact.name}.json"
    if not compact.is_file():
        require_free_disk(compact.parent, path.stat().st_size, compact.name)
        write_compact(path, compact)
        seal.unlink(missing_ok=True)
    if not seal.is_file():
        write_seals(seal, {compact.name: compact})
    check_seals(seal, compact.parent, f"delete {compact}, and it is made again")
    records = (record for _, record in read_records(compact))
    return [Exchange(**{key: str(record[key]) for key in ("id", "question", "answer")}) for record in records]


def write_compact(path: Path, compact: Path) -> None:
    """ValueError for a file without conversations, such as the user's own prompts."""
    has_turns = False
    with atomic_file(compact) as file:
        for index, record in enumerate(iter_conversations(path)):
            turns = objects_field(record, "conversations")
            has_turns = has_turns or bool(turns)
            if len(turns) >= 2 and turns[0].get("from") in HUMAN and turns[1].get("from") in MODEL:
                name = f"{index}:{record.get('id', '')}"
                question, answer = (text_field(turn, "value", f"{path}: record {index}") for turn in turns[:2])
                exchange = {"id": name, "question": question, "answer": answer}
                file.write(json.dumps(exchange).encode() + b"\n")
        if not has_turns:
            raise ValueError(f"{path}: no ShareGPT conversation in it; for prompts of your own: --dataset-name jsonl")


def iter_conversations(path: Path) -> Iterator[JsonObject]:
    """Every whole record: ``{"id": .., "conversations": [{"from": .., "value": ..}, ..]}``, all turns, in file order.

    Raises ValueError if the file holds no whole record, or one that is not JSON.
    """
    if path.suffix == ".json" and is_indented_list(path):
        yield from iter_indented(path)
    else:
        for _, record in read_records(path):
            yield record


def is_indented_list(path: Path) -> bool:
    with open_file(path, ANY_SIZE) as file:
        return file.readline().strip() == b"[" and file.readline().rstrip() == b"  {"


def iter_indented(path: Path) -> Iterator[JsonObject]:
    lines: list[bytes] = []
    count = 0
    with open_file(path, ANY_SIZE) as file:
        file.readline()
        for number, line in enumerate(file, start=2):
            end = line.rstrip()
            if end not in (b"  }", b"  },"):
                lines.append(line)
                continue
            try:
                record = parse_json(b"".join([*lines, b"}"]).decode("utf-8"))
            except ValueError as error:
                raise ValueError(f"{path}:{number}: record that ends here is not valid JSON ({error})") from error
            yield as_record(record, f"{path}:{number}")
            count += 1
            lines = []
    if count == 0:
        raise ValueError(f"{path}: no whole ShareGPT record in it (truncated download?)")
