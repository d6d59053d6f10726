"""Questions of several turns, as MT-Bench writes them: its first turns, and its second.

A second turn continues a conversation, so it needs an answer to the first: that of a stored run, the same for every
arm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from specbench.workloads.assets.cache import file_sha256
from specbench.workloads.assets.resolve import resolve
from specbench.workloads.base import Tokenizer, Workload, WorkloadRequest
from specbench.workloads.guarded import read_parquet
from specbench.workloads.questions import Question, ask_all
from specbench.workloads.records import read_records, without_nulls

OUTPUT_LEN = 1024  # as FastChat and Spec-Bench generate them
_ANSWERING_ARM = "no-spec"


def load_mt_bench(request: WorkloadRequest, tokenizer: Tokenizer) -> Workload:
    """MT-Bench's first turns; 1,024 output tokens unless ``output_len`` says otherwise, as FastChat generates them."""
    asset = resolve(request.path or "mt-bench")
    title = "MT-Bench: the first turn of each question"
    return ask_all(request, tokenizer, read_turns(asset.path), title=title, source=asset.source, output_len=OUTPUT_LEN)


def load_second_turns(request: WorkloadRequest, tokenizer: Tokenizer) -> Workload:
    """MT-Bench's second turns, after the answers that ``no-spec`` gave to the first ones in a stored run of mt-bench.

    Raises ValueError for a directory without such answers.
    """
    asset = resolve("mt-bench")
    if not request.path:
        raise ValueError(f"workload {request.name} needs a stored run of mt-bench: --dataset-path runs/DIRECTORY")
    file = Path(request.path).expanduser() / "requests.parquet"
    if not file.is_file():
        raise ValueError(f"dataset_path: {request.path}: has no {file.name}; give the directory of a run of mt-bench")
    answers = {name: tokenizer.decode(list(ids)) for name, ids in read_answers(file).items()}
    questions = [
        Question(
            id=f"{name}:2",
            text=turns[1],
            category=category,
            before=({"role": "user", "content": turns[0]}, {"role": "assistant", "content": answers[name]}),
        )
        for name, category, turns in read_conversations(asset.path)
        if name in answers and len(turns) > 1
    ]
    return ask_all(
        request,
        tokenizer,
        questions,
        title=f"MT-Bench: the second turn of each question that {_ANSWERING_ARM} answered in {file.parent.name}",
        source=f"{asset.source}; answers: file:{file} sha256:{file_sha256(file)}",
        output_len=OUTPUT_LEN,
        asked="behind the first turn and its answer",
    )


def read_answers(file: Path) -> Mapping[str, Sequence[int]]:
    """Token ids by prompt, from the first repeat of ``no-spec``. ValueError if the run has none."""
    table = read_parquet(file)
    names = ("arm", "repeat", "prompt_id", "output_token_ids")
    if missing := [name for name in names if name not in table.column_names]:
        raise ValueError(f"{file}: has no column {', '.join(missing)}; give a run of this version")
    found: dict[str, Sequence[int]] = {}
    for row in table.select(names).to_pylist():
        if row["arm"] == _ANSWERING_ARM and row["repeat"] == 0 and row["output_token_ids"]:
            found.setdefault(str(row["prompt_id"]), row["output_token_ids"])
    if not found:
        raise ValueError(f"{file}: holds no answers of an arm {_ANSWERING_ARM}; give a run of mt-bench with that arm")
    return found


def read_turns(path: Path) -> list[Question]:
    """First turns of a file in the format of MT-Bench and Spec-Bench: ``question_id``, ``category``, ``turns``."""
    return [Question(id=name, text=turns[0], category=category) for name, category, turns in read_conversations(path)]


def read_conversations(path: Path) -> list[tuple[str, str, list[str]]]:
    """(id, category, turns) of each question, in file order."""
    found = []
    lines_of_ids: dict[str, int] = {}
    for number, record in ((at, without_nulls(each)) for at, each in read_records(path)):
        turns = record.get("turns")
        if not isinstance(turns, list) or not turns or not isinstance(turns[0], str):
            raise ValueError(f"{path}:{number}: 'turns' is {turns!r:.60}; allowed: a list that begins with a string")
        texts = [turn for turn in turns if isinstance(turn, str)]
        name = str(record.get("question_id", number))
        if (first := lines_of_ids.setdefault(name, number)) != number:
            raise ValueError(f"{path}:{number}: question_id {name!r} was used on line {first}; ids must differ")
        found.append((name, str(record.get("category", "")), texts))
    return found
