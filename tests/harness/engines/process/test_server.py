"""Servers that start, that do not, and that end too early: one line each, and no process left."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from toy.clock import Clock
from toy.processes import eventually, marked

from specbench.harness.engines.base import NotReadyError
from specbench.harness.engines.process import server as servers
from specbench.harness.engines.process import waiting
from specbench.harness.engines.process.server import Patience, RunningServer, running
from specbench.harness.engines.process.server_command import HOST, built_command, free_port, users_command

FAKE = Path(__file__).parents[3] / "toy" / "fake_server.py"
PATIENCE = Patience(startup_s=300, grace_s=0.2)


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Lines of progress; logs lie in a directory of the test's own."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return []


@pytest.fixture
def mark() -> Iterator[str]:
    """In the command line of every process of the server; all must be gone at the end."""
    own = f"mark-{uuid.uuid4().hex}"
    yield own
    assert eventually(lambda: marked(own) == [])


def fake(
    kind: str, mark: str, said: list[str], patience: Patience = PATIENCE, more: str = ""
) -> AbstractContextManager[RunningServer]:
    command = users_command("fake", f"{sys.executable} -S {FAKE} {kind} {mark} {more}")
    return running(command, model="a model", label="arm", say=said.append, log=the_log(), patience=patience)


def the_log() -> Path:
    return Path(tempfile.gettempdir()) / "server.log"


def get(server: RunningServer, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(server.root.removeprefix("http://"), timeout=60)
    connection.request("GET", path)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


@pytest.mark.parametrize("kind", ["good", "slow", "no-health"])
def test_a_server_is_there_until_the_end_of_the_block(said, mark, kind):
    with fake(kind, mark, said, more="--model {model}") as server:
        status, text = get(server, "/v1/models")
        words = json.loads(text)["seen"]
        assert status == 200 and words[2:4] == ["--model", "a model"] and words[4:6] == ["--host", HOST]
        assert server.root == f"http://{HOST}:{words[7]}" and server.base_url == f"{server.root}/v1"
        error = RuntimeError("no words")
        assert server.explained(error) is error
    assert server.log.read_text() == "serving\n" and str(server.log) in said[0]


def test_what_ignores_sigterm_is_ended_with_its_descendants(said, mark):
    with fake("deaf", mark, said):
        assert eventually(lambda: len(marked(mark)) == 3), "supervisor, server, and the child in a session of its own"


def test_a_server_that_exits_says_why(said, mark):
    with pytest.raises(RuntimeError) as found, fake("exits", mark, said):
        pass
    line = "fake: the server ended with exit status 3 before it answered: ValueError: no such head (log: "
    assert str(found.value).startswith(line) and "\n" not in str(found.value)


def test_an_engine_that_is_not_there(said, mark):
    command = built_command("vllm", [sys.executable, "-m", "no_such_engine", mark])
    with pytest.raises(RuntimeError, match="No module named no_such_engine .log: [^\n]*$"):
        with running(command, model="", label="arm", say=said.append, log=the_log(), patience=PATIENCE):
            pass


@pytest.fixture
def until_503(monkeypatch) -> None:
    """Each answer that is 503 takes 4 s, everything else no time: a server has as long to start as it needs."""
    clock, look = Clock(tick_ns=0), servers._health

    def looked(port: int, paths: tuple[str, ...]) -> str:
        answer = look(port, paths)
        if "503" in answer:
            clock.sleep(4)
        return answer

    monkeypatch.setattr(waiting, "time", clock)
    monkeypatch.setattr(servers, "_health", looked)


def test_a_server_that_is_never_ready(said, mark, until_503):
    with pytest.raises(NotReadyError) as found, fake("never", mark, said, Patience(startup_s=20, grace_s=0.2)):
        pass
    assert str(found.value).startswith("fake: the server is not ready after 20 s (/health answers 503): serving (log: ")
    assert any(line.startswith("arm: waiting for fake, ") and line.endswith(": serving") for line in said)


def test_a_server_that_dies_later_explains_a_broken_connection(said, mark, monkeypatch):
    monkeypatch.setattr(servers, "_DEATH_S", 60)  # the supervisor may have to wait for a busy machine
    with fake("dies", mark, said) as server:
        with pytest.raises(ConnectionError) as broken:
            get(server, "/die")
        explained = server.explained(broken.value)
    text = f"fake: the server ended by SIGKILL: RuntimeError: out of words (log: {server.log})"
    assert isinstance(explained, RuntimeError) and str(explained) == text


def test_a_port_of_ours_that_is_taken_meanwhile_is_another_one(said, mark, monkeypatch):
    with socket.create_server((HOST, 0)) as other:  # it accepts and says nothing, so it is no server that is ready
        taken, free = other.getsockname()[1], free_port()
        ports = iter([taken, free])
        monkeypatch.setattr(servers, "free_port", lambda: next(ports))
        monkeypatch.setattr(servers, "_ANSWER_S", 0.2)
        with fake("good", mark, said) as server:
            assert server.root == f"http://{HOST}:{free}"
    assert f"arm: port {taken} was taken in the meantime; trying another" in said


def test_a_port_of_the_users_that_is_taken_is_refused_before_anything_starts(said, mark):
    with socket.create_server((HOST, 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ValueError, match=f"^engine_command: port {port} is taken"):
            with fake("good", mark, said, more=f"--port {port}"):
                pass
    assert said == []


def test_ctrl_c_while_a_server_starts_leaves_nothing(said, mark, until_503):
    def press(line: str) -> None:
        if "waiting" in line:
            signal.raise_signal(signal.SIGINT)

    command = users_command("fake", f"{sys.executable} -S {FAKE} never {mark}")
    with (
        pytest.raises(KeyboardInterrupt),
        running(command, model="", label="arm", say=press, log=the_log(), patience=PATIENCE),
    ):
        pass


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("serve", ["serve", "--host", HOST, "--port", "7"]),
        ("serve --host 0.0.0.0", ["serve", "--host", "0.0.0.0", "--port", "7"]),
        ("serve --listen {host}:{port} '{\"k\": 4}'", ["serve", "--listen", f"{HOST}:7", '{"k": 4}']),
        ("serve --port 8000", ["serve", "--port", "8000"]),
        ("serve --port=8000 {model}", ["serve", "--port=8000", "m"]),
    ],
)
def test_users_are_asked_for_no_placeholder(text, words):
    command = users_command("fake", text)
    assert command.filled(port=7, model="m") == words
    assert command.fixed_port == (8000 if "8000" in text else None)


@pytest.mark.parametrize("text", ["", "   ", "serve 'open", "serve --port many", "serve --port 70000"])
def test_a_command_that_is_none_is_refused(text):
    with pytest.raises(ValueError, match="^engine_command: "):
        users_command("fake", text)
