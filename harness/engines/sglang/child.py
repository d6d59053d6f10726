"""Drives SGLang in the Python that has it: started by path, with its neighbours and the folder `child`.

`sglang.Engine` keeps its scheduler, and so its step loop, in a process of its own; requests and outputs pass through
this one. Names checked against SGLang 0.5.16. This file is imported again by the processes that SGLang spawns.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

_HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(_HERE), str(_HERE.parent / "child")]
from answers import count, reason_of, sampling, with_length  # noqa: E402
from death import EngineDied, died  # noqa: E402
from obey import run  # noqa: E402
from outputs import outputs_of  # noqa: E402
from server_info import facts  # noqa: E402
from wire import Ended  # noqa: E402

# Nothing of SGLang's is to be looked for among our files.
sys.path[:] = [path for path in sys.path if path not in (str(_HERE), str(_HERE.parent / "child"))]

if TYPE_CHECKING:
    from specbench.harness.engines.child.wire import Facts, Request, Serving

    from .answers import Answer, MetaInfo
    from .outputs import BatchOutput

_TICK_S = 0.002  # how late an arrival or a cancel is seen while no step ends
_WATCH_S = 0.2  # between two looks at SGLang's processes
_FLUSH_TRIES = 100
_OLD_NAMES = {"cuda_graph_max_bs_decode": "cuda_graph_max_bs"}
_T = TypeVar("_T")


class TokenizerManager(Protocol):
    """Of SGLang's: what takes the scheduler's messages."""

    _handle_batch_output: Callable[[BatchOutput], object]


class SglangChild:
    """One `sglang.Engine`."""

    def open(self, engine: Mapping[str, object]) -> Facts:
        # Tokens leave the scheduler after every step, as a streaming client gets them; its default for others is 50.
        os.environ["SGLANG_FORCE_STREAM_INTERVAL"] = "1"
        import sglang
        from sglang.srt.server_args import ServerArgs

        engine = _known(engine, {each.name for each in dataclasses.fields(ServerArgs)})
        try:
            # The scheduler asks for our death by SIGQUIT; ignored, its own end is what we see, and can tell.
            self._engine = sglang.Engine(**engine, custom_sigquit_handler=signal.SIG_IGN)
        except RuntimeError as error:
            raise died(str(error)) from error
        self._processes = multiprocessing.active_children()
        self._num_served = 0
        self._died = False
        self._failure: RuntimeError | None = None
        self._woken = asyncio.Event()
        manager = self._engine.tokenizer_manager
        manager.signal_handler_class = self._signals
        self._listen(manager)
        info = self._engine.get_server_info()
        self._keeps_prefixes = not info["disable_radix_cache"]
        self._outputs = outputs_of(info)
        return facts(info, sglang.__version__, manager.model_config.hf_eos_token_id or ())

    def serve(self, serving: Serving) -> Mapping[str, float]:
        self._num_served += 1
        self._serving: Serving | None = serving
        try:
            return self._until(self._serve(serving))
        finally:
            self._serving = None

    def reset(self) -> str:
        """Also empties the table of n-grams and the server's averages."""
        for _ in range(_FLUSH_TRIES):
            if self._until(self._engine.tokenizer_manager.flush_cache()).success:
                return "emptied" if self._keeps_prefixes else "off"
            time.sleep(0.05)  # the step that runs ahead of the last answer is not over
        raise RuntimeError("SGLang does not flush its caches: it says that requests are pending")

    def score(self, ids: list[int], num_scored: int) -> tuple[list[float], list[float]]:
        """Of the prompt's own tokens, which are not speculated; a first token has no probability."""
        if num_scored >= len(ids):
            raise ValueError(f"num_scored: {num_scored} of {len(ids)} tokens is not allowed; the first has no score")
        answer = self._until(
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

    def kind_of(self, error: BaseException) -> str | None:
        return error.kind if isinstance(error, EngineDied) else None

    def _until(self, work: Awaitable[_T]) -> _T:
        """Its result. EngineDied as soon as a process of SGLang's is gone."""

        async def watched() -> _T:
            task = asyncio.ensure_future(work)
            while not task.done():
                await asyncio.wait([task], timeout=_WATCH_S)
                self._check_alive()
            return task.result()

        loop: asyncio.AbstractEventLoop = self._engine.loop
        return loop.run_until_complete(watched())

    async def _serve(self, serving: Serving) -> Mapping[str, float]:
        tasks: set[asyncio.Task[MetaInfo]] = set()
        counters: dict[str, float] = {}
        while not serving.is_over:
            for request in serving.due():
                tasks.add(asyncio.create_task(self._ask(request)))
            if serving.is_cancelled:  # each time: what was on its way to the scheduler is not aborted
                self._engine.tokenizer_manager.abort_request(abort_all=True)
            self._woken.clear()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._woken.wait(), _TICK_S)
            for task in [task for task in tasks if task.done()]:
                tasks.remove(task)
                count(counters, task.result())
        for task in tasks:
            count(counters, await task)
        return {f"engine.{name}": value for name, value in with_length(counters).items()}

    async def _ask(self, request: Request) -> MetaInfo:
        """One request from its submission to its end; what SGLang says of it."""
        rid = f"{self._num_served}-{request['id']}"
        self._outputs.submitted(rid, request["id"], time.monotonic_ns())
        try:
            answer: Answer = await self._engine.async_generate(
                input_ids=request["prompt_ids"], sampling_params=sampling(request), rid=rid
            )
        except Exception as error:  # SGLang refuses single requests so, with errors of several libraries
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
        """Every message of the scheduler is seen before SGLang's own handler gets it."""
        handle = manager._handle_batch_output

        def seen(message: BatchOutput) -> object:
            if self._serving is not None and self._failure is None:
                try:
                    if step := self._outputs.step(message, time.monotonic_ns()):
                        self._serving.step(step)
                except RuntimeError as error:  # raised in here, it would end this process without a word
                    self._failure = error
                self._woken.set()
            return handle(message)

        self._serving = None
        manager._handle_batch_output = seen

    def _signals(self, manager: object) -> SglangChild:
        """In the place of SGLang's class, whose handler kills this process before it can say why."""
        return self

    def running_phase_sigquit_handler(self, signum: object = None, frame: object = None) -> None:
        self._died = True

    def sigterm_handler(self, signum: object = None, frame: object = None) -> None:
        self._engine.shutdown()
        os._exit(128 + signal.SIGTERM)

    def _check_alive(self) -> None:
        if self._failure is not None:
            raise self._failure
        gone = [process for process in self._processes if not process.is_alive()]
        if gone:
            raise died(f"a process of SGLang's ended with status {gone[0].exitcode}")
        if self._died:
            raise died("a process of SGLang's gave up")


def _known(engine: Mapping[str, object], names: set[str]) -> dict[str, object]:
    """As the installed version spells it. ValueError for what it does not have."""
    spelled = {_OLD_NAMES.get(key, key) if key not in names else key: value for key, value in engine.items()}
    if unknown := sorted(set(spelled) - names):
        raise ValueError(f"engine.{unknown[0]}: is not an option of the installed SGLang")
    return spelled


if __name__ == "__main__":
    run(SglangChild())
