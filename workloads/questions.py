"""Question sets, one chat message per question: GSM8K and HumanEval; questions of several turns: turns.py.

A question set is shuffled by seed and templated. Its only filter: prompt plus output limit must fit the model.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from specbench.workloads.assets.resolve import resolve
from specbench.workloads.base import Prompt, Tokenizer, Workload, WorkloadRequest, messages_beyond_text, require_enough
from specbench.workloads.records import question_record, read_records, text_field

JSON_REQUEST = (
    'Answer with one JSON object and nothing else: {"steps": [short strings, one for each step], "answer": number}'
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """One question as in the file. ``before``: messages of the conversation that it continues."""

    id: str
    text: str
    category: str = ""
    reference: str = ""
    before: tuple[dict[str, str], ...] = ()


def ask_all(
    request: WorkloadRequest,
    tokenizer: Tokenizer,
    questions: Iterable[Question],
    *,
    title: str,
    source: str,
    output_len: int,
    synthetic: bool = False,
    asked: str = "one user message each",
) -> Workload:
    """The first ``num_prompts`` questions that fit the model with their output limit, after a seeded shuffle.

    ``output_len`` is the limit unless the user gives one; ``title`` opens the rule, which says how they are ``asked``.
    """
    max_tokens = request.output_len or output_len
    order = list(questions)
    random.Random(request.seed).shuffle(order)
    prompts: list[Prompt] = []
    num_longer = 0
    for q in order:
        messages = [*q.before, {"role": "user", "content": q.text}]
        token_ids = tuple(tokenizer.apply_chat_template(messages))
        if len(token_ids) + max_tokens > request.max_model_len:
            num_longer += 1
            continue
        prompts.append(
            Prompt(
                id=q.id,
                token_ids=token_ids,
                max_tokens=max_tokens,
                text=q.text,
                category=q.category,
                reference=q.reference,
                messages=messages_beyond_text(messages),
            )
        )
        if len(prompts) == request.num_prompts:
            break
    dropped = f" ({num_longer} longer dropped on the way)" if num_longer else ""
    rule = (
        f"{title}; {asked}, chat template applied; up to {max_tokens} output tokens; "
        f"prompt + output <= {request.max_model_len}{dropped}; shuffled with seed {request.seed}"
    )
    require_enough(request.name, wanted=request.num_prompts, available=len(prompts), rule=rule)
    return Workload(name=request.name, prompts=tuple(prompts), rule=rule, source=source, synthetic=synthetic)


def load_gsm8k(request: WorkloadRequest, tokenizer: Tokenizer) -> Workload:
    """The test split (``gsm8k``) or the train split (``gsm8k-train``), zero-shot. Reference solutions take about 200
    tokens."""
    asset = resolve(request.path or request.name)
    title = f"GSM8K ({asset.name}): questions as they stand, zero-shot"
    return ask_all(request, tokenizer, read_gsm8k(asset.path), title=title, source=asset.source, output_len=256)


def read_gsm8k(path: Path) -> list[Question]:
    """Questions in file order: published JSON lines or parquet, or evaluation requests that hold them in ``doc``."""
    return [
        Question(
            id=f"{number - 1}",
            text=text_field(question_record(record), "question", f"{path}:{number}"),
            category="math",
            reference=text_field(question_record(record), "answer", f"{path}:{number}"),
        )
        for number, record in read_records(path)
    ]


def load_gsm8k_json(request: WorkloadRequest, tokenizer: Tokenizer) -> Workload:
    """GSM8K's questions, to be answered with a JSON object; 256 output tokens unless ``output_len`` says otherwise."""
    asset = resolve(request.path or "gsm8k")
    asked = [
        replace(question, text=f"{question.text}\n\n{JSON_REQUEST}", category="json")
        for question in read_gsm8k(asset.path)
    ]
    title = f"GSM8K ({asset.name}): questions with the request {JSON_REQUEST!r}"
    return ask_all(request, tokenizer, asked, title=title, source=asset.source, output_len=256)


def load_humaneval(request: WorkloadRequest, tokenizer: Tokenizer) -> Workload:
    """HumanEval's function heads as they are; 512 output tokens unless ``output_len`` says otherwise."""
    asset = resolve(request.path or "humaneval")
    title = "HumanEval: the function's head and docstring as they stand, no instruction around them"
    questions = [
        Question(
            id=text_field(record, "task_id", f"{asset.path}:{number}"),
            text=text_field(record, "prompt", f"{asset.path}:{number}"),
            category="coding",
            reference=str(record.get("canonical_solution", "")),
        )
        for number, record in read_records(asset.path)
    ]
    return ask_all(request, tokenizer, questions, title=title, source=asset.source, output_len=512)
