"""`specbench profile import` of nsys files: exports and reports, and that nothing kept tells on the machine."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path

import pytest
from profiling.synthetic import spec_trace, write_nsys

from specbench.harness.profiling.profile_file import read_profile

SECRETS = (b"hunter2-in-argv", b"/home/alice")


@pytest.fixture
def export(tmp_path: Path) -> Path:
    return write_nsys(tmp_path / "report.sqlite", spec_trace())


def kept_bytes(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_an_export(cli, tmp_path, export):
    result = cli("profile", "import", export, "-o", tmp_path / "kept")
    assert result.exit_code == 0
    assert "Draft steps 1 to 2: 100% of 6 kernels each from a graph." in result.stdout
    assert "Program, from the trace: /usr/bin/python3 -m specbench.harness --api-key '[redacted]'" in result.stdout
    kept = kept_bytes(tmp_path / "kept")
    assert set(kept) == {
        "trace.sqlite",
        "run.json",
        "profile.json",
        "profile.html",
        "profile.md",
        "trace.perfetto.json",
    }
    for secret in SECRETS:
        assert secret in export.read_bytes()
        assert not [name for name, content in kept.items() if secret in content]
        assert secret.decode() not in result.stdout


def test_a_command_beside_that_of_the_trace_is_refused(cli, export):
    result = cli("profile", "import", export, "--command", "vllm serve m")
    assert result.exit_code == 2 and result.stderr.startswith(
        "specbench: error: command: report.sqlite contains its own, "
    )


def test_a_kept_export_gives_the_same_figures(cli, tmp_path, export):
    cli("profile", "import", export, "-o", tmp_path / "kept")
    cli("profile", "import", tmp_path / "kept" / "trace.sqlite", "-o", tmp_path / "again")
    first, again = (read_profile(tmp_path / name) for name in ("kept", "again"))
    assert (first.phases, first.graph, first.idle, first.syncs) == (again.phases, again.graph, again.idle, again.syncs)


def test_a_report_is_exported_first(cli, tmp_path, export, monkeypatch):
    """With an nsys that copies a prepared export to where it is told."""
    tools = tmp_path / "tools"
    tools.mkdir()
    nsys = tools / "nsys"
    script = f"import shutil, sys; shutil.copy({str(export)!r}, sys.argv[sys.argv.index('-o') + 1])"
    nsys.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c {shlex.quote(script)} "$@"\n')
    nsys.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    report = tmp_path / "server.nsys-rep"
    report.write_bytes(b"an nsys report")
    result = cli("profile", "import", report, "-o", tmp_path / "kept", "-f", "json")
    assert result.exit_code == 0 and json.loads(result.stdout)["source"]["file"] == "server.nsys-rep"
    kept = kept_bytes(tmp_path / "kept")
    assert kept["trace.sqlite"].startswith(b"SQLite format 3")
    assert not [name for name, content in kept.items() if SECRETS[0] in content]


def test_a_report_without_nsys(cli, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    report = tmp_path / "server.nsys-rep"
    report.write_bytes(b"an nsys report")
    result = cli("profile", "import", report)
    assert result.exit_code == 2 and "nsys is not on the PATH" in result.stderr and len(result.stderr.splitlines()) == 1


def test_a_truncated_export(cli, tmp_path, export):
    cut = tmp_path / "cut.sqlite"
    cut.write_bytes(export.read_bytes()[:20_000])
    result = cli("profile", "import", cut, "-o", tmp_path / "kept")
    assert result.exit_code == 2 and "cut.sqlite" in result.stderr and len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "kept").exists()
