"""Coverage-guided fuzzing of all targets in one process: `make fuzz SECONDS=60 SEED=1`.

An input is the number of a target and what it reads. Findings do not end the search: each kind is printed once and
again at the end, its input kept in FOUND; exit code 1 if there were any. What is mended moves to corpus/TARGET/, where
the tests read it.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import sys
import time
import traceback
from collections import Counter
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import atheris
import psutil

with atheris.instrument_imports(include=["specbench"]):
    from fuzz.contained import Hang, Watch
    from fuzz.targets import Trial, all_targets, temporary

    TARGETS = all_targets()  # imports the readers: what is imported later is not guided

import torch

CORPUS, FOUND = Path(__file__).with_name("corpus"), Path("fuzz-found")


class Search:
    """What has been tried and found."""

    def __init__(self, work: TemporaryDirectory[str], names: list[str], seconds: float):
        watch, self._work, folder = Watch(), work, Path(work.name)
        self.trials: dict[str, Trial] = {}
        for name in names or TARGETS:
            (folder / name).mkdir()
            self.trials[name] = Trial(TARGETS[name], folder / name, watch)
        self.names = list(self.trials)
        self.tries, self.accepted = Counter[str](), Counter[str]()
        self.found: dict[tuple[str, ...], str] = {}
        self._end = time.monotonic() + seconds

    def inputs(self) -> Path:
        """Where the first inputs are: seeds, and what was found before."""
        folder = Path(self._work.name) / "inputs"
        folder.mkdir()
        for number, (name, trial) in enumerate(self.trials.items()):
            old = (file.read_bytes() for file in (CORPUS / name).glob("*"))
            for data in (*trial.seeds, *old):
                whole = bytes([number]) + data
                (folder / hashlib.sha1(whole).hexdigest()).write_bytes(whole)
        return folder

    def mutate(self, data: bytes, max_size: int, seed: int) -> bytes:
        """By the target's own form, or as libFuzzer does. Each target has its turn, whatever else covers more."""
        random = Random(seed)
        if random.randrange(4) == 0 and data:
            return data[:1] + atheris.Mutate(data[1:], max_size - 1)
        number = random.randrange(len(self.names))
        if not data or data[0] % len(self.names) != number:
            data = bytes([number]) + random.choice(self.trials[self.names[number]].seeds)
        trial = self.trials[self.names[number]]
        return data[:1] + trial.target.mutate(data[1:], random)[: max_size - 1]

    def one(self, data: bytes) -> None:
        if time.monotonic() > self._end:
            self.end()
        name = self.names[data[0] % len(self.names)] if data else self.names[0]
        self.tries[name] += 1
        try:
            with contextlib.redirect_stderr(io.StringIO()):
                self.accepted[name] += self.trials[name](data[1:])
        except (Exception, Hang) as error:
            self._note(name, data[1:], error)

    def _note(self, name: str, data: bytes, error: BaseException) -> None:
        frames = traceback.extract_tb(error.__traceback__)
        own = [f for f in frames if "/specbench/" in f.filename] or frames
        kind = (name, type(error).__name__, f"{Path(own[-1].filename).name}:{own[-1].lineno}")
        if kind in self.found:
            return
        FOUND.mkdir(exist_ok=True)
        kept = FOUND / f"{name}-{hashlib.sha1(data).hexdigest()[:10]}"
        kept.write_bytes(data)
        self.found[kind] = f"FOUND {' '.join(kind)}: {str(error)[:300]}\n  input: {kept}"
        print(f"\n{self.found[kind]}", flush=True)

    def end(self) -> None:
        for name in self.names:
            print(f"{name:20} {self.tries[name]:7} tries, {self.accepted[name]} accepted")
        for fault in self.found.values():
            print(fault)
        left = psutil.Process().children(recursive=True)
        print(f"{sum(self.tries.values())} tries, {len(self.found)} kinds of faults, {len(left)} processes left")
        self._work.cleanup()
        sys.stdout.flush()
        os._exit(1 if self.found or left else 0)  # libFuzzer has no end that is not its own


def main() -> None:
    seconds, seed, *names = sys.argv[1:]
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    search = Search(temporary(), names, float(seconds))
    # libFuzzer's own clock would take the signal that ends a hang.
    options = [
        f"-seed={int(seed)}",
        "-max_len=400000",
        "-timeout=0",
        "-rss_limit_mb=0",
        "-verbosity=0",
        "-report_slow_units=100",
    ]
    atheris.Setup(["fuzz", *options, str(search.inputs())], search.one, custom_mutator=search.mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
