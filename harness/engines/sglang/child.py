"""Drives SGLang in the Python that has it: started by path, with its neighbours and the folder `child`.

`sglang.Engine` runs its scheduler, and so its step loop, in a separate process; requests and outputs pass through this
one. Names checked against SGLang 0.5.16. This file is imported again by the processes that SGLang spawns.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

_HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(_HERE), str(_HERE.parent / "child")]
from answers import count, reason_of, sampling, with_length  # noqa: E402
from death import EngineDied, died  # noqa: E402
from obey import run  # noqa: E402
from outputs import outputs_of  # noqa: E402
from processes import Processes  # noqa: E402
from ranges import about, opener, put_ranges  # noqa: E402
from server_info import facts  # noqa: E402
from watch import SteadyWatch, only_trace, profile_request  # noqa: E402
from wire import Ended  # noqa: E402

# Python must not look for SGLang's modules among our files.
sys.path[:] = [path for path in sys.path if path not in (str(_HERE), str(_HERE.parent / "child"))]

if TYPE_CHECKING:
    from specbench.harness.engines.child.capture import Capture
    from specbench.harness.engines.child.wire import Facts, Request, Serving, Traced

    from .answers import Answer, MetaInfo
    from .outputs import BatchOutput

TRACED = "SPECBENCH_TRACED"  # which tool is to trace rounds
_TICK_S = 0.002  # maximum delay until an arrival or a cancel is noticed while no step ends
_FLUSH_TRIES = 100
_OLD_NAMES = {"cuda_graph_max_bs_decode": "cuda_graph_max_bs"}


class TokenizerManager(Protocol):
    """The part of SGLang that receives the scheduler's messages."""

    _handle_batch_output: Callable[[BatchOutput], object]


class SglangChild:
    """One `sglang.Engine`."""

    def open(self, engine: Mapping[str, object]) -> Facts:
        # The scheduler sends tokens after every step, as to a streaming client; for others its default is 50.
        os.environ["SGLANG_FORCE_STREAM_INTERVAL"] = "1"
        import sglang
        from sglang.srt.server_args import ServerArgs

        engine = _known(engine, {each.name for each in dataclasses.fields(ServerArgs)})
        try:
            # A failing scheduler sends us SIGQUIT. We ignore it, so that we can report that the scheduler has ended.
            self._engine = _engine_class()(**engine, custom_sigquit_handler=signal.SIG_IGN)
        except RuntimeError as error:
            raise died(str(error)) from error
        self._processes = Processes(self._engine)
        self._num_served = 0
        self._woken = asyncio.Event()
        manager = self._engine.tokenizer_manager
        self._listen(manager)
        info = self._engine.get_server_info()
        self._keeps_prefixes = not info["disable_radix_cache"]
        self._outputs = outputs_of(info)
        return facts(info, sglang.__version__, manager.model_config.hf_eos_token_id or ())

    def serve(self, serving: Serving) -> Mapping[str, float]:
        self._num_served += 1
        self._serving: Serving | SteadyWatch | None = serving
        try:
            return self._processes.until(self._serve(serving))
        finally:
            self._serving = None

    def reset(self) -> str:
        """Also empties the table of n-grams and the server's averages."""
        for _ in range(_FLUSH_TRIES):
            if self._processes.until(self._engine.tokenizer_manager.flush_cache()).success:
                return "emptied" if self._keeps_prefixes else "off"
            time.sleep(0.05)  # the step launched ahead of the last answer is not finished
        raise RuntimeError("SGLang does not flush its caches: it reports pending requests")

    def score(self, ids: list[int], num_scored: int) -> tuple[list[float], list[float]]:
        """Scores the prompt's own tokens, without speculation; the first token has no probability."""
        if num_scored >= len(ids):
            raise ValueError(f"num_scored: {num_scored} of {len(ids)} tokens is not allowed; the first has no score")
        answer = self._processes.until(
            self._engine.async_generate(
                input_ids=ids,
                sampling_params={"temperature": 0.0, "max_new_tokens": 1, "ignore_eos": True},
                return_logprob=True,
                logprob_start_len=len(ids) - num_scored - 1,
                top_logprobs_num=1,
            )
        )
        meta = answer["meta_info"]
        own = [entry[0] for entry in meta["input_token_logprobs"][-num_scored:]]
        best = [entries[0][0] for entries in meta["input_top_logprobs"][-num_scored:]]
        return own, best

    def trace(self, requests: Sequence[Request], num_rounds: int, capture: Capture) -> Traced:
        self._num_served += 1
        watch = self._serving = SteadyWatch(len(requests), num_rounds)
        try:
            return self._processes.until(self._trace(watch, requests, num_rounds, capture))
        finally:
            self._serving = None

    async def _trace(
        self, watch: SteadyWatch, requests: Sequence[Request], num_rounds: int, capture: Capture
    ) -> Traced:
        import sglang

        tasks = [asyncio.create_task(self._ask(request)) for request in requests]
        manager = self._engine.tokenizer_manager
        with tempfile.TemporaryDirectory() as folder:
            try:
                await self._seen(lambda: watch.is_settled or watch.has_ended)
                watch.begin()
                if capture.tool != "none" and not watch.has_ended:
                    await manager.start_profile(profile_request(capture.tool, folder, num_rounds))
                await self._seen(lambda: watch.is_over)
                traced = watch.traced(about(sglang.__version__))
            finally:
                while not all(task.done() for task in tasks):  # what is on its way to the scheduler is not aborted yet
                    manager.abort_request(abort_all=True)
                    await asyncio.sleep(_TICK_S)
            if capture.path is not None:
                shutil.move(only_trace(Path(folder)), capture.path)
        return traced

    async def _seen(self, is_done: Callable[[], bool]) -> None:
        while not is_done():
            await self._tick()

    async def _tick(self) -> None:
        """Until something has happened, or a short time has passed."""
        self._woken.clear()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._woken.wait(), _TICK_S)

    def kind_of(self, error: BaseException) -> str | None:
        return error.kind if isinstance(error, EngineDied) else None

    async def _serve(self, serving: Serving) -> Mapping[str, float]:
        tasks: set[asyncio.Task[MetaInfo]] = set()
        counters: dict[str, float] = {}
        while not serving.is_over:
            for request in serving.due():
                tasks.add(asyncio.create_task(self._ask(request)))
            if serving.is_cancelled:  # each time: what was on its way to the scheduler is not aborted
                self._engine.tokenizer_manager.abort_request(abort_all=True)
            await self._tick()
            for task in [task for task in tasks if task.done()]:
                tasks.remove(task)
                count(counters, task.result())
        for task in tasks:
            count(counters, await task)
        return {f"engine.{name}": value for name, value in with_length(counters).items()}

    async def _ask(self, request: Request) -> MetaInfo:
        """Runs one request to its end; returns SGLang's answer."""
        rid = f"{self._num_served}-{request['id']}"
        self._outputs.submitted(rid, request["id"], time.monotonic_ns())
        try:
            answer: Answer = await self._engine.async_generate(
                input_ids=request["prompt_ids"], sampling_params=sampling(request), rid=rid
            )
        except Exception as error:  # SGLang refuses a request with errors of several libraries
            answer = {"output_ids": [], "meta_info": {}, "error": f"{type(error).__name__}: {error}"}
        meta = answer["meta_info"]
        seen, wrong = self._outputs.ended(rid, meta)
        ids = [int(token) for token in answer["output_ids"]]
        reason = reason_of(meta.get("finish_reason"))
        if reason == "length" and len(ids) < request["max_tokens"]:
            wrong = f"SGLang ended the answer after {len(ids)} of {request['max_tokens']} tokens; its context is full"
        wrong = answer.get("error", wrong if reason != "abort" else "")
        assert self._serving is not None
        self._serving.end(
            Ended(
                id=request["id"],
                num_prompt_tokens=meta.get("prompt_tokens", len(request["prompt_ids"])),
                token_ids=ids,
                finish_reason="error" if wrong else reason,
                t_first_ns=seen.first_ns,
                t_last_ns=seen.last_ns,
                cached_tokens=meta.get("cached_tokens"),
                error=wrong,
            )
        )
        self._woken.set()
        return meta

    def _listen(self, manager: TokenizerManager) -> None:
        """Intercepts every message of the scheduler before SGLang's own handler gets it."""
        handle = manager._handle_batch_output

        def seen(message: BatchOutput) -> object:
            if self._serving is not None and self._processes.failure is None:
                try:
                    if step := self._outputs.step(message, time.monotonic_ns()):
                        self._serving.step(step)
                except RuntimeError as error:  # raised here, it would end this process silently
                    self._processes.failure = error
                self._woken.set()
            return handle(message)

        self._serving = None
        manager._handle_batch_output = seen


def _engine_class() -> type:
    """If rounds are to be traced, the scheduler installs our ranges before it starts.

    `sglang.Engine` is a stand-in that imports this class at its first call, so nothing can be derived from it.
    """
    from sglang.srt.entrypoints.engine import Engine as plain

    if TRACED not in os.environ:
        return plain
    return type("TracedEngine", (plain,), {"run_scheduler_process_func": staticmethod(scheduler_with_ranges)})


def scheduler_with_ranges(*args: object, **kwargs: object) -> object:
    """Run by SGLang in the process of its scheduler."""
    import sglang
    from sglang.srt.managers.scheduler import run_scheduler_process

    put_ranges(sglang.__version__, opener(os.environ[TRACED]))
    return run_scheduler_process(*args, **kwargs)


def _known(engine: Mapping[str, object], names: set[str]) -> dict[str, object]:
    """Options as the installed version spells them. ValueError for those it does not have."""
    spelled = {_OLD_NAMES.get(key, key) if key not in names else key: value for key, value in engine.items()}
    if unknown := sorted(set(spelled) - names):
        raise ValueError(f"engine.{unknown[0]}: is not an option of the installed SGLang")
    return spelled


if __name__ == "__main__":
    run(SglangChild())
