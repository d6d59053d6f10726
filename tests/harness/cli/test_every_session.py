"""Each command that measures: SIGTERM, a second Ctrl-C, and a disk that fills up once its directory is made."""

from __future__ import annotations

import errno
import json
import os
import signal
from pathlib import Path
from types import ModuleType

import pytest
from toy.eval_tasks import write_tasks
from toy.interrupts import terminal_signals

from specbench.harness.engines.native.deployment import NativeDeployment
from specbench.harness.experiments import profile as profile_experiment
from specbench.harness.quality.certificate import session as certify_session
from specbench.harness.quality.lm_evaluation import evaluate as evaluation
from specbench.harness.store.run_directory import RunDirectory

# Where the first signal arrives, and how to go on.
COMMANDS: dict[str, tuple[ModuleType | type, str, str]] = {
    "run": (NativeDeployment, "measure", "specbench run --resume"),
    "sweep": (NativeDeployment, "measure", "specbench sweep --resume"),
    "ab": (NativeDeployment, "measure", "specbench ab --resume"),
    "power": (NativeDeployment, "measure", "specbench power --resume"),
    "certify": (certify_session, "generate", "specbench certify --run"),
    "accuracy": (evaluation.ItemStore, "put", "specbench accuracy --resume"),
    "profile": (profile_experiment, "profile_arm", "specbench profile run"),
}


@pytest.fixture(autouse=True)
def signals():
    with terminal_signals():
        yield


@pytest.fixture
def words(request, toy, toy_sweep, chat_model, runs, tmp_path) -> list[str]:
    options = [word for word in toy[1:] if word != "--num-repeats"]
    options.remove("1")
    by_name = {
        "run": [*toy, "-s", "no-spec"],
        "sweep": [*toy_sweep, "-s", "ngram:k=1", "--max-concurrency", "1,2"],
        "ab": ["ab", "-A", "no-spec", "-B", "ngram:k=2", "--blocks", "1", "--no-verdict", "--in-process", *options],
        "power": ["power", "--aa", "2", "-s", "no-spec", "--in-process", *options],
        "certify": "certify -s ngram:k=2 --load-format dummy --model toy --dtype float32 --dataset-name random "
        f"--num-prompts 2 --output-len 4 --max-model-len 1100 --num-seeds 0 --output-dir {runs}".split(),
        "accuracy": f"accuracy --model {chat_model} --dtype float32 --max-model-len 200 -s no-spec --tasks counting "
        f"--warmup-max-s 0.02 --include-path {write_tasks(tmp_path / 'tasks')} --output-dir {runs}".split(),
        "profile": ["profile", "run", *toy[1:], "-s", "no-spec", "--tool", "torch", "--no-twin"],
    }
    return by_name[request.param]


def with_words(names):
    return pytest.mark.parametrize(("name", "words"), [(name, name) for name in names], indirect=["words"], ids=names)


def pressing(number: signal.Signals, then=lambda *_, **__: None):
    def call(*words, **named):
        signal.raise_signal(number)
        return then(*words, **named)

    return call


def directory_of(runs: Path) -> tuple[Path, dict]:
    (path,) = runs.iterdir()
    (file,) = (path / name for name in ("run.json", "sweep.json") if (path / name).exists())
    return path, json.loads(file.read_text())


def resume(cli, name: str, path: Path):
    return cli(*COMMANDS[name][2].split()[1:], path)


@with_words(COMMANDS)
def test_sigterm_is_a_ctrl_c(cli, runs, monkeypatch, name, words):
    where, function, command = COMMANDS[name]
    monkeypatch.setattr(where, function, pressing(signal.SIGTERM))
    result = cli(*words)
    path, raw = directory_of(runs)
    assert result.exit_code == 130, result.output
    last = result.stderr.splitlines()[-1]
    assert "specbench: interrupted; " in last and " are kept" in last
    assert name == "profile" or last.endswith(f"Continue with: {command} {path}")
    assert raw["status"] == "interrupted"


@with_words(COMMANDS)
def test_a_second_ctrl_c_stops_at_once(cli, runs, monkeypatch, name, words):
    where, function, command = COMMANDS[name]
    with monkeypatch.context() as patch:
        patch.setattr(where, function, pressing(signal.SIGINT))
        for closing in ("finish", "end_without_tables"):
            patch.setattr(RunDirectory, closing, pressing(signal.SIGINT))
        result = cli(*words)
    path, raw = directory_of(runs)
    assert result.exit_code == 130, result.output
    last = result.stderr.splitlines()[-1]
    assert last.startswith("specbench: stopped immediately; resume with: ") and raw["status"] == "running"
    if name != "profile":
        assert last.endswith(f"{command} {path}")
        assert resume(cli, name, path).exit_code in (0, 4), "as after a kill; 4: an A/B of few blocks"


@pytest.mark.parametrize("num_writes", [1, 4])
@with_words(COMMANDS)
def test_a_full_disk(cli, runs, monkeypatch, name, words, num_writes):
    def fails(*_, **__):
        raise RuntimeError("no profile")

    replace, written = os.replace, []

    def full(source, target):
        if len(written) == num_writes:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(target)
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        if name == "profile":
            patch.setattr(profile_experiment, "profile_arm", fails)  # stored, and then the directory is closed
        result = cli(*words)
    if name == "profile" and num_writes == 4:
        return  # writes three times
    path, raw = directory_of(runs)
    last = result.stderr.splitlines()[-1]
    assert result.exit_code == 2, result.output
    assert (
        f"cannot write {path}" in last
        and "No space left on device; measured blocks are kept. Free some space, then" in last
    )
    if name != "profile":
        assert last.endswith(f"Free some space, then: {COMMANDS[name][2]} {path}")
        assert resume(cli, name, path).exit_code in (0, 4)
