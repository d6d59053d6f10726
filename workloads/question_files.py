"""The user's question files: Spec-Bench's and SPEED-Bench's, in MT-Bench's format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from specbench.workloads.assets.cache import file_sha256
from specbench.workloads.base import Tokenizer, Workload, WorkloadRequest, file_of
from specbench.workloads.questions import Question, ask_all
from specbench.workloads.turns import OUTPUT_LEN, read_turns

_PLACEHOLDER = "should be fetched from the source"  # SPEED-Bench's, where a licence keeps the text away
_MOST_ALIKE = 2


def load_question_file(request: WorkloadRequest, tokenizer: Tokenizer) -> Workload:
    """The first turns of the user's file of Spec-Bench or SPEED-Bench.

    Raises ValueError without a file, and for one whose texts are placeholders.
    """
    path = file_of(request)
    questions = read_turns(path)
    check_texts(questions, path)
    title = f"{request.name} ({path.name}): the first turn of each question"
    source = f"file:{path} sha256:{file_sha256(path)}"
    return ask_all(request, tokenizer, questions, title=title, source=source, output_len=OUTPUT_LEN)


def check_texts(questions: Sequence[Question], path: Path) -> None:
    """ValueError for placeholder texts: such prompts do not measure real questions."""
    text, times = next(iter(Counter(q.text for q in questions).most_common(1)), ("", 0))
    placeholder = next((q for q in questions if _PLACEHOLDER in q.text.lower()), None)
    if placeholder is not None or times > _MOST_ALIKE:
        where = f"question {placeholder.id} is" if placeholder else f"{times} questions are"
        shown = placeholder.text if placeholder else text
        raise ValueError(
            f"{path}: {where} {shown!r:.60}, not a question; run the data set's own script to fill in the texts"
        )
