"""Accepted aliases, renamed options, the error for an unknown name, and errors that say names as they were written."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from specbench.harness.text import nearest

_KEYED = re.compile(r"\w+:[^/\\]*")

# How vLLM and SGLang spell the same thing: options of commands, keys of arms and of TOML files.
SYNONYMS: Mapping[str, str] = {
    "num_speculative_tokens": "k",
    "speculative_num_steps": "num_steps",
    "speculative_eagle_topk": "topk",
    "speculative_num_draft_tokens": "num_draft_tokens",
    "prompt_lookup_min": "min_n",
    "prompt_lookup_max": "max_n",
    "attention_backend": "attention",
    "speculative_draft_attention_backend": "attention_drafter",
    "block_size": "page_size",
    "num_gpu_blocks_override": "num_pages",
    "chunked_prefill_size": "max_num_batched_tokens",
    "context_length": "max_model_len",
    "model_path": "model",
    "random_seed": "seed",
    "input_len": "random_input_len",
    "stop_token_id": "stop_token_ids",
    "ready_check_timeout_sec": "engine_startup_timeout",
}

# Former names of options, and how they are written now.
RENAMED: Mapping[str, str] = {"--json": "--format json", "--markdown": "--format md", "--factor": "--ablate"}

RENAMED_FILES: Mapping[str, str] = {
    "seed-20078": "vllm-pr-20078",
    "seed-25196": "vllm-pr-25196",
    "seed-34880": "vllm-pr-34880",
    "seed-6995": "sglang-pr-6995-one-gpu",
    "seed-faithful": "vllm-0.9",
    "vllm-before-pr-20078": "vllm-0.9",
}


def one_each(words: Sequence[str]) -> list[str]:
    """Splits several values after --goodput, as vLLM takes them (`--goodput ttft:500 tpot:50`), into one flag for each.
    Further values are words with a colon that are not paths."""
    found: list[str] = []
    is_open = False
    for word in words:
        is_value = is_open and _KEYED.fullmatch(word) is not None
        if is_value and found[-1] != "--goodput":
            found.append("--goodput")
        is_open = is_value or word.partition("=")[0] == "--goodput"
        found.append(word)
    return found


def canonical(word: str, known: Collection[str]) -> str:
    """A key, or a word such as `--block-size=16`, in our spelling; a known one is returned unchanged."""
    if word == "--wide" and "--format" in known:
        return "--format=wide"
    name, equals, value = word.partition("=")
    if name in known:
        return word
    dashes = "--" if name.startswith("--") else ""
    ours = SYNONYMS.get(name.removeprefix("--").replace("-", "_"))
    if ours is None:
        return word
    spelled = dashes + (ours.replace("_", "-") if dashes else ours)
    return spelled + equals + value if spelled in known else word


def by_own_name(keys: Iterable[str], own: Callable[[str], str], where: str = "") -> dict[str, str]:
    """The keys as written, by their `own` name. ValueError for two spellings of one: a single value would count."""
    written: dict[str, str] = {}
    for key in keys:
        if (other := written.setdefault(own(key), key)) != key:
            raise ValueError(f"{where}{key}: is another spelling of {other}; give one of the two")
    return written


def key_of(flag: str) -> str:
    """The name in errors and in Python: `batch_sizes` for --batch-sizes."""
    return flag.removeprefix("--").replace("-", "_")


def written_keys(words: Sequence[str]) -> list[str]:
    """The names of the options among the words of a command line, without those of one letter."""
    return [key_of(word.partition("=")[0]) for word in words if word.startswith("--")]


@contextmanager
def as_written(keys: Iterable[str], options: Iterable[Collection[str]]) -> Iterator[None]:
    """An error in it that begins with the name of an option, or has it behind an arm's, has the one that the user gave
    it. `keys`: as given; `options`: all names of each."""
    names = {name: every for every in options for name in every}
    written = {other: key for key in keys for other in names.get(canonical(key, names), ())}
    try:
        yield
    except ValueError as error:
        parts = str(error).split(": ")
        at = next((at for at, name in enumerate(parts[:-1][:2]) if name in written), None)
        if at is not None and len(error.args) == 1:
            parts[at] = written[parts[at]]
            error.args = (": ".join(parts),)
        raise


def check_renamed(word: str, known: Collection[str]) -> None:
    """ValueError with the new name for an option that was renamed."""
    name = word.partition("=")[0]
    if name in RENAMED and name not in known:
        raise ValueError(f"{name.removeprefix('--')}: {name} is now written {RENAMED[name]}")


def check_renamed_file(kind: str, name: str) -> None:
    """ValueError with the new name for a recipe or a base that was renamed."""
    if name in RENAMED_FILES:
        raise ValueError(f"{kind}: {name!r} is now called {RENAMED_FILES[name]!r}")


def check_keys(table: Mapping[str, object], allowed: Collection[str], where: str) -> None:
    """ValueError for a key that is not allowed, suggesting the nearest one that is."""
    for key, value in table.items():
        if key not in allowed:
            raise ValueError(
                f"{where}: unknown key {key!r} = {value!r}{nearest(key, allowed)}; allowed: {', '.join(allowed)}"
            )
