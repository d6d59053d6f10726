"""A load sent by several processes, so that the speed of one client does not limit a fast server.

    python -m specbench.harness.engines.openai.clients     # one client: work on standard input, answers on stdout

Requests and concurrency are distributed round-robin. All clients begin together, when the last one is ready. They send
the same requests as a single process, but none takes over another's share.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait

from .answers import Answer
from .endpoint import Endpoint
from .sender import Add, Sender

_LOOK_S = 0.05
_END_S = 5.0  # for a client to close its connections


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """What a `Sender` is made of, and sends."""

    endpoint: Endpoint
    url: str
    max_concurrency: int
    keeps: bool
    bodies: Sequence[bytes]
    arrival_s: Sequence[float]

    def dealt(self, num: int) -> list[Work]:
        """Body `i` of share `n` is body `n + i * num`."""
        most = self.max_concurrency
        return [
            replace(
                self,
                max_concurrency=most // num + (n < most % num),
                bodies=self.bodies[n::num],
                arrival_s=self.arrival_s[n::num],
            )
            for n in range(num)
        ]


class _Client:
    """One process; it ends with this context, and when this Python does."""

    def __init__(self) -> None:
        path = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **path},
            start_new_session=True,  # Ctrl-C is for the parent, which ends it
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self.orders = Connection(os.dup(self._process.stdin.fileno()), readable=False)
        self.answers = Connection(os.dup(self._process.stdout.fileno()), writable=False)
        self._process.stdin.close()
        self._process.stdout.close()

    def __enter__(self) -> _Client:
        return self

    def __exit__(self, *exc: object) -> None:
        self.orders.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self.answers.close()

    def next_message(self) -> object:
        """The client's next message. RuntimeError if the process has ended; re-raises the client's own error."""
        try:
            message = self.answers.recv()
        except EOFError:
            raise RuntimeError(f"a client process ended with status {self._process.wait()}") from None
        if isinstance(message, Exception):
            raise message
        return message


def send_dealt(work: Work, num_clients: int, add: Add, is_over: Callable[[], bool]) -> list[int]:
    """Like `Sender.send_timed`, by this many processes, with all their delays; never more processes than concurrent
    requests."""
    num = min(num_clients, work.max_concurrency, len(work.bodies))
    delays_ns: list[int] = []
    with ExitStack() as ends:
        clients = [ends.enter_context(_Client()) for _ in range(num)]
        for client, share in zip(clients, work.dealt(num), strict=True):
            client.orders.send(share)
        for client in clients:
            client.next_message()  # that it is ready
        for client in clients:
            client.orders.send("go")
        open_lines = {client.answers: n for n, client in enumerate(clients)}
        is_cancel_sent = False
        while open_lines:
            for line in wait(list(open_lines), _LOOK_S):
                assert isinstance(line, Connection)
                n = open_lines[line]
                message = clients[n].next_message()
                if isinstance(message, tuple):
                    index, answer = message
                    add(n + index * num, answer)
                elif isinstance(message, list):
                    delays_ns += message
                    del open_lines[line]
            if not is_cancel_sent and is_over():
                is_cancel_sent = True
                for n in open_lines.values():
                    clients[n].orders.send("enough")
    return delays_ns


def serve(orders: Connection, answers: Connection) -> None:
    """The main function of one client."""
    work: Work = orders.recv()

    def meet() -> None:
        answers.send("ready")
        orders.recv()

    def add(index: int, answer: Answer) -> None:
        answers.send((index, answer))

    sender = Sender(work.endpoint, work.url, work.max_concurrency, keeps=work.keeps, meet=meet)
    try:
        delays_ns = sender.send_timed(work.bodies, work.arrival_s, add, orders.poll)
    except Exception as error:  # raised in the parent
        answers.send(error if type(error) in (RuntimeError, OSError) else RuntimeError(str(error)))
    else:
        answers.send(delays_ns)


if __name__ == "__main__":
    serve(Connection(os.dup(0), writable=False), Connection(os.dup(1), readable=False))
