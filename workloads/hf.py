"""Any data set that Hugging Face's `datasets` reads, on the hub or on this disk: one column, one prompt a row.

A cell is a text, a list of turns (the first one is asked) or a conversation (its first message of the user is asked).
Only the head of a split is read, so that a few prompts of a large data set on the hub cost a few megabytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from specbench.workloads.assets.errors import AssetError
from specbench.workloads.base import Tokenizer, Workload, WorkloadRequest
from specbench.workloads.hf_source import Source, open_source, quiet, readable
from specbench.workloads.json_values import Json
from specbench.workloads.questions import Question, QuestionSet, ask_all

MAX_ROWS = 10_000  # of a split: the sample is shuffled out of these
DEFAULT_OUTPUT_LEN = 128
SPLITS = ("test", "validation", "train")  # in order of preference: heads are trained on the last
COLUMNS = ("prompt", "question", "instruction", "text", "turns", "messages", "conversations")
USERS = ("user", "human")


@dataclass(frozen=True, kw_only=True, slots=True)
class Cells:
    """The head of one column. ``texts`` has None for a row without a prompt."""

    split: str
    column: str
    texts: tuple[str | None, ...]

    @property
    def words(self) -> str:
        rows = f"the first {MAX_ROWS:,} rows" if len(self.texts) == MAX_ROWS else f"all {len(self.texts):,} rows"
        num_empty = self.texts.count(None)
        dropped = f" without {num_empty:,} that have no text of a user" if num_empty else ""
        return f"split {self.split!r}, column {self.column!r}, {rows}{dropped}"


def load(request: WorkloadRequest, tokenizer: Tokenizer) -> Workload:
    """The first ``num_prompts`` prompts, after a seeded shuffle, that fit the model with their output limit.

    Raises ValueError for a data set that cannot be had, and for a split, column or subset that it does not have.
    """
    if not request.path:
        raise ValueError("workload hf needs a data set: --dataset-path ORG/NAME, or a local file or directory")
    with quiet():
        source = open_source(request.path, request.hf_subset)
        with readable(request.path):
            cells = read_cells(source, request)
    questions = (Question(id=str(row), text=text) for row, text in enumerate(cells.texts) if text is not None)
    asked = QuestionSet(
        title=f"{source.name}: {cells.words}",
        questions=tuple(questions),
        source=source.described,
        default_output_len=DEFAULT_OUTPUT_LEN,
    )
    return ask_all(request, tokenizer, asked)


def read_cells(source: Source, request: WorkloadRequest) -> Cells:
    split = pick("hf_split", request.hf_split, tuple(source.splits), SPLITS)
    rows = source.splits[split]
    columns = rows.column_names or list(next(iter(rows), {}))  # some kinds of file are read before it is known
    if not columns:
        raise AssetError(f"dataset_path {source.name}: split {split!r} has no rows")
    column = pick("hf_column", request.hf_column, tuple(columns), COLUMNS)
    values = (row[column] for row in islice(rows.select_columns([column]), MAX_ROWS))
    return Cells(split=split, column=column, texts=read_texts(values, column))


def pick(field: str, asked: str | None, found: Sequence[str], preferred: Sequence[str]) -> str:
    """What was asked for, else the only one found, else the first preferred one. ValueError that lists those found."""
    if asked is None and len(found) == 1:
        return found[0]
    if asked is None and (known := [name for name in preferred if name in found]):
        return known[0]
    if asked in found:
        return str(asked)
    wrong = f"{field} {asked!r} does not exist" if asked else f"{field} must be given"
    raise AssetError(f"{wrong}; the data set has: {', '.join(found)}")


def read_texts(values: Iterable[Json], column: str) -> tuple[str | None, ...]:
    """What is asked of each cell. Raises ValueError where a cell can hold no prompt at all, a number for example."""
    texts = []
    for row, value in enumerate(values):
        if not isinstance(value, str | list | dict | None):
            raise AssetError(
                f"hf_column {column!r}: row {row} holds {type(value).__name__}; "
                "allowed: a text, a list of texts, or a conversation"
            )
        texts.append(first_user_text(value))
    return tuple(texts)


def first_user_text(value: Json) -> str | None:
    """The text of a cell, of its first turn, or of its first message that a user wrote; None where it has none."""
    if isinstance(value, dict):  # a sequence of messages, as older data sets store it: one list for each field
        value = [dict(zip(value, fields, strict=False)) for fields in zip(*value.values(), strict=False)]
    if isinstance(value, list):
        texts = [turn if isinstance(turn, str) else user_text(turn) for turn in value]
        value = next((text for text in texts if text is not None), None)
    return value if isinstance(value, str) and value.strip() else None


def user_text(message: Json) -> str | None:
    """``content`` of ``{"role": "user"}`` or ``value`` of ``{"from": "human"}``; None for another's message."""
    if not isinstance(message, dict) or message.get("role", message.get("from")) not in USERS:
        return None
    text = message.get("content", message.get("value"))
    return text if isinstance(text, str) else None
