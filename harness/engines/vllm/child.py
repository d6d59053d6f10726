"""Drives vLLM in the Python that has it: started by path, with its neighbours and the folder `child`.

The engine core runs in this process (VLLM_ENABLE_V1_MULTIPROCESSING=0), so the requests and steps of its scheduler can
be seen. Names checked against vLLM 0.26 and 0.32. This file is imported again by processes that vLLM spawns.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

_OURS = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parent.parent / "child")]
sys.path[:0] = _OURS
from facts import facts, one_graph  # noqa: E402
from obey import run  # noqa: E402
from ranges import put_ranges  # noqa: E402
from steady import Ranges, trace_steps  # noqa: E402
from steps import StepWatch  # noqa: E402
from wire import Ended  # noqa: E402

# vLLM's modules must not be searched for among our files.
sys.path[:] = [path for path in sys.path if path not in _OURS]

if TYPE_CHECKING:
    from specbench.harness.engines.child.capture import Capture
    from specbench.harness.engines.child.wire import Facts, Request, Serving, Step, Traced

_COUNTED = ("vllm:spec_decode_", "vllm:prefix_cache_", "vllm:num_preemptions")


class Completion(Protocol):
    token_ids: Sequence[int]
    text: str
    finish_reason: str | None


class RequestOutput(Protocol):
    """vLLM's output at the end of a request: one completion."""

    request_id: str
    prompt_token_ids: Sequence[int]
    outputs: Sequence[Completion]
    num_cached_tokens: int | None


class Detokenizer(Protocol):
    output_token_ids: Sequence[int]


class RequestState(Protocol):
    """State in vLLM's output processor while a request is in flight."""

    detokenizer: Detokenizer
    prompt_token_ids: Sequence[int] | None


class VllmChild:
    """`llm` is set once open. vLLM's request ids are our numbers as text."""

    _ranges: Ranges | None = None

    def open(self, engine: Mapping[str, object]) -> Facts:
        from vllm import LLM

        self.llm = LLM(**engine)
        self._engine = self.llm.llm_engine
        self._core = self._engine.engine_core.engine_core
        self._scheduler = self._core.scheduler
        self._steps = StepWatch(self._scheduler, one_graph(self._engine))
        return facts(self._engine)

    def serve(self, serving: Serving) -> Mapping[str, float]:
        before = self._counters()
        self._steps.begin()
        while not serving.is_over:
            if serving.is_cancelled and serving.in_flight:
                self._abort(serving)
                continue
            for request in serving.due():
                self._add(request)
            if not serving.in_flight:
                serving.wait()
                continue
            for output in self._engine.step():
                if output.finished:
                    self._end(serving, output)
            for step in self._steps.take():
                serving.step(step)
        self._settle()
        return {name: value - before.get(name, 0.0) for name, value in self._counters().items()}

    def reset(self) -> str:
        if not self._engine.vllm_config.cache_config.enable_prefix_caching:
            return "off"
        if not self.llm.reset_prefix_cache():
            raise RuntimeError("vLLM did not empty its prefix cache")
        return "emptied"

    def score(self, ids: list[int], num_scored: int) -> tuple[list[float], list[float]]:
        from vllm import SamplingParams

        params = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=1, detokenize=False)
        (output,) = self.llm.generate([{"prompt_token_ids": ids}], params, use_tqdm=False)
        self._steps.begin()
        rows = list(zip(ids, output.prompt_logprobs, strict=True))[-num_scored:]
        own = [by_token[token].logprob for token, by_token in rows]
        return own, [max(each.logprob for each in by_token.values()) for _, by_token in rows]

    def trace(self, requests: Sequence[Request], num_rounds: int, capture: Capture) -> Traced:
        import vllm

        if self._ranges is None:
            worker = getattr(self._engine.model_executor, "driver_worker", None)
            if worker is None:
                raise ValueError("engine: no rounds to trace; vLLM's workers are separate processes")
            self._ranges = Ranges()
            self._about_ranges = put_ranges(self._ranges, vllm.__version__, worker.model_runner)
        self._steps.begin()
        for request in requests:
            self._add(request)
        try:
            traced = trace_steps(self._step, len(requests), num_rounds, self._ranges, capture)
        finally:
            self._engine.abort_request([str(request["id"]) for request in requests])
            self._settle()
        traced["notes"] += self._about_ranges
        return traced

    def _step(self) -> list[Step]:
        self._engine.step()
        return self._steps.take()

    def kind_of(self, error: BaseException) -> str | None:
        """vLLM reports some lack of memory as a ValueError; errors of a pydantic model are ValueErrors, too."""
        text = str(error).lower()
        phrases = ("no available memory", "free memory on device", "kv cache is needed", "out of memory")
        return "memory" if any(words in text for words in phrases) else None

    def _add(self, request: Request) -> None:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        temperature, edits = request["temperature"], dict(request["edits"])
        if "logit_bias" in edits:
            edits["logit_bias"] = {int(token): bias for token, bias in edits["logit_bias"].items()}
        params = SamplingParams(
            temperature=temperature,
            top_p=request["top_p"],
            top_k=request["top_k"],
            max_tokens=request["max_tokens"],
            # All stop ids were sent, including the model's own; otherwise vLLM would add its own set.
            ignore_eos=True,
            stop_token_ids=request["stop_token_ids"],
            stop=request["stop"],
            seed=request["seed"] if temperature > 0 else None,
            detokenize=bool(request["stop"]),
            output_kind=RequestOutputKind.FINAL_ONLY,
            **edits,
        )
        name = str(request["id"])
        inside = self._engine.add_request(name, {"prompt_token_ids": request["prompt_ids"]}, params)
        self._steps.name(inside, request["id"])

    def _end(self, serving: Serving, output: RequestOutput) -> None:
        number, (answer,) = int(output.request_id), output.outputs
        for step in self._steps.take():
            serving.step(step)
        first_ns, last_ns = self._steps.times(number)
        serving.end(
            Ended(
                id=number,
                num_prompt_tokens=len(output.prompt_token_ids),
                token_ids=list(answer.token_ids),
                finish_reason=answer.finish_reason or "error",
                t_first_ns=first_ns,
                t_last_ns=last_ns,
                text=answer.text or None,
                cached_tokens=output.num_cached_tokens,
            )
        )

    def _abort(self, serving: Serving) -> None:
        for number in serving.in_flight:
            state = self._state(number)
            tokens = list(state.detokenizer.output_token_ids) if state is not None else []
            prompt = state.prompt_token_ids if state is not None else []
            self._engine.abort_request([str(number)])
            first_ns, last_ns = self._steps.times(number)
            serving.end(Ended(number, len(prompt or []), tokens, "abort", first_ns, last_ns))

    def _state(self, number: int) -> RequestState | None:
        """The state of a request in flight in vLLM's output processor."""
        states: Mapping[str, RequestState] = self._engine.output_processor.request_states
        names = self._steps.inside(number)
        return next((states[name] for name in names if name in states), None)

    def _settle(self) -> None:
        """Reads what is still in flight: steps launched before it was known that their requests had ended."""
        while self._scheduler.has_requests() or getattr(self._core, "batch_queue", None):
            self._engine.step()

    def _counters(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for metric in self.llm.get_metrics():
            if not metric.name.startswith(_COUNTED):
                continue
            name = "engine." + metric.name.removeprefix("vllm:")
            values = getattr(metric, "values", None)
            each = {name: metric.value} if values is None else {f"{name}/{i}": v for i, v in enumerate(values)}
            found.update({key: float(value) for key, value in each.items()})
        return found


if __name__ == "__main__":
    run(VllmChild())
