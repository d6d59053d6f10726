"""The user's prompts, one JSON object per line.

A line has one of ``prompt`` (text, taken as it is), ``messages`` (a conversation, chat template applied) or
``prompt_token_ids``; optional are ``max_tokens`` (or ``output_len``), ``id``, ``category`` and ``reference``. A key
that is null is not there: in Parquet, every row has every column.
"""

from __future__ import annotations

from typing import TypeGuard

from specbench.workloads.assets.cache import file_sha256
from specbench.workloads.base import (
    Prompt,
    Tokenizer,
    Workload,
    WorkloadRequest,
    file_of,
    messages_beyond_text,
    require_enough,
)
from specbench.workloads.json_values import Json, JsonObject
from specbench.workloads.records import read_records, without_nulls

PROMPT_KEYS = ("prompt", "messages", "prompt_token_ids")
LIMIT_KEYS = ("max_tokens", "output_len")
OTHER_KEYS = ("id", "category", "reference")
DEFAULT_OUTPUT_LEN = 128


def load(request: WorkloadRequest, tokenizer: Tokenizer) -> Workload:
    """The first ``num_prompts`` lines in file order: a user's file is taken as it is, nothing is dropped or shuffled.

    Raises ValueError with the line number for malformed JSON, wrong fields, and prompts that do not fit the model.
    """
    path = file_of(request)
    prompts: list[Prompt] = []
    lines_of_ids: dict[str, int] = {}
    for number, record in read_records(path):
        prompt = read_prompt(record, f"{path}:{number}", number, request, tokenizer)
        first = lines_of_ids.setdefault(prompt.id, number)
        if first != number:
            raise ValueError(f"{path}:{number}: id {prompt.id!r} was used on line {first}; ids must differ")
        prompts.append(prompt)
        if len(prompts) == request.num_prompts:
            break
    limit = f"{request.output_len} for all" if request.output_len else f"of each line, else {DEFAULT_OUTPUT_LEN}"
    rule = f"the first {request.num_prompts} lines in file order; no filter, no shuffle; output limit {limit}"
    require_enough(path.name, wanted=request.num_prompts, available=len(prompts), rule="every line counts")
    source = f"file:{path} sha256:{file_sha256(path)}"
    return Workload(name=request.name, prompts=tuple(prompts), rule=rule, source=source)


def read_prompt(record: JsonObject, where: str, number: int, request: WorkloadRequest, tokenizer: Tokenizer) -> Prompt:
    """One line. ``where`` is file:line for the errors."""
    unknown = [key for key in record if key not in (*PROMPT_KEYS, *LIMIT_KEYS, *OTHER_KEYS)]
    if "turns" in unknown:  # question.jsonl of EAGLE, Spec-Bench and MT-Bench
        raise ValueError(
            f"{where}: holds 'turns', as the question files of MT-Bench, Spec-Bench and EAGLE do; read it with "
            f"--dataset-name spec-bench --dataset-path {request.path}"
        )
    if unknown:
        allowed = ", ".join((*PROMPT_KEYS, *LIMIT_KEYS, *OTHER_KEYS))
        raise ValueError(f"{where}: unknown key {unknown[0]!r}; allowed: {allowed}")
    record = without_nulls(record)
    text, token_ids = read_text_and_ids(record, where, tokenizer)
    messages = record.get("messages")
    max_tokens = request.output_len or read_limit(record, where)
    if len(token_ids) + max_tokens > request.max_model_len:
        raise ValueError(
            f"{where}: prompt of {len(token_ids)} tokens + {max_tokens} output tokens exceeds max_model_len "
            f"{request.max_model_len}; shorten it, lower its max_tokens, or raise --max-model-len if the model allows"
        )
    return Prompt(
        id=str(record.get("id", f"line-{number}")),
        token_ids=token_ids,
        max_tokens=max_tokens,
        text=text,
        category=str(record.get("category", "")),
        reference=str(record.get("reference", "")),
        messages=messages_beyond_text(messages) if is_conversation(messages) else (),
    )


def read_text_and_ids(record: JsonObject, where: str, tokenizer: Tokenizer) -> tuple[str, tuple[int, ...]]:
    present = [key for key in PROMPT_KEYS if key in record]
    if len(present) != 1:
        raise ValueError(
            f"{where}: needs exactly one of {', '.join(PROMPT_KEYS)}; found {' and '.join(present) or 'none'}"
        )
    key, value = present[0], record[present[0]]
    if key == "prompt":
        if not isinstance(value, str):
            raise ValueError(f"{where}: 'prompt' is {value!r:.60}; allowed: text")
        text, token_ids = value, tokenizer.encode(value)
    elif key == "messages":
        if not is_conversation(value):
            raise ValueError(
                f"{where}: 'messages' is {value!r:.60}; allowed: a list of {{'role': text, 'content': text}}, not empty"
            )
        try:
            text, token_ids = value[-1]["content"], tokenizer.apply_chat_template(value)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
    else:
        if not are_token_ids(value, tokenizer.vocab_size):
            raise ValueError(
                f"{where}: 'prompt_token_ids' is {value!r:.60}; allowed: a list of integers in "
                f"[0, {tokenizer.vocab_size})"
            )
        token_ids = value
        try:
            text = tokenizer.decode(token_ids)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
    if not token_ids:
        raise ValueError(f"{where}: {key!r} is empty; a prompt needs at least one token")
    return text, tuple(token_ids)


def is_conversation(value: Json) -> TypeGuard[list[dict[str, str]]]:
    rows = value if isinstance(value, list) else []
    return bool(rows) and all(
        isinstance(row, dict) and isinstance(row.get("role"), str) and isinstance(row.get("content"), str)
        for row in rows
    )


def are_token_ids(value: Json, vocab_size: int) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(item) is int and 0 <= item < vocab_size for item in value)


def read_limit(record: JsonObject, where: str) -> int:
    keys = [key for key in LIMIT_KEYS if key in record]
    if len(keys) > 1:
        raise ValueError(f"{where}: give 'max_tokens' or 'output_len', not both")
    value = record[keys[0]] if keys else DEFAULT_OUTPUT_LEN
    if type(value) is not int or value < 1:
        raise ValueError(f"{where}: {keys[0]!r} is {value!r}; allowed: an integer of 1 or more")
    return value
