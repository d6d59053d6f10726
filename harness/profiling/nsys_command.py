"""The nsys command: its location, whether its version is supported, its arguments, and the trace that it wrote."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

MIN_VERSION = (2022, 1)  # --cuda-graph-trace=node together with --capture-range-end
_VERSION = re.compile(r"\b(20\d\d)\.(\d+)(?:\.(\d+))?")
_LINES_SHOWN = 12


def find_nsys() -> str | None:
    """The nsys on the PATH; None if there is none. ValueError for one that is too old or reports no version."""
    path = shutil.which("nsys")
    if path is not None:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
        parse_version(done.stdout + done.stderr)
    return path


def parse_version(text: str) -> str:
    """The version from the output of `nsys --version`; ValueError if it cannot be read, or is older than
    MIN_VERSION."""
    version = _VERSION.search(text)
    if version is None:
        raise ValueError(f"tool: nsys --version said {' '.join(text.split())!r}, which names no version; reinstall it")
    if (int(version[1]), int(version[2])) < MIN_VERSION:
        oldest = ".".join(map(str, MIN_VERSION))
        raise ValueError(f"tool: nsys {version[0]} is too old; install {oldest} or later, or use --tool torch")
    return version[0]


def nsys_argv(nsys: str, output: Path | str, program: Sequence[str]) -> list[str]:
    """The whole command. `output`: the report's path without its suffix.

    Only the capture range is traced, every node of a graph is a row, and the CPU is not sampled. The program continues
    after the range (stop, not stop-shutdown), so that it ends by itself and nsys returns its exit code.
    """
    return [
        nsys,
        "profile",
        "--trace=cuda,nvtx",
        "--sample=none",
        "--cpuctxsw=none",
        "--cuda-graph-trace=node",
        "--capture-range=cudaProfilerApi",
        "--capture-range-end=stop",
        "--force-overwrite=true",
        f"--output={output}",
        "--export=sqlite",
        *program,
    ]


def exported(output: Path, log: str) -> Path:
    """The sqlite file that nsys wrote next to its report. RuntimeError says what is there instead, and what to do."""
    sqlite = output.with_name(output.name + ".sqlite")
    if sqlite.is_file():
        return sqlite
    report = output.with_name(output.name + ".nsys-rep")
    if report.is_file():
        why = "it wrote a report, but could not export it to sqlite"
    elif output.with_name(output.name + ".qdstrm").is_file():
        why = (
            "its importer is missing or failed: it wrote a raw .qdstrm and no report; install the whole of Nsight "
            "Systems (host and target parts)"
        )
    else:
        why = "it wrote no report; did it have the permission to profile?"
    raise RuntimeError(f"nsys left no trace: {why}. It said: {tail(log)}. Or use --tool torch")


def tail(log: str) -> str:
    """The last lines of a program's output."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return " | ".join(lines[-_LINES_SHOWN:]) or "(nothing)"
