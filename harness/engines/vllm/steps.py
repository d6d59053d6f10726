"""What each step of vLLM's scheduler did, by request. Runs in the child, with the standard library only.

`schedule` returns what a step will do, `update_from_output` receives its outcome. vLLM may schedule a step before it
has the outcome of the previous one (asynchronous scheduling), so each outcome is matched with its own schedule.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from wire import Step, StepRow

_GRAPHS = {"NONE": "none", "PIECEWISE": "piecewise", "FULL": "full"}


class NewRequest(Protocol):
    req_id: str
    num_computed_tokens: int


class CachedRequests(Protocol):
    """Requests that ran before; the sequences have one entry per request."""

    req_ids: Sequence[str]
    num_computed_tokens: Sequence[int]


class Schedule(Protocol):
    """Of vLLM's `SchedulerOutput`; dictionaries are by its own names of requests."""

    num_scheduled_tokens: Mapping[str, int]
    scheduled_spec_decode_tokens: Mapping[str, Sequence[int]]
    scheduled_new_reqs: Sequence[NewRequest]
    scheduled_cached_reqs: CachedRequests


class Outcome(Protocol):
    """Of vLLM's `ModelRunnerOutput`. `cudagraph_stats` may be missing."""

    sampled_token_ids: Sequence[Sequence[int]]
    req_id_to_index: Mapping[str, int]


class Output(Protocol):
    request_id: str
    new_token_ids: Sequence[int]


class Outputs(Protocol):
    outputs: Sequence[Output]


class ScheduledRequest(Protocol):
    num_prompt_tokens: int
    num_tokens: int

    def is_finished(self) -> bool: ...


class Scheduler(Protocol):
    """`update_from_output`: outputs by client."""

    requests: Mapping[str, ScheduledRequest]
    schedule: Callable[..., Schedule]
    update_from_output: Callable[..., Mapping[int, Outputs]]


@dataclass
class _Launched:
    """A step without an outcome yet. `in_prefill`: requests whose prompt is not, or no longer, in the cache."""

    number: int
    t_start_ns: int
    in_prefill: frozenset[str]


@dataclass
class StepWatch:
    """Wraps two methods of a scheduler. `graph`: the graph mode of every step, if it cannot vary."""

    scheduler: Scheduler
    graph: str | None
    now_ns: Callable[[], int] = time.monotonic_ns
    _launched: dict[int, _Launched] = field(default_factory=dict, init=False)  # by the identity of the schedule
    _steps: list[Step] = field(default_factory=list, init=False)
    _numbers: dict[str, int] = field(default_factory=dict, init=False)
    _times: dict[int, tuple[int, int]] = field(default_factory=dict, init=False)
    _count: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._schedule, self._update = self.scheduler.schedule, self.scheduler.update_from_output
        self.scheduler.schedule, self.scheduler.update_from_output = self._watched_schedule, self._watched_update

    def begin(self) -> None:
        """Forgets all earlier steps; their numbers start at 0 again."""
        self._launched.clear()
        self._steps, self._numbers, self._times, self._count = [], {}, {}, 0

    def name(self, inside: str, number: int) -> None:
        """Rows of vLLM's request `inside` get this number."""
        self._numbers[inside] = number

    def inside(self, number: int) -> list[str]:
        return [name for name, known in self._numbers.items() if known == number]

    def take(self) -> list[Step]:
        taken, self._steps = self._steps, []
        return taken

    def times(self, number: int) -> tuple[int, int]:
        """When the host received the first and the last token; 0 if there was none."""
        return self._times.get(number, (0, 0))

    def _watched_schedule(self, *args: object, **kwargs: object) -> Schedule:
        t_start_ns = self.now_ns()
        planned = self._schedule(*args, **kwargs)
        if planned.num_scheduled_tokens:
            self._launched[id(planned)] = _Launched(self._count, t_start_ns, self._prefills(planned))
            self._count += 1
        return planned

    def _watched_update(
        self, planned: Schedule, outcome: Outcome, *args: object, **kwargs: object
    ) -> Mapping[int, Outputs]:
        # Before the update, which trims what follows a stop or the limit, and forgets requests that end.
        counted = {name: self._sampled(name, outcome) for name in planned.num_scheduled_tokens if self._lives(name)}
        outputs_by_client = self._update(planned, outcome, *args, **kwargs)
        launched = self._launched.pop(id(planned), None)
        if launched is not None:
            self._note(launched, planned, outcome, counted, outputs_by_client)
        return outputs_by_client

    def _note(
        self,
        launched: _Launched,
        planned: Schedule,
        outcome: Outcome,
        counted: Mapping[str, int],
        outputs_by_client: Mapping[int, Outputs],
    ) -> None:
        now_ns = self.now_ns()
        emitted = {
            output.request_id: len(output.new_token_ids)
            for outputs in outputs_by_client.values()
            for output in outputs.outputs
        }
        rows = []
        for name, num_sampled in counted.items():
            number = self._numbers.get(name)
            if number is None:
                continue
            if num_emitted := emitted.get(name, 0):
                self._times[number] = (self._times.get(number, (now_ns, now_ns))[0], now_ns)
            is_prefill = name in launched.in_prefill
            proposed = len(planned.scheduled_spec_decode_tokens.get(name, ())) if num_sampled else 0
            accepted = max(0, num_sampled - 1)
            num_rows = planned.num_scheduled_tokens[name]
            rows.append(StepRow(number, num_emitted, proposed, accepted, is_prefill, num_rows))
        if rows:
            graph, num_padded = self._graph_of(outcome, sum(planned.num_scheduled_tokens.values()))
            batch_size = len(planned.num_scheduled_tokens)
            step = Step(launched.number, launched.t_start_ns, now_ns, batch_size, rows, graph, num_padded)
            self._steps.append(step)

    def _prefills(self, planned: Schedule) -> frozenset[str]:
        cached = planned.scheduled_cached_reqs
        computed = {new.req_id: new.num_computed_tokens for new in planned.scheduled_new_reqs}
        computed.update(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        requests = self.scheduler.requests
        return frozenset(
            name
            for name, num in computed.items()
            if num < max(requests[name].num_prompt_tokens, requests[name].num_tokens - 1)
        )

    def _lives(self, name: str) -> bool:
        """A step that was launched before a request was known to have ended no longer counts for it."""
        request = self.scheduler.requests.get(name)
        return request is not None and not request.is_finished()

    @staticmethod
    def _sampled(name: str, outcome: Outcome) -> int:
        sampled = outcome.sampled_token_ids
        return len(sampled[outcome.req_id_to_index[name]]) if sampled else 0

    def _graph_of(self, outcome: Outcome, num_rows: int) -> tuple[str | None, int | None]:
        if self.graph is not None:
            return self.graph, num_rows
        stats = getattr(outcome, "cudagraph_stats", None)
        if stats is None:
            return None, None
        return _GRAPHS.get(str(stats.runtime_mode).rpartition(".")[2]), stats.num_padded_tokens
