"""Any data set that Hugging Face's `datasets` reads, on the hub or on this disk: one column, one prompt per row.

A cell is a text, a list of turns (the first one is asked) or a conversation (its first message of the user is asked).
Only the head of a split is read, so that a few prompts of a large data set on the hub cost a few megabytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from specbench.workloads.assets.cache import AssetError
from specbench.workloads.base import Tokenizer, Workload, WorkloadRequest
from specbench.workloads.hf_source import Rows, open_source, quiet, readable
from specbench.workloads.json_values import Json
from specbench.workloads.questions import Question, ask_all

MAX_ROWS = 10_000  # of a split: the sample is shuffled out of these
DEFAULT_OUTPUT_LEN = 128
SPLITS = ("test", "validation", "train")  # in order of preference: heads are trained on the last
COLUMNS = ("prompt", "question", "instruction", "text", "turns", "messages", "conversations")
USERS = ("user", "human")


def load(request: WorkloadRequest, tokenizer: Tokenizer) -> Workload:
    """The first ``num_prompts`` prompts, after a seeded shuffle, that fit the model with their output limit.

    Raises ValueError for a data set that cannot be obtained, and for a split, column or subset that it does not have.
    """
    if not request.path:
        raise ValueError("workload hf needs a data set: --dataset-path ORG/NAME, or a local file or directory")
    with quiet(), readable(request.path):
        source = open_source(request.path, request.hf_subset)
        split = pick("hf_split", request.hf_split, tuple(source.splits), SPLITS)
        column = pick("hf_column", request.hf_column, column_names(source.splits[split], source.name, split), COLUMNS)
        texts = read_texts(source.splits[split], column)
    rows = f"the first {MAX_ROWS:,} rows" if len(texts) == MAX_ROWS else f"all {len(texts):,} rows"
    num_empty = texts.count(None)
    dropped = f" without {num_empty:,} that have no text of a user" if num_empty else ""
    return ask_all(
        request,
        tokenizer,
        [Question(id=str(row), text=text) for row, text in enumerate(texts) if text is not None],
        title=f"{source.name}: split {split!r}, column {column!r}, {rows}{dropped}",
        source=source.described,
        output_len=DEFAULT_OUTPUT_LEN,
    )


def column_names(rows: Rows, name: str, split: str) -> Sequence[str]:
    columns = rows.column_names or list(next(iter(rows), {}))  # some kinds of file are read before it is known
    if not columns:
        raise AssetError(f"dataset_path: {name}: split {split!r} has no rows")
    return columns


def pick(field: str, name: str | None, available: Sequence[str], preferred: Sequence[str]) -> str:
    """The name the user gave, else the only one there is, else the first preferred one. ValueError lists all."""
    if name is None:
        name = available[0] if len(available) == 1 else next((p for p in preferred if p in available), None)
    if name in available:
        return str(name)
    wrong = f"{field}: {name!r} is not in the data set" if name else f"{field}: none is given"
    raise AssetError(f"{wrong}; allowed: {', '.join(available)}")


def read_texts(rows: Rows, column: str) -> list[str | None]:
    """The prompt in each cell, None if it has none. Raises ValueError for a cell that cannot contain one, such as a
    number."""
    texts = []
    for number, row in enumerate(islice(rows.select_columns([column]), MAX_ROWS)):
        value = row[column]
        if not isinstance(value, str | list | dict | None):
            raise AssetError(
                f"hf_column {column!r}: row {number} holds {type(value).__name__}; "
                "allowed: a text, a list of texts, or a conversation"
            )
        texts.append(first_user_text(value))
    return texts


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
