"""Of SGLang what its child of ours touches: an engine whose scheduler is a process, its messages, its meta_info.

It counts on from a prompt's last token. Some first tokens of a prompt break it: see scheduler.py.
"""

from __future__ import annotations

import asyncio
import atexit
import dataclasses
import gzip
import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from sglang.scheduler import REFUSED, run_scheduler
from sglang.srt.server_args import ServerArgs

__version__ = "0.5.16"


def _meet() -> None:
    """Where FAKE_SGLANG_MEETS names a folder, until a second engine is starting, too."""
    if folder := os.environ.get("FAKE_SGLANG_MEETS"):
        (Path(folder) / str(os.getpid())).touch()
        limit = time.monotonic() + 60
        while len(list(Path(folder).iterdir())) < 2:
            if time.monotonic() > limit:
                raise RuntimeError("no other engine is starting")
            time.sleep(0.01)


class SchedulerEngine:
    run_scheduler_process_func = staticmethod(run_scheduler)

    def __init__(self, **kwargs: Any):
        self.server_args = ServerArgs(**kwargs)
        signal.signal(signal.SIGQUIT, self.server_args.custom_sigquit_handler)
        print(f"server_args={self.server_args}")
        _meet()
        multiprocessing.set_start_method("spawn", force=True)
        self._line, theirs = multiprocessing.Pipe()
        self._scheduler = multiprocessing.Process(
            target=self.run_scheduler_process_func, args=(self.server_args, theirs)
        )
        self._scheduler.start()
        theirs.close()
        try:
            ready = self._line.recv()
        except EOFError:
            self._scheduler.join()
            code = self._scheduler.exitcode
            raise RuntimeError(f"Rank 0 scheduler died during initialization (exit code: {code}).") from None
        atexit.register(self.shutdown)
        self.tokenizer_manager = TokenizerManager(self._line)
        self.loop = asyncio.new_event_loop()
        self._info = ready

    async def async_generate(self, **asked: Any) -> dict[str, Any]:
        if asked["input_ids"][0] == REFUSED:
            raise ValueError("The input is longer than the model's context length.")
        return await self.tokenizer_manager.generate(asked)

    def get_server_info(self) -> dict[str, Any]:
        self.loop.run_until_complete(self.tokenizer_manager.start())
        graphs = {phase: {"backend": "full" if phase == "decode" else "disabled"} for phase in ("decode", "prefill")}
        told = {**self._info, "cuda_graph_config": graphs}
        states = [{"avg_spec_accept_length": 9.9}]
        return {**dataclasses.asdict(self.server_args), **told, "internal_states": states, "version": __version__}

    def shutdown(self) -> None:
        self._scheduler.kill()
        self._scheduler.join()


class TokenizerManager:
    def __init__(self, line: Any):
        self._line = line
        self._waiting: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._output_ids: dict[str, list[int]] = {}
        self._number = 0
        self.model_config = SimpleNamespace(hf_eos_token_id={2})
        self.signal_handler_class: Any = None

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGQUIT, self.signal_handler_class(self).running_phase_sigquit_handler)
        loop.add_reader(self._line.fileno(), self._read)
        self._tasks: set[Any] = set()

    async def generate(self, asked: dict[str, Any]) -> dict[str, Any]:
        self._number += 1
        rid = asked.setdefault("rid", f"own-{self._number}")
        self._waiting[rid] = asyncio.get_running_loop().create_future()
        self._output_ids[rid] = []
        self._line.send(("request", asked))
        return await self._waiting[rid]

    async def flush_cache(self) -> SimpleNamespace:
        flushed = self._waiting["flush"] = asyncio.get_running_loop().create_future()
        self._line.send(("flush", None))
        return SimpleNamespace(**await flushed)

    async def start_profile(self, asked: Any) -> None:
        assert (asked.num_steps, asked.activities, asked.with_stack) == (4, ["CPU", "GPU"], False), asked
        (Path(asked.output_dir) / "1-TP-0.trace.json.gz").write_bytes(gzip.compress(b'{"traceEvents": []}'))

    def abort_request(self, abort_all: bool = False) -> None:
        self._line.send(("abort", None))

    def _read(self) -> None:
        try:
            kind, message = self._line.recv()
        except EOFError:
            asyncio.get_running_loop().remove_reader(self._line.fileno())
            return
        if kind == "flushed":
            self._waiting["flush"].set_result(message)
        else:
            task = asyncio.ensure_future(self._handle(message))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _handle(self, message: Any) -> None:
        """As its handle_loop does, which ends the process where its handler fails."""
        try:
            await self._handle_batch_output(message)
        except Exception as error:
            print(error, file=sys.stderr)
            os._exit(9)

    async def _handle_batch_output(self, message: Any) -> None:
        for place, rid in enumerate(message.rids):
            self._output_ids[rid] += message.output_ids[place]
            if (reason := message.finished_reasons[place]) is not None:
                meta = {**message.meta[place], "finish_reason": reason}
                self._waiting[rid].set_result({"output_ids": self._output_ids.pop(rid), "meta_info": meta})


class LazyImport:
    """What SGLang puts in a class's place: it can be called, and nothing can be derived from it."""

    def __call__(self, **kwargs: Any) -> SchedulerEngine:
        return SchedulerEngine(**kwargs)


Engine = LazyImport()
