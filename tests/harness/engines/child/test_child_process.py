"""The line to a real child process without an engine: what it says, how it fails, and that nothing of it is left."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from toy import fake_child
from toy.alive import is_alive
from toy.child_orders import request, serve
from toy.clock import Clock

from specbench.harness.engines.base import NotReadyError
from specbench.harness.engines.child.interpreter import installed, interpreter
from specbench.harness.engines.child.process import ChildProcess
from specbench.harness.engines.process import waiting
from specbench.harness.engines.process.waiting import Waiting

COMMAND = [sys.executable, fake_child.__file__]


@pytest.fixture
def child(tmp_path):
    with ChildProcess(COMMAND, {}, tmp_path / "log") as process:
        process.ask({"do": "open", "engine": {}}, "opened")
        yield process


def wait_until_gone(pid: int) -> None:
    limit = time.monotonic() + 60
    while is_alive(pid):
        assert time.monotonic() < limit, f"process {pid} is still there"
        time.sleep(0.01)


def test_what_the_engine_prints_is_in_the_log_and_not_in_the_line(tmp_path):
    with ChildProcess(COMMAND, {}, tmp_path / "log") as child:
        opened = child.ask({"do": "open", "engine": {}}, "opened")
        assert opened["version"] == "1.2" and opened["config"]["pid"] == child.pid
        child.ask({"do": "reset"}, "reset")
    assert "loading weights" in child.log.read_text()


def test_serves_and_says_so(child):
    messages = list(child.asking(serve(request(0, 5), request(1, 6, 7)), "served"))
    ended = {one["id"]: one for message in messages for one in message.get("ended", ())}
    assert ended[0]["token_ids"] == [6, 7, 8, 9, 10, 11, 12] and ended[1]["token_ids"] == [8, 9, 10, 11, 12, 13, 14]
    steps = [step for message in messages for step in message.get("steps", ())]
    assert [step[0] for step in steps] == [0, 1, 2] and messages[-1]["served"]["counters"]
    assert [row[:2] for row in steps[0][4]] == [[0, 1], [1, 1]], "the first token of each"


def test_a_cancel_aborts_what_is_in_flight_and_the_child_goes_on(child):
    asked = serve(request(0, 5, max_tokens=10**6), request(1, 6, arrival_s=1e6))
    messages: list[dict] = []  # the first one tells of steps: the first request is in flight
    for message in child.asking(asked, "served", lambda: bool(messages)):
        messages.append(message)
    (ended,) = [one for message in messages for one in message.get("ended", ())]
    assert (ended["id"], ended["finish_reason"]) == (0, "abort")
    (again,) = [m["ended"][0] for m in child.asking(serve(request(3, 5)), "served") if "ended" in m]
    assert again["id"] == 3 and again["finish_reason"] == "length", "the cancel was for the serve before"


def test_bad_input_is_a_value_error_and_the_child_goes_on(tmp_path):
    with ChildProcess(COMMAND, {}, tmp_path / "log") as child:
        with pytest.raises(ValueError, match="^ValueError: no such switch$"):
            child.ask({"do": "open", "engine": {"fails": 1}}, "opened")
        child.ask({"do": "open", "engine": {}}, "opened")


@pytest.mark.parametrize(
    ("token", "error", "said"),
    [
        (fake_child.OUT_OF_MEMORY, RuntimeError, r"^out of memory: MemoryError: 2 GiB wanted \(log: .*\)$"),
        (fake_child.REFUSED, ValueError, "a prompt of that kind"),
        (fake_child.DIES, RuntimeError, r"ended with status 3: fingers: broken \(log: .*\)"),
    ],
)
def test_what_goes_wrong_on_the_way(token, error, said, tmp_path):
    with pytest.raises(error, match=said), ChildProcess(COMMAND, {}, tmp_path / "log") as child:
        child.ask({"do": "open", "engine": {}}, "opened")
        ended = []
        for message in child.asking(serve(request(0, 1), request(1, token), most=1), "served"):
            ended += message.get("ended", ())
            assert [one["id"] for one in ended] in ([], [0])
    if token != fake_child.DIES:  # what it had not written yet went with it
        assert ended and "Traceback" in child.log.read_text()


def test_an_error_of_the_engine_names_the_log(tmp_path):
    with ChildProcess(COMMAND, {}, tmp_path / "log") as child:
        child.ask({"do": "open", "engine": {}}, "opened")
        with pytest.raises(RuntimeError) as told:
            child.ask(serve(request(0, fake_child.OUT_OF_MEMORY)), "served")
    assert f"(log: {child.log})" in str(told.value) and "MemoryError" in child.log.read_text()


def test_a_command_after_its_death_says_how_it_died(child):
    os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match="ended with status -9: loading weights"):
        child.ask({"do": "reset"}, "reset")


def test_an_engine_that_is_never_ready_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(waiting, "time", Clock(tick_ns=4 * 10**9, noise=0))  # each look is 4 s after the last
    said: list[str] = []
    with ChildProcess(COMMAND, {}, tmp_path / "log") as child:
        with pytest.raises(
            NotReadyError, match=r"^the engine is not ready after 40 s: nothing in its log \(log: .*\)$"
        ):
            child.begin({"do": "open", "engine": {"hangs": 1}})
            child.opened(40, Waiting(said.append, "arm: waiting for fake", child.log))
        assert not is_alive(child.pid)
    assert said, "while it was waited for"
    assert all(re.fullmatch(r"arm: waiting for fake, \d+ s: nothing in its log", line) for line in said), said


def test_nothing_is_said_of_an_engine_that_takes_no_time(tmp_path, monkeypatch):
    monkeypatch.setattr(waiting, "time", Clock(tick_ns=0))  # it stands still, however long the start really takes
    with ChildProcess(COMMAND, {}, tmp_path / "log") as child:
        patient = Waiting(pytest.fail, "a start that takes no time", child.log)
        child.begin({"do": "open", "engine": {}})
        assert child.opened(600, patient)["version"] == "1.2"


def test_a_program_that_is_not_there(tmp_path):
    with pytest.raises(RuntimeError, match="/no/python"):
        ChildProcess(["/no/python", "x"], {}, tmp_path / "log")


def test_nothing_is_left_when_the_parent_is_killed(tmp_path):
    told = tmp_path / "pid"
    program = f"""
import sys, time
sys.path[:0] = {sys.path!r}
from pathlib import Path
from specbench.harness.engines.child.process import ChildProcess
from specbench.harness.engines.process import waiting
from specbench.harness.engines.process.waiting import Waiting
child = ChildProcess({COMMAND!r}, {{}}, Path({str(tmp_path / "log")!r}))
opened = child.ask({{"do": "open", "engine": {{}}}}, "opened")
Path({str(told)!r}).write_text(f"{{opened['config']['pid']}} {{child.log}}")
time.sleep(1000)
"""
    parent = subprocess.Popen([sys.executable, "-c", program])
    limit = time.monotonic() + 300
    while not (told.exists() and told.read_text()):
        assert parent.poll() is None and time.monotonic() < limit
        time.sleep(0.02)
    pid, log = told.read_text().split()
    assert is_alive(int(pid))
    parent.kill()
    parent.wait()
    wait_until_gone(int(pid))
    Path(log).unlink()


def test_the_interpreter_of_a_virtual_environment(tmp_path):
    assert interpreter(sys.executable) == Path(sys.executable)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    assert interpreter(str(tmp_path)) == tmp_path / "bin" / "python", "the link itself, which makes the environment"
    with pytest.raises(ValueError, match="python: '/no/venv' is not allowed; give a virtual environment"):
        interpreter("/no/venv")


def test_the_version_that_an_interpreter_has():
    python = Path(sys.executable)
    assert installed(python, ["no-such-thing", "pytest"]) == pytest.__version__
    with pytest.raises(ValueError, match="has no no-such-thing; install it there"):
        installed(python, ["no-such-thing"])


@pytest.mark.parametrize("sets_it", ["a wrapper script", "our environment"])
def test_a_package_on_the_pythonpath_is_found_as_a_child_finds_it(sets_it, tmp_path, monkeypatch):
    (tmp_path / "site" / "made_up-7.1.dist-info").mkdir(parents=True)
    (tmp_path / "site" / "made_up-7.1.dist-info" / "METADATA").write_text("Name: made-up\nVersion: 7.1\n")
    python = Path(sys.executable)
    if sets_it == "our environment":
        monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    else:
        python = tmp_path / "python"
        python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path}/site exec {sys.executable} "$@"\n')
        python.chmod(0o755)
    assert installed(python, ["made-up"]) == "7.1"


def test_a_package_in_the_current_directory_is_not_found(tmp_path, monkeypatch):
    (tmp_path / "made_up-7.1.dist-info").mkdir()
    (tmp_path / "made_up-7.1.dist-info" / "METADATA").write_text("Name: made-up\nVersion: 7.1\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="has no made-up"):
        installed(Path(sys.executable), ["made-up"])
