"""README.md of a head: everything another person needs to make it again, and what it reached.

Written from files beside it: `training.json` and `training_log.csv` by the training, `acceptance.json` by the check.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict

from specbench.workloads.assets.cache import atomic_file
from specbench.workloads.json_values import Json

from .evaluate import Acceptance, HeadEvaluation

TRAINING, ACCEPTANCE, LOG, CARD = "training.json", "acceptance.json", "training_log.csv", "README.md"
_CURVE_ROWS = 12


class HeadSizes(TypedDict):
    hidden_size: int
    intermediate_size: int
    draft_vocab_size: int
    aux_layers: list[int]
    coverage: float


class Generated(TypedDict):
    exclude: list[str]
    greedy_share: float
    temperature_low: float
    temperature_high: float
    max_response_tokens: int
    max_turns: int
    whole_loop_share: float


class Run(TypedDict):
    steps: int
    num_positions: int
    seconds: float
    device: str


class TrainingRecord(TypedDict, total=False):
    """What the card reads of training.json; `notes` are a person's."""

    command: str
    licence: str
    target: Mapping[str, str]
    head: HeadSizes
    data: Sequence[Mapping[str, str | int]]
    selection: Mapping[str, int]
    generate: Generated
    responses: Mapping[str, float]
    train: Mapping[str, float]
    run: Run
    notes: Sequence[str]


def write_json(path: Path, value: Json) -> None:
    with atomic_file(path) as file:
        file.write(json.dumps(value, indent=2).encode() + b"\n")


def write_model_card(head_dir: Path) -> None:
    """Raises ValueError where the folder was not made by `train-head`."""
    path = head_dir / TRAINING
    if not path.is_file():
        raise ValueError(f"{head_dir} has no {TRAINING}; only a head made by train-head has a card to write")
    training: TrainingRecord = json.loads(path.read_text())
    found = head_dir / ACCEPTANCE
    evaluations = [HeadEvaluation.of(raw) for raw in json.loads(found.read_text())] if found.is_file() else []
    log = head_dir / LOG
    parts = [
        _front(training),
        _use(training),
        _acceptance(evaluations),
        _data(training),
        _training(training),
        _notes(training),
        _curve(log) if log.is_file() else "",
        _licence(training),
    ]
    with atomic_file(head_dir / CARD) as file:
        file.write("\n\n".join(part for part in parts if part).encode() + b"\n")


def _front(t: TrainingRecord) -> str:
    return (
        f"---\nbase_model: {t['target']['hub_name']}\nlicense: {t['licence']}\n"
        "tags: [eagle3, speculative-decoding]\n---\n\n"
        f"# EAGLE-3 head for {t['target']['name']}\n\n"
        "A draft head for speculative decoding in the published EAGLE-3 format: features of the states entering layers "
        f"{', '.join(map(str, t['head']['aux_layers']))}, one decoder layer of width {t['head']['hidden_size']} "
        f"(intermediate size {t['head']['intermediate_size']}), draft vocabulary of {t['head']['draft_vocab_size']:,} "
        f"tokens ({t['head']['coverage']:.2%} of the target's response tokens). It drafts greedily and the target "
        "verifies, so outputs are the target's own."
    )


def _use(t: TrainingRecord) -> str:
    return (
        "## Use\n\n"
        "```\n"
        f"specbench run --model {t['target']['name']} -s no-spec -s eagle:k=4,head=DIR\n"
        f"specbench check-head DIR --target {t['target']['name']}\n"
        "```\n\n"
        'vLLM: `--speculative-config \'{"method": "eagle3", "model": "DIR", "num_speculative_tokens": 4}\'`.'
    )


def _acceptance(evaluations: Sequence[HeadEvaluation]) -> str:
    if not evaluations:
        return "## Acceptance\n\nNot measured yet: `specbench check-head DIR --evaluate 200 --write`."
    lines = [
        "## Acceptance",
        "",
        "Chain through specbench's engine, prompts that were never trained on; length = accepted drafts + 1 a round, "
        "with 95 % bootstrap interval over prompts. A loop is an output with an 8-gram four times or more.",
        "",
        "| workload | K | temperature | prompts | acceptance length | loops | without loops | conditional rates |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    lines += [_evaluation_row(e) for e in evaluations]
    rules = sorted({_rule(e) for e in evaluations})
    return "\n".join([*lines, "", *rules])


def _rule(e: HeadEvaluation) -> str:
    prompts = f"{e.workload}, {e.all.num_prompts} prompts"
    return f"* {prompts}: {e.rule} (sha256 {e.workload_sha256[:16]})"


def _evaluation_row(e: HeadEvaluation) -> str:
    rates = " ".join("-" if r is None else f"{r:.3f}" for r in e.all.conditional)
    loops = f"{e.num_loops} of {e.all.num_prompts}"
    lengths = f"{_length(e.all)} | {loops} | {_length(e.without_loops)}"
    return f"| {e.workload} | {e.k} | {e.temperature} | {e.all.num_prompts} | {lengths} | {rates} |"


def _length(a: Acceptance | None) -> str:
    if a is None:
        return "-"
    interval = "" if a.low is None else f" ({a.low:.3f} to {a.high:.3f})"
    return f"{a.length:.3f}{interval}"


def _data(t: TrainingRecord) -> str:
    lines = [
        "## Data",
        "",
        "Responses are the target's own, drawn through specbench's engine "
        f"({t['responses']['greedy_share']:.0%} greedy, the rest at temperature {t['generate']['temperature_low']} to "
        f"{t['generate']['temperature_high']}), up to {t['generate']['max_response_tokens']} tokens a turn and "
        f"{t['generate']['max_turns']} turns.",
        "",
        "| prompts | source | sha256 | samples a conversation |",
        "| --- | --- | --- | --- |",
    ]
    lines += [f"| {d['name']} | {d['source']} | {d['sha256']} | {d['samples']} |" for d in t["data"]]
    r, s = t["responses"], t["selection"]
    lines += [
        "",
        f"{s['num_conversations']:,} conversations; left out: {s['num_held_out']:,} held out for evaluation, "
        f"{s['num_excluded']:,} that repeat an evaluation text ({', '.join(t['generate']['exclude']) or 'none'}), "
        f"{s['num_duplicates']:,} duplicates.",
        "",
        f"{r['num_sequences']:,} sequences, {r['num_response_tokens']:,} response tokens. {r['looped_share']:.1%} of "
        f"the sequences ended in a loop; {1 - t['generate']['whole_loop_share']:.0%} of these lost their tail "
        f"({r['num_cut_tokens']:,} tokens).",
    ]
    return "\n".join(lines)


def _training(t: TrainingRecord) -> str:
    run, c = t["run"], t["train"]
    return (
        "## Training\n\n"
        f"```\n{t['command']}\n```\n\n"
        f"{run['steps']:,} steps of up to {c['batch_tokens']:,} tokens, {run['num_positions'] / 1e6:.1f} M positions, "
        f"{run['seconds']:.0f} s on {run['device']}; {c['unroll']} unrolled steps weighted {c['decay']}^k, soft "
        f"targets, AdamW, peak learning rate {c['lr']:g}, cosine, seed {c['seed']}. Target: {t['target']['source']}, "
        f"sha256 {t['target']['sha256']}."
    )


def _notes(t: TrainingRecord) -> str:
    """What a person has added to training.json under `notes`: facts that no stage of a training knows."""
    return "\n".join(["## Notes", "", *(f"* {note}" for note in t["notes"])]) if t.get("notes") else ""


def _curve(log: Path) -> str:
    with log.open(newline="") as file:
        rows = list(csv.DictReader(file))
    step = max(1, len(rows) // _CURVE_ROWS)
    chosen = [*rows[::step][:_CURVE_ROWS], rows[-1]]
    names = [name for name in rows[0] if name.startswith("accuracy_")]
    lines = [
        "## Loss curve",
        "",
        "| step | seconds | loss | " + " | ".join(n.replace("_", " ") for n in names) + " |",
        "| --- " * (3 + len(names)) + "|",
    ]
    for row in chosen:
        rates = " | ".join(f"{float(row[n]):.3f}" for n in names)
        lines.append(f"| {row['step']} | {float(row['seconds']):.0f} | {float(row['loss']):.3f} | {rates} |")
    return "\n".join(lines)


def _licence(t: TrainingRecord) -> str:
    return (
        f"## Licence\n\n{t['licence']}, as the target. The prompts keep their own terms (ShareGPT: collected "
        "conversations, published without a clear licence; GSM8K: MIT); none of their text is in these weights' files."
    )
