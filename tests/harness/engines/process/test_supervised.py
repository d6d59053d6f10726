"""Nothing of a foreign process is left, however it, or the process that wanted it, ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from toy.processes import eventually, marked, stubborn

from specbench.harness.engines.process.log_tail import telling_line
from specbench.harness.engines.process.supervised import Supervised, foreign_environment

ROOT = Path(__file__).parents[4]
KINDS = ("plain", "double-fork", "threads")
# A process of ours that starts a command and waits; it says so when the command is ready.
_OWNER = """
import signal, sys, time
from pathlib import Path
from specbench.harness.engines.process.log_tail import telling_line
from specbench.harness.engines.process.supervised import Supervised
signal.signal(signal.SIGINT, signal.default_int_handler)
log = Path(sys.argv[1])
with Supervised(sys.argv[2:], log=log, grace_s=0.2):
    while b"ready" not in log.read_bytes():
        time.sleep(0.02)
    print("started", flush=True)
    time.sleep(300)
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "engine.log"


def ready(log: Path, times: int) -> bool:
    return log.exists() and log.read_bytes().count(b"ready") >= times


@pytest.mark.parametrize("kind", KINDS)
def test_stop_ends_what_ignores_sigterm(log, kind):
    command, mark = stubborn(kind)
    num = {"plain": 1, "double-fork": 2, "threads": 4}[kind]
    with Supervised(command, log=log, grace_s=0.2) as process:
        assert eventually(lambda: ready(log, num)) and process.poll() is None
        assert eventually(lambda: len(marked(mark)) == num + 1), "with the supervisor"
        assert process.stop() == -signal.SIGKILL
        assert marked(mark) == []
    assert process.poll() == -signal.SIGKILL


def test_what_ends_in_time_is_not_killed(log):
    code = "import signal, sys, time\nsignal.signal(15, lambda *a: sys.exit(7))\nprint('ready')\ntime.sleep(300)"
    with Supervised([sys.executable, "-S", "-c", code], log=log, grace_s=60) as process:
        assert eventually(lambda: ready(log, 1))
        assert process.stop() == 7


def test_a_command_that_ends_takes_its_descendants_along(log):
    command, mark = stubborn("leaves")
    with Supervised(command, log=log, grace_s=0.1) as process:
        assert process.wait(120) == 3, "at once, before the others are gone"
        assert process.stop() == 3
        assert marked(mark) == []
    assert telling_line(log) == "Error: out of words"


def test_a_command_that_ends_at_once_has_a_status(log):
    """It is over before the supervisor, which is slow here, has done anything else."""
    slow = f"""
import subprocess, sys, time; sys.path[:0] = {sys.path!r}
from specbench.harness.engines.process import supervisor
class Slow(subprocess.Popen):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        while open(f"/proc/{{self.pid}}/stat").read().rpartition(")")[2].split()[0] != "Z":
            time.sleep(0.01)
subprocess.Popen = Slow
supervisor.main(sys.argv[1:])
"""
    report, write = os.pipe()
    hold, kept = os.pipe()
    words = [str(os.getpid()), str(hold), str(write), "1", sys.executable, "-S", "-c", "raise SystemExit(7)"]
    subprocess.run([sys.executable, "-c", slow, *words], pass_fds=(hold, write), check=True)
    os.close(write)
    with os.fdopen(report) as told:
        assert [json.loads(line) for line in told][1:] == [{"status": 7}, {"left": []}]
    os.close(hold)
    os.close(kept)


def test_what_is_forked_during_a_look_through_proc_is_not_missed(log):
    for _ in range(10):
        command, mark = stubborn("chain")
        with Supervised(command, log=log, grace_s=0.1):
            pass
        assert marked(mark) == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_survives_its_owner(log, kind, number):
    command, mark = stubborn(kind)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / ".ns")}
    words = [sys.executable, "-c", _OWNER, str(log), *command]
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as owner:
        assert owner.stdout is not None and owner.stdout.readline() == b"started\n", owner.communicate()[1]
        owner.send_signal(number)
        owner.wait(300)
    assert eventually(lambda: marked(mark) == [])


def test_a_second_ctrl_c_does_not_wait_for_the_grace(log, monkeypatch):
    """`stop` is interrupted in the middle of 60 s; what is left is killed at once."""
    command, mark = stubborn("double-fork")
    process = Supervised(command, log=log, grace_s=60)
    assert eventually(lambda: ready(log, 2))

    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(process, "_wait_for_supervisor", interrupted)
    with pytest.raises(KeyboardInterrupt):
        process.stop()
    assert eventually(lambda: marked(mark) == [])


def test_the_command_ends_with_a_supervisor_that_is_killed(log):
    command, mark = stubborn("plain")
    with Supervised(command, log=log) as process:
        assert eventually(lambda: ready(log, 1))
        (keeper,) = set(marked(mark)) - {process.pid}
        os.kill(keeper, signal.SIGKILL)
        assert process.wait(120) == -signal.SIGKILL and eventually(lambda: marked(mark) == [])


def test_pipes_are_the_commands_own(log):
    code = """import sys
print("to the log", file=sys.stderr)
for line in sys.stdin:
    print(line.upper(), end="", flush=True)"""
    with Supervised([sys.executable, "-S", "-c", code], log=log, pipes=True) as process:
        process.stdin.write(b"one\n")
        assert process.stdout.readline() == b"ONE\n"
        process.stdin.close()
        assert process.stdout.read() == b"" and process.wait(120) == 0
    assert log.read_text() == "to the log\n"


@pytest.mark.parametrize(("name", "why"), [("nowhere", "No such file"), ("text", "Permission denied")])
def test_a_command_that_cannot_be_run_is_one_line(log, tmp_path, name, why):
    (tmp_path / "text").write_text("no program")
    with pytest.raises(RuntimeError, match=f"^{tmp_path / name} cannot be run: {why}[^\n]*$"):
        Supervised([str(tmp_path / name)], log=log)


def test_the_environment_is_the_users_without_ours_and_without_keys(monkeypatch):
    for name in ("SPECBENCH_CACHE", "OPENAI_API_KEY", "VLLM_API_KEY", "VLLM_CPU_KVCACHE_SPACE"):
        monkeypatch.setenv(name, "1")
    found = foreign_environment({"OMP_NUM_THREADS": "2"})
    assert found["VLLM_CPU_KVCACHE_SPACE"] == "1" and found["OMP_NUM_THREADS"] == "2" and found["PATH"]
    assert not {"SPECBENCH_CACHE", "OPENAI_API_KEY", "VLLM_API_KEY"} & found.keys()
    assert foreign_environment({"VLLM_API_KEY": "asked for"})["VLLM_API_KEY"] == "asked for"
