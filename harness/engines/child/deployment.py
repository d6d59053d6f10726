"""One arm in a child of another Python environment, behind the interface of engines."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from specbench.harness.engines.base import Capabilities, Model, RowSink, Scored
from specbench.harness.engines.child.opened import Opened
from specbench.harness.engines.child.process import ChildProcess
from specbench.harness.engines.child.rows import counter_rows, request_row, step_rows
from specbench.harness.engines.child.wire import SETTLING, Command, Request
from specbench.harness.engines.load import Load, PromptRequest, cut_at_stop, cut_tokens
from specbench.harness.engines.traced import SteadyRounds, Traced, Tracer
from specbench.harness.engines.warmup import WarmUp
from specbench.harness.store.arm_record import EngineFacts, Fact
from specbench.harness.store.rows import RequestRow

_NO_GRAPHS = "the engine does not report how each of its steps ran"
_WARM_UP_TOKENS = 32  # per answer: several rounds, at every acceptance length


class ChildDeployment:
    """`child` has opened its engine. `ignore_eos`: answers continue to their limit whatever is sampled. `num_drafts`:
    the most tokens that a round adds to a request, minus one."""

    def __init__(
        self,
        child: ChildProcess,
        opened: Opened,
        *,
        capabilities: Capabilities,
        model: Model,
        batch_size: int,
        max_model_len: int,
        ignore_eos: bool,
        num_drafts: int = 0,
    ):
        self._child, self._described, self._capabilities = child, opened.facts, capabilities
        self._model, self._batch_size, self._max_model_len = model, batch_size, max_model_len
        self._ignore_eos, self._num_drafts = ignore_eos, num_drafts
        self._tells_graphs = True

    @property
    def described(self) -> EngineFacts:
        return self._described

    @property
    def capabilities(self) -> Capabilities:
        if self._tells_graphs:
            return self._capabilities
        return Capabilities({Fact.GRAPHS: _NO_GRAPHS, **self._capabilities.unknown})

    @property
    def batch_size(self) -> int:
        return self._batch_size

    def check(self, load: Load) -> None:
        for index in range(len(load)):
            request = load.request(index)
            num_tokens = len(request.prompt_ids) + request.sampling.max_tokens
            if num_tokens > self._max_model_len:
                raise ValueError(
                    f"max_model_len: {self._max_model_len} is not allowed; prompt {request.key} may need "
                    f"{num_tokens} tokens with its answer"
                )
            if (largest := max(request.prompt_ids, default=0)) >= self._model.vocab_size:
                raise ValueError(
                    f"prompt {request.key}: token {largest} is not allowed; the model has 0 to "
                    f"{self._model.vocab_size - 1}"
                )

    def warm_up(self, load: Load, warmup: WarmUp) -> None:
        """Short answers to the load's own prompts, at the load's concurrency. The first pass is not timed, because the
        engine compiles during it."""
        list(self._short_answers(load, 0))
        started = time.perf_counter()
        for number in itertools.count(1):
            durations_s = list(self._short_answers(load, number))
            for duration_s in durations_s:
                warmup.add(duration_s)
            if not durations_s or warmup.is_done or time.perf_counter() - started >= warmup.max_s:
                return

    def measure(self, load: Load, sink: RowSink) -> None:
        requests = [load.request(index) for index in range(len(load))]
        for row in self._serve(requests, load.arrival_s, load.max_concurrency, sink):
            sink.request(self._cut(requests[row.request_id], row))

    def reset(self) -> None:
        self._child.ask({"do": "reset"}, "reset")

    def generate(self, requests: Sequence[PromptRequest], sink: RowSink) -> dict[int, str | None]:
        tokenizer = self._model.tokenizer
        assert tokenizer is not None or not any(prompt.stop for prompt in requests), "stop strings need a tokenizer"
        prompts_by_id = {prompt.id: prompt for prompt in requests}
        texts: dict[int, str | None] = {}
        failed: list[RequestRow] = []
        for row in self._serve(requests, [0.0] * len(requests), self.batch_size, sink):
            if row.finish_reason in ("abort", "error"):
                failed.append(row)
                continue
            prompt, cut = prompts_by_id[row.request_id], self._cut(prompts_by_id[row.request_id], row)
            sink.request(cut)
            kept = list(cut.output_token_ids or ())
            texts[row.request_id] = cut_at_stop(tokenizer.decode(kept), prompt.stop) if tokenizer else None
        if failed:
            reason = failed[0].error or failed[0].finish_reason
            raise RuntimeError(f"{len(failed)} of {len(requests)} requests failed: {reason}")
        return texts

    def _cut(self, prompt: PromptRequest, row: RequestRow) -> RequestRow:
        """Removes what follows a stop string."""
        tokenizer, output_ids = self._model.tokenizer, list(row.output_token_ids or ())
        if not prompt.stop or tokenizer is None:
            return row
        kept = cut_tokens(output_ids, prompt.stop, tokenizer.decode, prompt.sampling.min_tokens)
        reason = "stop" if len(kept) < len(output_ids) else row.finish_reason
        return row._replace(output_token_ids=kept, num_output_tokens=len(kept), finish_reason=reason)

    def score(self, ids: Sequence[int], num_scored: int) -> Scored:
        scored = self._child.ask({"do": "score", "ids": list(ids), "num_scored": num_scored}, "scored")
        return Scored.of(scored["log_probs"], scored["best_log_probs"])

    def trace(self, load: Load, num_rounds: int, tracer: Tracer) -> Traced:
        requests = self._unending(load, num_rounds)
        command: Command = {
            "do": "trace",
            "requests": self._wired(requests, [0.0] * len(requests), ignore_eos=True),
            "num_rounds": num_rounds,
            "tool": tracer.tool,
            "path": None if tracer.path is None else str(tracer.path),
        }
        reply = self._child.ask(command, "traced")
        return Traced(
            rounds=SteadyRounds(
                batch_size=len(requests),
                round_ns=tuple(reply["round_ns"]),
                unprofiled_ns=tuple(reply["unprofiled_ns"]),
                syncs_per_round=None,
                syncs={},
                host_phases_ns={},
            ),
            graph_plan=self._described.graph_mode or "unknown",
            num_drafts=self._num_drafts,
            claimed_parts={},
            node_maps=(),
            notes=tuple(reply["notes"]),
        )

    def _unending(self, load: Load, num_rounds: int) -> list[PromptRequest]:
        """As many requests as the concurrency, from the prompts that leave room for all rounds, cycling if there are
        few."""
        size = min(load.max_concurrency, self._batch_size)
        prompts = [load.request(index) for index in range(len(load))]
        room = (1 + self._num_drafts) * (2 * num_rounds + SETTLING + size + 2)
        fitting = [each for each in prompts if len(each.prompt_ids) + room <= self._max_model_len]
        if not fitting:
            raise ValueError(
                f"rounds: {num_rounds} is not allowed; with as many rounds before them they may add {room} tokens to a "
                f"request, which no prompt leaves room for in max_model_len {self._max_model_len}; lower --rounds or "
                "raise --max-model-len"
            )
        chosen = [fitting[number % len(fitting)] for number in range(size)]
        return [
            replace(
                request,
                id=number,
                stop=(),
                sampling=replace(
                    request.sampling, max_tokens=self._max_model_len - len(request.prompt_ids), stop_token_ids=()
                ),
            )
            for number, request in enumerate(chosen)
        ]

    def _short_answers(self, load: Load, number: int) -> Iterator[float]:
        """Durations in seconds of steps without prompts."""
        first = number * load.max_concurrency
        prompts = [load.request(index % len(load)) for index in range(first, first + load.max_concurrency)]
        short = [
            replace(request, id=position, sampling=request.sampling.at_most(_WARM_UP_TOKENS))
            for position, request in enumerate(prompts)
        ]
        command = self._command(short, [0.0] * len(short), load.max_concurrency)
        for message in self._child.asking(command, "served"):
            steps = {row.step: row for row in step_rows(message.get("steps", ())) if row.kind == "decode"}
            for step in steps.values():
                self._tells_graphs = self._tells_graphs and step.graph is not None
                assert step.t_start_ns is not None and step.t_host_ns is not None
                yield (step.t_host_ns - step.t_start_ns) / 1e9

    def _serve(
        self, requests: Sequence[PromptRequest], arrival_s: Sequence[float], max_concurrency: int, sink: RowSink
    ) -> Iterator[RequestRow]:
        """Yields requests as they end; the sink gets all other rows."""
        keys = {request.id: request.key for request in requests}
        command = self._command(requests, arrival_s, max_concurrency)
        for message in self._child.asking(command, "served", lambda: sink.cancelled):
            if steps := message.get("steps"):
                sink.add_steps(list(step_rows(steps)))
            for ended in message.get("ended", ()):
                yield request_row(ended, keys[ended["id"]])
            if served := message.get("served"):
                sink.add_counters(counter_rows(served["counters"]))

    def _command(self, requests: Sequence[PromptRequest], arrival_s: Sequence[float], max_concurrency: int) -> Command:
        prompts = self._wired(requests, arrival_s, ignore_eos=self._ignore_eos)
        return {"do": "serve", "max_concurrency": max_concurrency, "requests": prompts}

    @staticmethod
    def _wired(requests: Sequence[PromptRequest], arrival_s: Sequence[float], *, ignore_eos: bool) -> list[Request]:
        return [
            {
                "id": request.id,
                "prompt_ids": list(request.prompt_ids),
                "max_tokens": request.sampling.max_tokens,
                "temperature": request.sampling.temperature,
                "top_k": request.sampling.top_k,
                "top_p": request.sampling.top_p,
                "stop_token_ids": list(request.sampling.stop_token_ids),
                "ignore_eos": ignore_eos,
                "stop": list(request.stop),
                "seed": request.sampling.seed,
                "edits": request.sampling.spelled,
                "arrival_s": at_s,
            }
            for request, at_s in zip(requests, arrival_s, strict=True)
        ]
