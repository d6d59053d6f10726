"""Question sets, asked as one chat message each: GSM8K's plan, and the first turns of MT-Bench and HumanEval.

A question set is shuffled by seed, templated, and filtered by one rule only: prompt plus output limit must fit.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from specbench.workloads.assets.resolve import resolve
from specbench.workloads.base import Prompt, Tokenizer, Workload, WorkloadRequest, require_enough
from specbench.workloads.records import read_records, text_field


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """One question as the file has it."""

    id: str
    text: str
    category: str = ""
    reference: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class QuestionSet:
    """Questions with the words for their rule. ``default_output_len`` is used unless the user gives ``output_len``."""

    title: str
    questions: tuple[Question, ...]
    source: str
    default_output_len: int
    synthetic: bool = False


def ask_all(request: WorkloadRequest, tokenizer: Tokenizer, asked: QuestionSet) -> Workload:
    """The first ``num_prompts`` questions, after a seeded shuffle, that fit the model with their output limit."""
    max_tokens = request.output_len or asked.default_output_len
    order = list(asked.questions)
    random.Random(request.seed).shuffle(order)
    prompts: list[Prompt] = []
    num_longer = 0
    for question in order:
        token_ids = tuple(tokenizer.apply_chat_template([{"role": "user", "content": question.text}]))
        if len(token_ids) + max_tokens <= request.max_model_len:
            prompts.append(as_prompt(question, token_ids, max_tokens))
        else:
            num_longer += 1
        if len(prompts) == request.num_prompts:
            break
    dropped = f" ({num_longer} longer dropped on the way)" if num_longer else ""
    rule = (
        f"{asked.title}; one user message each, chat template applied; up to {max_tokens} output tokens; "
        f"prompt + output <= {request.max_model_len}{dropped}; shuffled with seed {request.seed}"
    )
    require_enough(request.name, wanted=request.num_prompts, available=len(prompts), rule=rule)
    return Workload(
        name=request.name, prompts=tuple(prompts), rule=rule, source=asked.source, synthetic=asked.synthetic
    )


def as_prompt(question: Question, token_ids: tuple[int, ...], max_tokens: int) -> Prompt:
    return Prompt(
        id=question.id,
        token_ids=token_ids,
        max_tokens=max_tokens,
        text=question.text,
        category=question.category,
        reference=question.reference,
    )


def load_mt_bench(request: WorkloadRequest, tokenizer: Tokenizer) -> Workload:
    """MT-Bench's first turns; 1,024 output tokens unless ``output_len`` says otherwise, as FastChat generates them."""
    asset = resolve(request.path or "mt-bench")
    asked = QuestionSet(
        title="MT-Bench: the first turn of each question",
        questions=read_turns(asset.path),
        source=asset.source,
        default_output_len=1024,
    )
    return ask_all(request, tokenizer, asked)


def read_turns(path: Path) -> tuple[Question, ...]:
    """Questions of a file in the format of MT-Bench and Spec-Bench: ``question_id``, ``category``, ``turns``."""
    questions = []
    for number, record in read_records(path):
        turns = record.get("turns")
        if not isinstance(turns, list) or not turns or not isinstance(turns[0], str):
            raise ValueError(f"{path}:{number}: field 'turns' must be a list of strings with at least one")
        name = str(record.get("question_id", number))
        questions.append(Question(id=name, text=turns[0], category=str(record.get("category", ""))))
    return tuple(questions)


def load_humaneval(request: WorkloadRequest, tokenizer: Tokenizer) -> Workload:
    """HumanEval's function heads, sent as they stand; 512 output tokens unless ``output_len`` says otherwise."""
    asset = resolve(request.path or "humaneval")
    asked = QuestionSet(
        title="HumanEval: the function's head and docstring as they stand, no instruction around them",
        questions=read_humaneval(asset.path),
        source=asset.source,
        default_output_len=512,
    )
    return ask_all(request, tokenizer, asked)


def read_humaneval(path: Path) -> tuple[Question, ...]:
    return tuple(
        Question(
            id=text_field(record, "task_id", f"{path}:{number}"),
            text=text_field(record, "prompt", f"{path}:{number}"),
            category="coding",
            reference=str(record.get("canonical_solution", "")),
        )
        for number, record in read_records(path)
    )
