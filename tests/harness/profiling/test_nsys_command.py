"""The nsys command line, its version, and what is made of what it leaves."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from specbench.harness.profiling.nsys_command import exported, find_nsys, nsys_argv, parse_version
from specbench.harness.profiling.profile_run import Tracing
from specbench.harness.profiling.rules import PhaseRules


def pick_nsys(tool: str, device: str) -> str | None:
    return Tracing(tool=tool, num_rounds=5, rules=PhaseRules.shipped(), twin=False).nsys(device)


def _nsys_that_prints(folder: Path, text: str) -> None:
    script = folder / "nsys"
    script.write_text(f"#!/bin/sh\necho '{text}'\n")
    script.chmod(0o755)


@pytest.fixture
def on_path(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/usr/bin{os.pathsep}/bin")
    return tmp_path


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVIDIA Nsight Systems version 2025.3.1.90-253135822126v0", "2025.3.1"),
        ("NVIDIA Nsight Systems version 2022.1.3.3-1c7b5f7", "2022.1.3"),
        ("NVIDIA Nsight Systems version 2026.2", "2026.2"),
    ],
)
def test_versions_are_read(text, version):
    assert parse_version(text) == version


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("NVIDIA Nsight Systems version 2021.5.2.53", "2021.5.2 is too old; install 2022.1 or later"),
        ("nsys: error while loading shared libraries: libdw.so.1", "names no version"),
        ("", "names no version"),
    ],
)
def test_versions_that_cannot_be_used_are_refused(text, what):
    with pytest.raises(ValueError, match=what):
        parse_version(text)


def test_the_one_on_the_path_is_found(on_path):
    _nsys_that_prints(on_path, "NVIDIA Nsight Systems version 2025.3.1.90")
    assert find_nsys() == str(on_path / "nsys")


def test_without_nsys_auto_is_torch_and_nsys_is_refused(on_path):
    assert find_nsys() is None and pick_nsys("auto", "cuda") is None
    with pytest.raises(ValueError, match="nsys is not on the PATH; install NVIDIA Nsight Systems .* --tool torch"):
        pick_nsys("nsys", "cuda")


def test_without_a_gpu_nsys_has_nothing_to_trace(on_path):
    _nsys_that_prints(on_path, "NVIDIA Nsight Systems version 2025.3.1.90")
    assert pick_nsys("auto", "cpu") is None and pick_nsys("torch", "cuda") is None
    assert pick_nsys("auto", "cuda") == pick_nsys("nsys", "cuda") == find_nsys()
    with pytest.raises(ValueError, match="the device is cpu; use --tool torch"):
        pick_nsys("nsys", "cpu")
    with pytest.raises(ValueError, match="'perf' is not known; allowed: auto, nsys, torch"):
        pick_nsys("perf", "cuda")


def test_the_command_traces_nodes_in_the_capture_range_and_lets_the_program_end():
    argv = nsys_argv("/opt/nsys", Path("out/trace"), ["python", "-m", "x", "job.json"])
    assert argv[:2] == ["/opt/nsys", "profile"] and argv[-4:] == ["python", "-m", "x", "job.json"]
    assert {
        "--trace=cuda,nvtx",
        "--sample=none",
        "--cpuctxsw=none",
        "--cuda-graph-trace=node",
        "--capture-range=cudaProfilerApi",
        "--capture-range-end=stop",
        "--export=sqlite",
        "--output=out/trace",
    } <= set(argv[2:-4])


def test_the_export_is_found_beside_the_report(tmp_path):
    (tmp_path / "trace.sqlite").write_bytes(b"x")
    assert exported(tmp_path / "trace", "") == tmp_path / "trace.sqlite"


@pytest.mark.parametrize(
    ("left", "what"),
    [
        ("trace.qdstrm", "importer is missing or failed.*install the whole of Nsight Systems"),
        ("trace.nsys-rep", "wrote a report, but could not export it"),
        (None, "wrote no report; did it have the permission"),
    ],
)
def test_what_nsys_left_instead_says_what_is_missing(tmp_path, left, what):
    if left:
        (tmp_path / left).write_bytes(b"x")
    with pytest.raises(RuntimeError, match=f"{what}.*said: a | b"):
        exported(tmp_path / "trace", "a\n\n b\n")
