"""A rank without an engine: it does what an order says. For tests of those who give orders."""

from __future__ import annotations

import os
import signal
import sys
import time
from multiprocessing.connection import Connection
from typing import Any

from specbench.harness.engines.native.ranks.wire import Done, Failed, Notice, Order


def _obey(rank: int, order: Order, answers: Connection) -> Any:
    """`name`: what to do; the first argument: which rank does it, the others do nothing; None: every one."""
    whose, *rest = order.args
    if whose not in (None, rank):
        return Done("nothing")
    if order.name == "fail":
        return Failed(*rest, "its traceback")
    if order.name == "say":
        answers.send(Notice("say", tuple(rest)))
    if order.name == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if order.name == "leave":
        print("Error: no more", file=sys.stderr, flush=True)
        os._exit(3)
    if order.name == "hang":
        time.sleep(600)
    return Done("done", *rest if order.name == "go" else ())


def main(rank: int) -> None:
    orders, answers = Connection(os.dup(0), writable=False), Connection(os.dup(1), readable=False)
    while True:
        try:
            order = orders.recv()
        except EOFError:
            return
        answers.send(_obey(rank, order, answers))


if __name__ == "__main__":
    main(int(sys.argv[1]))
