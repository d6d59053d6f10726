"""GSM8K: grade-school mathematics, each question as one chat message, the reference answer kept."""

from __future__ import annotations

from pathlib import Path

from specbench.workloads.assets.resolve import resolve
from specbench.workloads.base import Tokenizer, Workload, WorkloadRequest
from specbench.workloads.questions import Question, QuestionSet, ask_all
from specbench.workloads.records import question_record, read_records, text_field

DEFAULT_OUTPUT_LEN = 256  # tokens; the longest reference solutions take about 200


def load(request: WorkloadRequest, tokenizer: Tokenizer) -> Workload:
    """Questions of the test split (``gsm8k``) or the train split (``gsm8k-train``), zero-shot."""
    asset = resolve(request.path or request.name)
    asked = QuestionSet(
        title=f"GSM8K ({asset.name}): questions as they stand, zero-shot",
        questions=read_gsm8k(asset.path),
        source=asset.source,
        default_output_len=DEFAULT_OUTPUT_LEN,
    )
    return ask_all(request, tokenizer, asked)


def read_gsm8k(path: Path) -> tuple[Question, ...]:
    """Questions in file order: published JSON lines or parquet, or evaluation requests that hold them in ``doc``."""
    questions = []
    for number, record in read_records(path):
        inner = question_record(record)
        where = f"{path}:{number}"
        questions.append(
            Question(
                id=f"{number - 1}",
                text=text_field(inner, "question", where),
                category="math",
                reference=text_field(inner, "answer", where),
            )
        )
    return tuple(questions)
