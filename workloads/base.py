"""A workload: prompts as token ids, an output limit for each, and a hash that identifies them.

Every strategy of a comparison gets the same :class:`Workload`; its ``sha256`` is in the run record and under every
table, so two tables with the same hash measured the same prompts, in the same order, with the same limits.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

GENERATED = ("random", "sharegpt-lengths")  # workloads that are generated here, without a file
FROM_A_FILE = {  # they read the file that the user names
    "jsonl": "own prompts, one JSON object per line",
    "spec-bench": "question.jsonl of github.com/hemingkx/Spec-Bench",
    "speed-bench": "a .jsonl or .parquet file of huggingface.co/datasets/nvidia/SPEED-Bench with the texts filled in",
}
FROM_A_PATH = (*FROM_A_FILE, "hf", "mt-bench-second-turn")  # these read files, folders, runs, or names on the hub


class Tokenizer(Protocol):
    """The tokenizer interface that workloads use; ``workloads.tokenizer.load_tokenizer`` returns one."""

    @property
    def vocab_size(self) -> int: ...

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: list[int]) -> str: ...

    def apply_chat_template(self, messages: list[dict[str, str]]) -> list[int]: ...


class ChatTokenizer(Tokenizer, Protocol):
    """A tokenizer with the further methods that questions to a served model need."""

    @property
    def bos_id(self) -> int | None: ...

    @property
    def has_chat_template(self) -> bool: ...

    def encode_raw(self, text: str) -> list[int]: ...

    def render_chat(self, messages: list[dict[str, str]]) -> str: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Prompt:
    """One request. ``token_ids`` is what the model sees; ``text`` is for people (the words, without template; of a
    conversation, its last message). ``messages``: those of a conversation, for servers that take no ids; empty where
    ``text`` is all of it. ``temperature``: None leaves it to the run."""

    id: str
    token_ids: tuple[int, ...]
    max_tokens: int
    text: str
    category: str = ""
    reference: str = ""
    temperature: float | None = None
    messages: tuple[Mapping[str, str], ...] = ()


def messages_beyond_text(messages: Sequence[Mapping[str, str]]) -> tuple[Mapping[str, str], ...]:
    """``Prompt.messages`` of a conversation: none where it is a single message of a user, which is its text."""
    return () if [message["role"] for message in messages] == ["user"] else tuple(messages)


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """Prompts in the order of submission, and the words that say how they were chosen.

    ``rule`` is the exact filter and order, printed under tables; ``source`` says where the bytes came from;
    ``synthetic`` is true where the text was generated and not written by people.
    """

    name: str
    prompts: tuple[Prompt, ...]
    rule: str
    source: str
    synthetic: bool = False

    @property
    def sha256(self) -> str:
        """Hash over id, token ids and max_tokens of all prompts, in order (lengths first: nothing can run together).
        A temperature of its own is in a prompt's id (temperatures.py)."""
        digest = hashlib.sha256()
        for prompt in self.prompts:
            name = prompt.id.encode()
            digest.update(struct.pack("<QQQ", len(name), len(prompt.token_ids), prompt.max_tokens))
            digest.update(name)
            digest.update(struct.pack(f"<{len(prompt.token_ids)}q", *prompt.token_ids))
        return digest.hexdigest()


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkloadRequest:
    """The user's request. ``num_tokens`` fields count tokens of the target's tokenizer.

    ``name`` is a data set or several, separated by commas, which share ``num_prompts`` (mixture.py). ``output_len``
    overrides the output length of every prompt; None leaves it to the data set. ``vocab_size`` is the model's, needed
    by the random workload only. ``path`` is a user's file in place of the asset table, or what the hf workload reads;
    the ``hf_`` fields are that workload's own, None leaves them to the data set.
    """

    name: str
    path: str | None = None
    num_prompts: int = 100
    seed: int = 42
    max_model_len: int = 2048
    output_len: int | None = None
    random_input_len: int = 1024
    random_output_len: int = 128
    random_range_ratio: float = 0.0
    vocab_size: int = 0
    hf_split: str | None = None
    hf_subset: str | None = None
    hf_column: str | None = None

    def __post_init__(self) -> None:
        for field in ("num_prompts", "random_input_len", "random_output_len", "output_len"):
            value = getattr(self, field)
            if value is not None and value < 1:
                raise ValueError(f"{field}: {value} is not allowed; allowed: 1 or more")
        if self.max_model_len < 2:
            raise ValueError(
                f"max_model_len: {self.max_model_len} is not allowed; allowed: 2 or more (one prompt token, one output)"
            )
        for field in ("hf_split", "hf_subset", "hf_column"):
            if getattr(self, field) is not None and self.name != "hf":
                raise ValueError(
                    f"{field}: {getattr(self, field)!r} is not allowed; only the data set hf takes it, not {self.name}"
                )
        if len(self.names) > 1:
            self._check_list()

    @property
    def names(self) -> tuple[str, ...]:
        """The data sets, in the order given."""
        return tuple(name.strip() for name in self.name.split(","))

    def _check_list(self) -> None:
        names, given = self.names, f"dataset_name: {self.name!r} is not allowed"
        if not all(names):
            raise ValueError(f"{given}; it has an empty item; allowed: names separated by single commas")
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"{given}; {twice[0]} is in it twice; allowed: each data set once")
        if self.path is not None:
            raise ValueError(
                f"dataset_path: {self.path!r} is not allowed; a path belongs to one data set, not to the "
                f"{len(names)} of {self.name}; allowed: one data set with a path, or several without"
            )
        if unfit := [name for name in names if name in FROM_A_PATH]:
            raise ValueError(
                f"{given}; {unfit[0]} needs a dataset_path, which belongs to one data set; "
                f"allowed in a list: all but {', '.join(FROM_A_PATH)}"
            )
        if self.num_prompts < len(names):
            raise ValueError(
                f"num_prompts: {self.num_prompts} is not allowed; allowed: {len(names)} or more, at least one for each "
                f"data set of {self.name}"
            )


def file_of(request: WorkloadRequest) -> Path:
    """The file that the user names. ValueError if none is named, or it does not exist."""
    if not request.path:
        raise ValueError(f"workload {request.name} needs a file: --dataset-path FILE ({FROM_A_FILE[request.name]})")
    path = Path(request.path).expanduser()
    if not path.is_file():
        raise ValueError(f"dataset_path: {path} does not exist or is not a file")
    return path


def require_enough(name: str, *, wanted: int, available: int, rule: str) -> None:
    """Refuse to pad a sample: asking for more prompts than pass the filter is an error that says how many do."""
    if wanted > available:
        allowed = f"allowed: 1 to {available}" if available else "give another data set, or other lengths"
        raise ValueError(
            f"num_prompts: {wanted} is not allowed; {name} has {available} that pass its rule ({rule}); {allowed}"
        )
