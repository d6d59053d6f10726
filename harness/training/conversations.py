"""Human turns of the conversations in the data sets, without the evaluation records.

Formats: ShareGPT (`conversations`), questions (`question`, alone or in `doc`), `messages` of chats, `turns` as MT-Bench
writes them, plain `prompt`s; JSON, JSON lines or parquet, by the names of the asset table or by path. Big files are
read record by record.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from specbench.workloads.assets.cache import Progress
from specbench.workloads.assets.resolve import ResolvedAsset, resolve
from specbench.workloads.held_out import is_held_out, text_key
from specbench.workloads.json_values import JsonObject
from specbench.workloads.records import objects_field, question_record
from specbench.workloads.sharegpt_file import HUMAN, iter_conversations


@dataclass(frozen=True, kw_only=True, slots=True)
class Conversation:
    """The human turns of one conversation, in order; the target gives the answers itself."""

    id: str  # <source>/<position in the file>:<record id>
    turns: tuple[str, ...]
    num_samples: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class DataSource(ResolvedAsset):
    """One `--data` argument on this disk."""

    num_samples: int

    def described(self) -> JsonObject:
        # The name of the file without its folder on this machine.
        origin = self.path.name if self.source.startswith("file:") else self.source
        return {"name": self.name, "source": origin, "sha256": self.sha256, "samples": self.num_samples}


@dataclass(frozen=True, slots=True)
class Selection:
    """Conversations to train on and what was left out, for the model card."""

    conversations: list[Conversation]
    num_held_out: int
    num_excluded: int
    num_duplicates: int

    def summary(self) -> JsonObject:
        return {
            "num_conversations": len(self.conversations),
            "num_held_out": self.num_held_out,
            "num_excluded": self.num_excluded,
            "num_duplicates": self.num_duplicates,
        }


def find_data(text: str, default_samples: int, progress: Progress | None = None) -> DataSource:
    """`NAME`, `PATH`, either with `*N`. Raises ValueError for a bad N and AssetError for an unknown name."""
    name, star, count = text.rpartition("*") if "*" in text else (text, "", "")
    if star and not (count.isdigit() and int(count) >= 1):
        raise ValueError(f"data: {text!r}: {count!r} samples a prompt are not allowed; allowed: 1 or more")
    asset = asdict(resolve(name, progress=progress))
    return DataSource(**asset, num_samples=int(count) if star else default_samples)


def read_turns(path: Path) -> Iterator[tuple[str, tuple[str, ...]]]:
    """(record id, human turns) of every record that has any. Raises ValueError for records of an unknown format."""
    for position, record in enumerate(iter_conversations(path)):
        record = question_record(record)
        turns = _turns_of(record, f"{path}: record {position + 1}")
        if turns:
            yield f"{position}:{record.get('id', '')}", turns


def _turns_of(record: JsonObject, where: str) -> tuple[str, ...]:
    if isinstance(record.get("conversations"), list):
        turns = [t.get("value") for t in objects_field(record, "conversations") if t.get("from") in HUMAN]
    elif isinstance(record.get("messages"), list):
        turns = [m.get("content") for m in objects_field(record, "messages") if m.get("role") == "user"]
    elif isinstance(said := record.get("turns"), list):
        turns = [*said]
    else:
        turns = [record[key] for key in ("question", "prompt") if isinstance(record.get(key), str)][:1]
        if not turns:
            raise ValueError(
                f"{where} has none of conversations, messages, turns, question, prompt; it has: {', '.join(record)}"
            )
    return tuple(t.strip() for t in turns if isinstance(t, str) and t.strip())


def excluded_keys(names: Collection[str], find: Callable[[str], DataSource]) -> set[str]:
    """Hashes of every human turn of evaluation-only data."""
    return {text_key(turn) for name in names for _, turns in read_turns(find(name).path) for turn in turns}


def select(
    sources: Collection[DataSource], excluded: Collection[str], num_prompts: int, max_turns: int, seed: int
) -> Selection:
    """Conversations in a seeded order, at most `num_prompts` (0: all).

    Left out: ShareGPT's held-out conversations, any conversation that starts with one of their texts or contains one of
    `excluded`, and repeated openings.
    """
    records = [(source, record_id, turns) for source in sources for record_id, turns in read_turns(source.path)]
    held_openings = [text_key(turns[0]) for _, record_id, turns in records if _is_held(record_id)]
    no_openings, no_turns = set(held_openings), set(excluded)
    kept: dict[str, Conversation] = {}
    num_excluded = num_duplicates = 0
    for source, record_id, turns in records:
        opening = text_key(turns[0])
        if _is_held(record_id):
            continue
        if opening in no_openings or any(text_key(t) in no_turns for t in turns):
            num_excluded += 1
        elif opening in kept:
            num_duplicates += 1
        else:
            name = f"{source.name}/{record_id}"
            kept[opening] = Conversation(id=name, turns=turns[:max_turns], num_samples=source.num_samples)
    order = list(kept.values())
    random.Random(seed).shuffle(order)
    return Selection(order[: num_prompts or None], len(held_openings), num_excluded, num_duplicates)


def _is_held(record_id: str) -> bool:
    name = record_id.partition(":")[2]
    return bool(name) and is_held_out(name)
