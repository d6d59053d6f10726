"""The command for a paired comparison of two commits, which decides whether a suspect is a regression."""

from __future__ import annotations

import re
import shlex

from specbench.harness.store.run_record import RunRecord

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
# Options of `run` that say nothing of the load: the experiment names its sides and blocks itself.
_LEFT_OUT = ("-s", "--strategy", "--num-repeats", "--label", "--output-dir", "--accuracy", "--format", "-f")
_LEFT_OUT_FLAGS = ("--json", "--quiet", "-q", "--certify-graphs")
_OF_MANY_RUNS = ("--recipe", "--base", "--batch-sizes", "--resume")


def load_options(record: RunRecord) -> str:
    """The options of the run's own command that both sides need, as typed; empty where they cannot be told."""
    argv = record.argv
    words = argv[argv.index("run") + 1 :] if "run" in argv[:2] else []
    names = {word.partition("=")[0] for word in words}
    if names & set(_OF_MANY_RUNS):
        return ""
    kept, rest = [], iter(words)
    for word in rest:
        if word in _LEFT_OUT:
            next(rest, None)
        elif word not in _LEFT_OUT_FLAGS and word.partition("=")[0] not in _LEFT_OUT:
            kept.append(word)
    return shlex.join(kept)


def rerun_command(before: str, after: str, arm: str, options: str) -> str:
    """`specbench ab` of two commits, or why there is none: local changes and installed copies cannot be run again."""
    for commit in (before, after):
        if not _COMMIT.fullmatch(commit.rstrip("+")):
            return f"measuring again from a checkout: {commit} is not a commit"
        if commit.endswith("+"):
            return f"measuring again without local changes: {commit[:12]}+ cannot be checked out"
    sides = [shlex.quote(f"ref:{commit[:12]} {shlex.quote(arm)}") for commit in (before, after)]
    return " ".join(filter(None, [f"specbench ab -A {sides[0]} -B {sides[1]}", options]))
