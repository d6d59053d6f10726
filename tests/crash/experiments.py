"""The commands that are killed, on the toy model, and how each goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from crash.stored import Request

TOY = (
    "--load-format dummy --model toy --dtype float32 --device cpu --dataset-name random --random-input-len 12 "
    "--random-output-len 24 --num-prompts 6 --warmup-max-s 0.02 --max-model-len 64"
).split()

CERTIFIED = (  # takes no lengths of prompts: 1,024 tokens each
    "--load-format dummy --model toy --dtype bfloat16 --device cpu --dataset-name random --num-prompts 2 "
    "--output-len 24 --max-model-len 1100"
).split()


Stored = Mapping[Request, int]


def everything(stored: Stored) -> Stored:
    return stored


def whole_pairs(stored: Stored) -> Stored:
    """Sides are compared within a pair, so that one whose other side is missing is measured again, by design."""
    arms = {arm for _, arm, _, _ in stored}
    sides = {(repeat, arm) for _, arm, repeat, _ in stored}
    return {one: end for one, end in stored.items() if len(arms) > 1 and {(one[2], arm) for arm in arms} <= sides}


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """`start`: words, given the folder. `go_on`: words, given the directory that the command has made. `codes`: exit
    codes of a whole run: a verdict may be against an arm. `kept`: what must never change, of what is stored."""

    start: Callable[[Path], Sequence[str]]
    go_on: Callable[[Path], Sequence[str]]
    codes: Sequence[int] = (0,)
    kept: Callable[[Stored], Stored] = everything


def _into(folder: Path) -> list[str]:
    return ["--output-dir", str(folder / "runs")]


EXPERIMENTS = {
    "run": Experiment(
        start=lambda f: ["run", *TOY, "-s", "no-spec", "-s", "ngram:k=2", "--num-repeats", "3", *_into(f)],
        go_on=lambda path: ["run", "--resume", str(path)],
    ),
    "sweep": Experiment(
        start=lambda f: [
            *("sweep", *TOY, "-s", "ngram", "--num-drafts", "2", "--max-concurrency", "1,2", "--num-repeats", "2"),
            *_into(f),
        ],
        go_on=lambda path: ["sweep", "--resume", str(path)],
    ),
    "ab": Experiment(
        start=lambda f: ["ab", *TOY, "-A", "ngram:k=1", "-B", "ngram:k=2", "--in-process", "--blocks", "6", *_into(f)],
        go_on=lambda path: ["ab", "--resume", str(path)],
        codes=(0, 1, 4),
        kept=whole_pairs,
    ),
    "certify": Experiment(
        start=lambda f: ["certify", *CERTIFIED, "-s", "ngram:k=2", "--num-seeds", "50", *_into(f)],
        go_on=lambda path: ["certify", "--run", str(path)],
    ),
    "history add": Experiment(
        start=lambda f: ["history", "add", str(f / "runs"), str(f / "given" / "run")],
        go_on=lambda path: ["history", "add", str(path.parent.parent), str(path.parents[2] / "given" / "run")],
    ),
}
