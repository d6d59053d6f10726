"""Drives SGLang in the Python that has it: started by path, with what wire.py beside it says.

`sglang.Engine` keeps its scheduler, and so its step loop, in a process of its own; requests and outputs pass through
this one. Names checked against SGLang 0.5.16. This file is imported again by the processes that SGLang spawns.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import multiprocessing
import os
import re
import signal
import sys
import time
from collections.abc import Awaitable, Mapping
from pathlib import Path
from typing import Any

_HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(_HERE), str(_HERE.parent / "child")]
from outputs import Outputs  # noqa: E402
from wire import Ended, Serving, run  # noqa: E402

# Nothing of SGLang's is to be looked for among our files.
sys.path[:] = [path for path in sys.path if path not in (str(_HERE), str(_HERE.parent / "child"))]

_TICK_S = 0.002  # how late an arrival or a cancel is seen while no step ends
_WATCH_S = 0.2  # between two looks at SGLang's processes
_LOG_TAIL = 256 * 1024  # bytes
_MEMORY = re.compile(r"OutOfMemoryError|out of memory|Not enough memory", re.IGNORECASE)
_ERROR = re.compile(r"^(\[.*\] )?[\w.]*(Error|Exception)\b.*: ")
_FLUSH_TRIES = 100
_SUMMED = (
    "completion_tokens",
    "num_retractions",
    "spec_verify_ct",
    "spec_num_correct_drafts",
    "spec_num_proposed_drafts",
)
_OLD_NAMES = {"cuda_graph_max_bs_decode": "cuda_graph_max_bs"}


class EngineDied(RuntimeError):
    """A process of SGLang's has ended. `kind`: memory or engine."""

    def __init__(self, kind: str, text: str):
        super().__init__(text)
        self.kind = kind


class SglangChild:
    """One `sglang.Engine`."""

    def open(self, engine: Mapping[str, Any]) -> Mapping[str, Any]:
        # Tokens leave the scheduler after every step, as a streaming client gets them; its default for others is 50.
        os.environ["SGLANG_FORCE_STREAM_INTERVAL"] = "1"
        import sglang
        from sglang.srt.server_args import ServerArgs

        engine = _known(engine, {each.name for each in dataclasses.fields(ServerArgs)})
        try:
            # The scheduler asks for our death by SIGQUIT; ignored, its own end is what we see, and can tell.
            self._engine = sglang.Engine(**engine, custom_sigquit_handler=signal.SIG_IGN)
        except RuntimeError as error:
            raise _died(str(error)) from error
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
        self._outputs = _outputs_of(info)
        return {
            "version": str(info.get("version", sglang.__version__)),
            "graph_mode": _graph_mode(info),
            "backend": _backend(info),
            "hardware": _hardware(info),
            "config": {**_plain(info), "eos_token_ids": sorted(manager.model_config.hf_eos_token_id or ())},
            "notes": [],
        }

    def serve(self, serving: Serving) -> Mapping[str, float]:
        self._num_served += 1
        self._serving: Serving | None = serving
        try:
            counters: Mapping[str, float] = self._until(self._serve(serving))
            return counters
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

    def _until(self, work: Awaitable[Any]) -> Any:
        """Its result. EngineDied as soon as a process of SGLang's is gone."""

        async def watched() -> Any:
            task = asyncio.ensure_future(work)
            while not task.done():
                await asyncio.wait([task], timeout=_WATCH_S)
                self._check_alive()
            return task.result()

        return self._engine.loop.run_until_complete(watched())

    async def _serve(self, serving: Serving) -> Mapping[str, float]:
        tasks: set[asyncio.Task[Mapping[str, Any]]] = set()
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
                _count(counters, task.result())
        for task in tasks:
            _count(counters, await task)
        return {f"engine.{name}": value for name, value in _with_length(counters).items()}

    async def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """One request from its submission to its end; what SGLang says of it."""
        rid = f"{self._num_served}-{request['id']}"
        self._outputs.submitted(rid, request["id"], time.monotonic_ns())
        try:
            answer = await self._engine.async_generate(
                input_ids=request["prompt_ids"], sampling_params=_sampling(request), rid=rid
            )
        except Exception as error:  # SGLang refuses single requests so, with errors of several libraries
            answer = {"output_ids": [], "meta_info": {}, "error": f"{type(error).__name__}: {error}"}
        meta = answer["meta_info"]
        seen, wrong = self._outputs.ended(rid, meta)
        ids = [int(token) for token in answer["output_ids"]]
        reason = _reason(meta.get("finish_reason"))
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

    def _listen(self, manager: Any) -> None:
        """Every message of the scheduler is seen before SGLang's own handler gets it."""
        handle = manager._handle_batch_output

        def seen(message: Any) -> Any:
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

    def _signals(self, manager: Any) -> SglangChild:
        """In the place of SGLang's class, whose handler kills this process before it can say why."""
        return self

    def running_phase_sigquit_handler(self, signum: Any = None, frame: Any = None) -> None:
        self._died = True

    def sigterm_handler(self, signum: Any = None, frame: Any = None) -> None:
        self._engine.shutdown()
        os._exit(128 + signal.SIGTERM)

    def _check_alive(self) -> None:
        if self._failure is not None:
            raise self._failure
        gone = [process for process in self._processes if not process.is_alive()]
        if gone:
            raise _died(f"a process of SGLang's ended with status {gone[0].exitcode}")
        if self._died:
            raise _died("a process of SGLang's gave up")


def _known(engine: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    """As the installed version spells it. ValueError for what it does not have."""
    spelled = {_OLD_NAMES.get(key, key) if key not in names else key: value for key, value in engine.items()}
    if unknown := sorted(set(spelled) - names):
        raise ValueError(f"engine.{unknown[0]}: is not an option of the installed SGLang")
    return spelled


def _sampling(request: Mapping[str, Any]) -> dict[str, Any]:
    """All that decides what is drawn and when an answer ends. Seeds are not taken without its deterministic mode."""
    if request["ignore_eos"] and request["stop_token_ids"]:
        raise ValueError("stop_token_ids: SGLang heeds none where it ignores the end of text")
    return {
        "temperature": request["temperature"],
        "top_p": request["top_p"],
        "top_k": request["top_k"] or -1,
        "max_new_tokens": request["max_tokens"],
        "ignore_eos": request["ignore_eos"],
        "stop_token_ids": request["stop_token_ids"],
    }


def _outputs_of(info: Mapping[str, Any]) -> Outputs:
    algorithm = info.get("speculative_algorithm")
    if not algorithm:
        return Outputs(num_draft_tokens=1, depth=None)
    varies = info.get("speculative_adaptive") or algorithm == "DSPARK"
    is_tree = (info.get("speculative_eagle_topk") or 1) > 1 and algorithm != "NGRAM"
    return Outputs(
        num_draft_tokens=None if varies else info["speculative_num_draft_tokens"],
        depth=info["speculative_num_steps"] if is_tree else None,
    )


def _count(counters: dict[str, float], meta: Mapping[str, Any]) -> None:
    for name in _SUMMED:
        if name in meta:
            counters[name] = counters.get(name, 0.0) + meta[name]
    for accepted, number in enumerate(meta.get("spec_correct_drafts_histogram", ())):
        name = f"spec_correct_drafts_histogram/{accepted}"
        counters[name] = counters.get(name, 0.0) + number


def _with_length(counters: dict[str, float]) -> dict[str, float]:
    """With SGLang's own figure, of this block: kept tokens, the prompt's included, a verification."""
    rounds = counters.get("spec_verify_ct")
    return {**counters, "spec_accept_length": counters["completion_tokens"] / rounds} if rounds else counters


def _reason(told: Any) -> str:
    kind = told.get("type") if isinstance(told, dict) else None
    return kind if kind in ("stop", "length", "abort") else "error"


def _graph_mode(info: Mapping[str, Any]) -> str | None:
    config = info.get("cuda_graph_config")
    if isinstance(config, dict):
        return ", ".join(f"{phase} {config[phase]['backend']}" for phase in ("decode", "prefill"))
    return "none" if info.get("disable_cuda_graph") else None


def _backend(info: Mapping[str, Any]) -> str | None:
    """Of prompts and of decode steps where they differ, and the drafter's where it has its own."""
    general = info.get("attention_backend")
    used = [info.get(f"{phase}_attention_backend") or general for phase in ("prefill", "decode")]
    named = used[0] if used[0] == used[1] else f"prefill {used[0]}, decode {used[1]}"
    own = info.get("speculative_draft_attention_backend")
    return f"{named}, drafter {own}" if own else named


def _hardware(info: Mapping[str, Any]) -> str:
    device = str(info.get("device") or "cuda")
    if not device.startswith("cuda"):
        return device
    import torch

    return str(torch.cuda.get_device_name(0))


def _plain(info: Mapping[str, Any]) -> dict[str, Any]:
    """As JSON, without what is unset, internal or says the same again; what JSON cannot say is said in words."""
    told = {k: v for k, v in info.items() if k != "internal_states" and not k.startswith("_") and v is not None}
    plain: dict[str, Any] = json.loads(json.dumps(told, default=str))
    return plain


def _died(text: str) -> EngineDied:
    """What the log says of it: its last line that names memory, else the last error."""
    lines = _log_lines()
    memory = [line for line in lines if _MEMORY.search(line)]
    told = memory or [line for line in lines if _ERROR.search(line)]
    return EngineDied("memory" if memory else "engine", told[-1] if told else text)


def _log_lines() -> list[str]:
    """The end of the file that standard error goes to, if it is a file."""
    path = Path(os.readlink("/proc/self/fd/2")) if sys.platform == "linux" else None
    if path is None or not path.is_file():
        return []
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _LOG_TAIL))
        return [line.strip() for line in file.read().decode(errors="replace").splitlines() if line.strip()]


if __name__ == "__main__":
    run(SglangChild())
