"""Processes forked from one that has imported everything: as real as those started anew, without 3 s of imports.

That one imports, and does nothing else: it runs no command and starts no thread. It belongs to the process that first
needs it, and ends with it.
"""

from __future__ import annotations

import atexit
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_IMPORTED = """
specbench.harness.cli.main specbench.harness.cli.run specbench.harness.experiments.run
specbench.harness.engines.native.core.engine specbench.harness.engines.native.deployment
specbench.reports.run.report matplotlib.backends.backend_agg pyarrow.parquet
"""
_LARGEST = 1 << 20  # bytes of an order
# A program of its own, small enough to start in 20 ms: it hands its arguments, place and streams over to the warm one.
CLIENT = f"""#!{sys.executable} -IS
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from warm import asked
sys.exit(asked({{socket!r}}, {{code!r}}, sys.argv[1:]))
"""


@cache
def server() -> str:
    """The address of this process's own; it starts here."""
    folder = tempfile.mkdtemp(prefix="warm-")
    address, (ready, told) = f"{folder}/socket", os.pipe()
    environment = {**os.environ, "PYTHONPATH": str(ROOT / ".ns"), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, __file__, address, str(told)]
    process = subprocess.Popen(words, env=environment, pass_fds=[told], stdin=subprocess.PIPE)
    os.close(told)
    with os.fdopen(ready) as line:
        assert line.read() == "ready", "see what it printed"

    def end() -> None:
        assert process.stdin is not None
        process.stdin.close()
        process.wait()
        os.unlink(address)
        os.rmdir(folder)

    atexit.register(end)
    return address


def program(path: Path, code: str) -> None:
    """Makes an executable of Python `code`, which finds its arguments in `sys.argv`."""
    path.write_text(CLIENT.format(socket=server(), code=code))
    path.chmod(0o755)


def asked(
    address: str,
    code: str,
    words: Sequence[str],
    streams: Sequence[int] = (0, 1, 2),
    environment: Mapping[str, str] = os.environ,
) -> int:
    """Runs `code` with `words` in a process here and now; its exit status, negative for a signal."""
    order = {"code": code, "words": list(words), "cwd": os.getcwd(), "environment": dict(environment)}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _LARGEST)
        line.connect(address)
        socket.send_fds(line, [json.dumps(order).encode()], streams)
        return int(line.recv(64))


def _serve(address: str, told: int) -> None:
    import select
    from importlib import import_module

    for name in _IMPORTED.split():
        import_module(name)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
        door.bind(address)
        door.listen()
        os.write(told, b"ready")
        os.close(told)
        while True:
            ready, _, _ = select.select([door, sys.stdin], [], [])
            if sys.stdin in ready:
                _reap(0)
                return
            line, _ = door.accept()
            if os.fork() == 0:
                _answer(line)
            line.close()
            _reap()


def _reap(how: int = os.WNOHANG) -> None:
    """Takes the statuses of those that have answered; with 0, of all."""
    while True:
        try:
            if os.waitpid(-1, how)[0] == 0:
                return
        except ChildProcessError:
            return


def _answer(line: socket.socket) -> None:
    """In a process of its own, which waits for that of the order."""
    data, streams, _, _ = socket.recv_fds(line, _LARGEST, 3)
    pid = os.fork()
    if pid == 0:
        _obey(json.loads(data), streams)
    _, status = os.waitpid(pid, 0)
    line.send(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def _obey(order: dict[str, Any], streams: Sequence[int]) -> None:
    """Ends the process as Python ends."""
    import traceback

    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.argv = ["specbench", *order["words"]]
    status: Any = 0
    try:
        exec(compile(order["code"], "program", "exec"), {"__name__": "__main__"})
    except SystemExit as end:
        status = end.code
    except BaseException:
        traceback.print_exc()
        status = 1
    if isinstance(status, str):
        print(status, file=sys.stderr)
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(int(status or 0))


if __name__ == "__main__":
    _serve(sys.argv[1], int(sys.argv[2]))
