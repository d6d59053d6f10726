"""One arm fails, or the disk does: what was measured stays, the rest goes on, and the exit code says it."""

from __future__ import annotations

import errno
import json
import re
from pathlib import Path

import pytest

from specbench.harness.engines.native import adapter as native
from specbench.harness.engines.native import build
from specbench.harness.engines.native.deployment import NativeDeployment
from specbench.harness.store.run_directory import RunDirectory

ARMS = ("-s", "no-spec", "-s", "ngram:k=2")


class KernelError(Exception):
    """Neither RuntimeError nor ValueError, as Triton's compilation errors are."""


@pytest.fixture
def ngram_breaks(monkeypatch):
    def measure(self, load, sink, whole=NativeDeployment.measure):
        if self.engine.strategy.name == "ngram":
            raise KernelError("invalid instruction\nat line 3")
        whole(self, load, sink)

    monkeypatch.setattr(NativeDeployment, "measure", measure)


def test_the_other_arms_go_on(cli, toy, only_run, ngram_breaks):
    result = cli(*toy, *ARMS, "--num-repeats", 2)
    assert result.exit_code == 1
    assert "ngram:k=2: failed: invalid instruction (traceback: " in result.stderr
    assert re.search(r"^\* ngram:k=2: .*failed: KernelError: invalid instruction at line 3$", result.stdout, re.M)
    run = only_run()
    assert run.done_blocks() == {("no-spec", 0), ("no-spec", 1)} and set(run.failed_blocks()) == {
        ("ngram:k=2", 0),
        ("ngram:k=2", 1),
    }
    assert run.record.status == "complete"
    assert "Traceback" in (run.path / "errors.log").read_text()


@pytest.mark.parametrize(
    ("stop", "code", "status"), [(ZeroDivisionError, 1, "failed"), (KeyboardInterrupt, 130, "interrupted")]
)
def test_a_certificate_does_not_complete_a_run_without_blocks(cli, toy, only_run, stop, code, status):
    def measure(*args):
        raise stop

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NativeDeployment, "measure", measure)
        assert cli(*toy, "-s", "ngram:k=2").exit_code == code
    before = only_run().record
    assert before.status == status and before.results is not None
    assert cli("certify", "--run", only_run().path, "--temperature", 0).exit_code == 0
    assert only_run().record == before


def test_json_with_a_failed_arm(cli, toy, ngram_breaks):
    result = cli(*toy, *ARMS, "--format", "json")
    report = json.loads(result.stdout)
    assert result.exit_code == 1 and [arm["status"] for arm in report["arms"]] == ["ok", "failed"]
    assert report["arms"][1]["error"] == "KernelError: invalid instruction\nat line 3"


def test_a_resumed_run_tries_failed_arms_again(cli, toy, only_run, ngram_breaks, monkeypatch):
    cli(*toy, *ARMS)
    monkeypatch.undo()
    result = cli("run", "--resume", only_run().path)
    assert result.exit_code == 0 and "no-spec: preparing" not in result.stderr
    assert only_run().failed_blocks() == {} and len(only_run().done_blocks()) == 2
    assert "failed:" not in result.stdout  # the footer quotes pytest's own command, which may name this file


def test_all_arms_fail(cli, toy, only_run, ngram_breaks):
    result = cli(*toy, "-s", "ngram")
    assert result.exit_code == 1 and "failed: KernelError" in result.stdout
    assert only_run().record.status == "failed"


def test_an_engine_that_memory_does_not_hold_is_a_row(cli, toy, only_run, monkeypatch):
    tried = []

    def build_engine(arm, config, target, memory, whole=build.build_engine):
        if arm.config.strategy == "ngram":
            tried.append(arm.config.label)
            raise RuntimeError("CUDA out of memory. Tried to allocate 9 GiB")
        return whole(arm, config, target, memory)

    monkeypatch.setattr(native, "build_engine", build_engine)
    result = cli(*toy, *ARMS)
    assert result.exit_code == 1 and "failed: RuntimeError: CUDA out of memory" in result.stdout
    assert tried == ["ngram:k=2"] * 2 and only_run().done_blocks() == {("no-spec", 0)}


def test_engines_are_built_once(cli, toy, monkeypatch):
    built = []

    def build_engine(arm, config, target, memory, whole=build.build_engine):
        built.append(arm.config.label)
        return whole(arm, config, target, memory)

    monkeypatch.setattr(native, "build_engine", build_engine)
    assert cli(*toy, *ARMS, "--num-repeats", 2).exit_code == 0
    assert sorted(built) == ["ngram:k=2", "no-spec"], "in whatever order their caches fit best"


def test_a_disk_that_is_full_loses_nothing(cli, toy, only_run, monkeypatch):
    def append(self, arm, repeat, *rows, whole=RunDirectory.append):
        if arm == "ngram:k=2":
            raise OSError(errno.ENOSPC, "No space left on device")
        whole(self, arm, repeat, *rows)

    monkeypatch.setattr(RunDirectory, "append", append)
    result = cli(*toy, *ARMS)
    line = result.stderr.splitlines()[-1]
    assert (
        result.exit_code == 2 and "No space left on device; measured blocks are kept. Free some space, then: " in line
    )
    assert line.endswith(f"specbench run --resume {only_run().path}")
    assert only_run().done_blocks() == {("no-spec", 0)}
    monkeypatch.undo()
    assert cli("run", "--resume", only_run().path).exit_code == 0
    assert len(only_run().done_blocks()) == 2


def test_a_directory_that_cannot_be_made(cli, toy, runs, monkeypatch):
    def mkdir(self, *args, **kwargs):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "mkdir", mkdir)
    result = cli(*toy)
    assert result.exit_code == 2 and f"output_dir: cannot write to {runs}: Read-only file system" in result.stderr
