"""This project's own gate (`make gate`): a small benchmark on the CPU, judged by two policies, and a site of it.

First counts and outputs of this code, in fp32 so that they do not vary; then times of the parent commit against this
one, in interleaved blocks of fresh processes, not judged if the machine did other work in more than one block; last the
tests marked `timed`, whose limits hold on an otherwise idle machine. Every command is printed. Leaves `site/`, the
example site: the pages of these runs and of those in benchmarks/, `card.png`, `comment.md` and JUnit files. Exit code:
that of the first gate that fails.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HISTORY, SITE = Path("runs/history"), Path("site")
LOAD = "--dataset-name sharegpt-held-out --dtype float32 --device cpu"
COUNTS = (
    f"run -s no-spec -s ngram -s eagle:k=4 -s eagle:k=4,drafter=unpadded {LOAD} "
    "--num-prompts 4 --output-len 24 --num-repeats 1 --warmup-max-s 1 --label gate"
)
TIMES = f"{LOAD} --num-prompts 2 --output-len 24 --warmup-max-s 1 --blocks 7 --min-effect 10% --label gate-times"
PARENT = "-A ref:HEAD~1 -B ref:HEAD -s eagle:k=4"
LOCAL = "-A ref:HEAD -s eagle:k=4"
SAME = "-A eagle:k=4 -B eagle:k=4"
TIMED = "pytest.mark.timed"
_USAGE, _INVALID, _NOT_COMPARABLE, _INTERRUPTED = 2, 4, 5, 130
_LEAST_BLOCKS = 6


@dataclass(frozen=True, kw_only=True)
class Done:
    """A finished command: `run`, the run directory that it printed; `said`, the end of its stderr."""

    code: int
    run: str | None
    said: str


@dataclass(frozen=True, kw_only=True)
class Gate:
    """`specbench`, `pytest` and `site`: the first words of the commands. `root`: the checkout, where everything
    runs."""

    specbench: Sequence[str]
    pytest: Sequence[str]
    site: Sequence[str]
    root: Path = ROOT

    def timed_tests(self) -> int:
        """Runs the tests that a busy machine would fail; their exit code. Only files that name the marker are read:
        tests/conftest.py makes sure that no other file has such tests."""
        tests = (path.relative_to(self.root) for path in (self.root / "tests").rglob("test_*.py"))
        files = sorted(str(path) for path in tests if TIMED in (self.root / path).read_text(encoding="utf-8"))
        print(f"\n$ python -m pytest -q -m timed {shlex.join(files)}", flush=True)
        return subprocess.run([*self.pytest, "-q", "-m", "timed", *files], cwd=self.root).returncode

    def build_site(self) -> int:
        """Builds the example site; the exit code."""
        print(f"\n$ python benchmarks/example_site.py {HISTORY} -o {SITE}", flush=True)
        return subprocess.run([*self.site, str(HISTORY), "-o", str(SITE)], cwd=self.root).returncode

    def __call__(self, words: str | Sequence[str]) -> Done:
        """Runs `specbench WORDS` and forwards its output."""
        words = shlex.split(words) if isinstance(words, str) else list(words)
        print(f"\n$ {shlex.join(['specbench', *words])}", flush=True)
        started, said, run = time.monotonic(), "", None
        in_order = {**os.environ, "PYTHONUNBUFFERED": "1"}  # else standard output comes after all errors
        with subprocess.Popen(
            [*self.specbench, *words],
            cwd=self.root,
            env=in_order,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                print(line, end="", flush=True)
                run = line.removeprefix("run directory: ").strip() if line.startswith("run directory: ") else run
                said = line.strip("\u2502 \n") if any(c.isalnum() for c in line) else said
        print(f"({time.monotonic() - started:.0f} s, exit code {process.returncode})", flush=True)
        if process.returncode in (_INTERRUPTED, -2):
            raise KeyboardInterrupt
        return Done(code=process.returncode, run=run, said=said)

    def git(self, *words: str) -> str | None:
        """Git's output; None if it fails."""
        try:
            done = subprocess.run(["git", *words], cwd=self.root, capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            return None
        return done.stdout.strip()


def times(gate: Gate) -> Done:
    """The times of this code against the previous code; if that is impossible, against itself, with the reason."""
    sides, what = choose_sides(gate)
    print(f"\nTimes: {what}", flush=True)
    done = gate(f"ab {sides} {TIMES}")
    if sides == SAME or not (reason := why_before_cannot_run(gate.root, done)):
        return done
    print(
        f"\nTimes: the previous code cannot run this benchmark ({reason}): this code against itself (A/A)", flush=True
    )
    return gate(f"ab {SAME} {TIMES}")


def choose_sides(gate: Gate) -> tuple[str, str]:
    """Options of `specbench ab`, and what they compare."""
    if gate.git("rev-parse", "--verify", "--quiet", "HEAD^{commit}") is None:
        return SAME, "no git checkout: this code against itself (A/A)"
    if gate.git("status", "--porcelain", "--untracked-files=no"):
        return LOCAL, "local changes against their base commit"
    if gate.git("rev-parse", "--verify", "--quiet", "HEAD~1^{commit}") is None:
        return SAME, "no parent commit (the first one, or a shallow clone): this code against itself (A/A)"
    return PARENT, "the parent commit against this one"


def why_before_cannot_run(root: Path, done: Done) -> str:
    """Empty if both sides ran, or if this code is the one that did not."""
    if done.code in (_USAGE, _NOT_COMPARABLE):
        return "" if re.search(r"\bB: ", done.said) else done.said
    if done.code != _INVALID or done.run is None:
        return ""
    blocks = json.loads((root / done.run / "ab.json").read_text(encoding="utf-8"))["blocks"]
    failed = [{reason.partition(":")[0] for reason in block["reasons"]} for block in blocks]
    return blocks[0]["reasons"][0] if blocks and all(sides == {"A"} for sides in failed) else ""


def other_work(root: Path, done: Done) -> str:
    """What else the machine did during blocks that ran on both sides, if too few other blocks are left to judge."""
    if done.code != _INVALID or done.run is None:
        return ""
    blocks = json.loads((root / done.run / "ab.json").read_text(encoding="utf-8"))["blocks"]
    disturbed = [block["reasons"][0] for block in blocks if block["measured"] and block["reasons"]]
    return disturbed[0] if len(blocks) - len(disturbed) < _LEAST_BLOCKS <= len(blocks) else ""


def main(gate: Gate) -> int:
    counted = gate(COUNTS)
    timed = times(gate)
    if counted.run is None or timed.run is None:
        return counted.code if counted.run is None else timed.code  # printed above; there is nothing to judge
    runs = {"counts": counted.run, "times": timed.run}
    if work := other_work(gate.root, timed):
        print(f"\nTimes: not judged, the machine did other work in too many blocks ({work})", flush=True)
        del runs["times"]
    codes = [gate(["history", "add", str(HISTORY), *runs.values()]).code]
    codes += [gate.build_site(), gate(["show", timed.run, "--card", f"{SITE}/card.png"]).code]
    codes += [judge(gate, run, name) for name, run in runs.items()]
    codes.append(gate.timed_tests())
    parts = [gate.root / SITE / f"comment-{name}.md" for name in ("counts", "times")]
    whole = "\n".join(part.read_text(encoding="utf-8") for part in parts if part.is_file())
    (gate.root / SITE / "comment.md").write_text(whole, encoding="utf-8")
    return next((code for code in [*codes[3:], *codes[:3]] if code), 0)


def judge(gate: Gate, run: str, name: str) -> int:
    files = f"--junit {SITE}/gate-{name}.xml --comment {SITE}/comment-{name}.md"
    github = "--github" if os.environ.get("GITHUB_ACTIONS") else ""
    return gate(f"gate {shlex.quote(run)} --policy .ci/{name}.toml {files} {github}").code


if __name__ == "__main__":
    try:
        specbench = [str(Path(sys.executable).with_name("specbench"))]
        site = [sys.executable, str(ROOT / "benchmarks" / "example_site.py")]
        sys.exit(main(Gate(specbench=specbench, pytest=[sys.executable, "-m", "pytest"], site=site)))
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
