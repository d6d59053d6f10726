"""verdicts.md from the experiments in runs/: `PYTHONPATH=.ns python benchmarks/verdicts.py > benchmarks/verdicts.md`.

Every experiment is judged again, by the code at hand, from its raw tables; `ab.json` and `ab.md` beside them are
written anew. `specbench report benchmarks/runs/* -o site/` shows the same as pages.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from specbench.harness.judge.ab_verdict import judge
from specbench.harness.judge.noise import noise_floor
from specbench.harness.store.codec import read_document
from specbench.harness.store.crossover_file import RECORD_FILE, SCHEMA, Crossover
from specbench.harness.store.files import write_json
from specbench.harness.store.run_directory import RunDirectory
from specbench.reports.document import Table
from specbench.reports.experiments.crossover_table import crossover_tables, display_names
from specbench.reports.experiments.noise_table import noise_table
from specbench.reports.experiments.verdict_table import verdict_table
from specbench.reports.markdown import markdown_result
from specbench.reports.run.roofline_table import roofline_tables

RUNS = Path(__file__).parent / "runs"
TITLES = {"h200": "One NVIDIA H200", "cpu": "Two cores of a CPU"}


def page() -> Iterator[str]:
    yield HEAD
    said: set[str] = set()
    for machine, title in TITLES.items():
        yield f"## {title}\n"
        for path in sorted((RUNS / machine).iterdir()):
            for part in _sweep(path) if (path / "sweep.json").exists() else _experiment(path):
                yield part if isinstance(part, str) else _once(part, said)


def _once(table: Table, said: set[str]) -> str:
    """As a section of the page, without the notes that stand under an earlier table."""
    notes = tuple(note for note in table.notes if note not in said)
    said.update(notes)
    return "#" + markdown_result(replace(table, notes=notes))


def _experiment(path: Path) -> Iterator[str | Table]:
    directory = RunDirectory.open(path)
    record, run = judge(directory), directory.record
    table = verdict_table(record)
    write_json(path / "ab.json", record)
    (path / "ab.md").write_text(markdown_result(table), encoding="utf-8")
    yield _command(run.command, path, str(run.git.sha if run.git else None)[:9])
    yield table
    if (path / "noise.json").exists():
        floor = noise_floor(record, run)
        write_json(path / "noise.json", floor)
        yield noise_table(floor)


def _sweep(path: Path) -> Iterator[str | Table]:
    record = read_document(path / RECORD_FILE, Crossover, SCHEMA)
    first = RunDirectory.open(min((path / "runs").iterdir())).record
    yield _command(record.command, path, str(first.git.sha if first.git else None)[:9])
    yield from crossover_tables(record)
    yield from roofline_tables(record, display_names(record))


def _command(command: str, path: Path, commit: str) -> str:
    """As typed, less what only names the output; with the commit that it ran at."""
    words = command.split()
    for option in ("--output-dir", "--label"):
        if option in words:
            at = words.index(option)
            del words[at : at + 2]
    typed = " ".join(word for word in words if word != "-q")
    place = path.relative_to(RUNS.parent)
    return f"    {typed}\n\nAt commit {commit}; raw values: [{place}]({place}).\n"


HEAD = """# Verdicts on real machines

Made by `verdicts.py` from the raw tables in `runs/`; `specbench report benchmarks/runs/* -o site/` draws the same.
Shared machines, 2026-11-21: compare within an experiment, not across. What the tables below say:

* `state_update=fused` against `torch` on the H200 (vLLM PR 20078's change): steps 22 % shorter [19.9, 24.5] where they
  are launched piece by piece, 18.6 % where they are graphs; all answers the same. On the CPU ten blocks cannot tell
  them apart.
* K = 4 against K = 2 on the H200: steps 9 % longer, 23 % more tokens a step, TPOT 11.2 % less: mixed, and it pays. On
  the CPU steps are 12 % longer for 20 % more tokens; TPOT is inconclusive. The first of the two CPU experiments ran
  beside other work of ours, and is kept because it was measured.
* A/A of the piecewise arm on the H200, a process a block: 12 % from process to process (two of twenty took 10 ms where
  the others took 7), so that ten blocks see 18 % and more. Rounds that are graphs, alternating in one process, repeat
  to 0.05 %. Host-bound rounds are as noisy as their host: a claim of 2 % about them takes hundreds of blocks.
* Llama-3.1-8B's shape, acceptance at the rates measured with ShareGPT: throughput of `naive-eagle` falls below
  `no-spec`'s at concurrency 95 with K = 4 [80, 124], 122 with K = 2 [85, 160], 148 with K = 1 [111, 179]. 256
  prompts are few for 256 places, and three blocks hold little drift: read the right end with that.
"""

if __name__ == "__main__":
    print("\n".join(page()), end="")
