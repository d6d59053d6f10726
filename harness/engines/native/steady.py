"""Steady decode rounds at full batch: no request arrives or ends during them.

Every request may generate for longer than the rounds can last, and stop ids are ignored, so the batch stays full.
Prompts that leave too little room for that are skipped.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from specbench.harness.engines.load import Load
from specbench.harness.engines.native.core.engine import Engine
from specbench.harness.engines.native.core.request import Request
from specbench.harness.engines.traced import SteadyRounds, Tracer

from .drive import clear, empty

NUM_SETTLING_ROUNDS = 8  # after the last prompt: the first rounds meet cold caches and late status reads
IGNORED_STOPS = "stop ids are ignored in profiled rounds, so that no request ends within them"


def trace_rounds(engine: Engine, load: Load, num_rounds: int, tracer: Tracer) -> SteadyRounds:
    """Fills an idle, warmed-up engine, runs `num_rounds` decode rounds between `tracer.begin` and `end`, and empties
    it. Raises ValueError if the workload cannot keep the batch full for that long, RuntimeError if it was not full."""
    assert not engine.has_work, "the engine is still busy"
    requests = steady_requests(engine, load, num_rounds)
    ranges = engine.ranges
    tracer.arm()
    try:
        _fill(engine, requests)
        clear(engine)
        first = engine.num_steps
        engine.ranges = tracer.ranges
        tracer.begin()
        starts_ns = _run(engine, num_rounds)
    except BaseException:
        tracer.drop()
        raise
    finally:
        engine.ranges = ranges
    tracer.end()
    phases = list(engine.phase_log)
    for _ in range(engine.config.status_lag):  # whose own late reads are not the rounds'
        engine.step()
    empty(engine)
    return _seen(engine, range(first, first + num_rounds), len(requests), starts_ns, phases)


def steady_requests(engine: Engine, load: Load, num_rounds: int) -> list[Request]:
    """As many requests as the concurrency, from the prompts that leave room for the rounds, cycling if there are
    few."""
    size = min(load.max_concurrency, engine.config.max_num_seqs)
    lengths = [len(prompt.token_ids) for prompt in load.prompts]
    room = {n: _tokens_needed(engine, n, size, num_rounds) for n in set(lengths)}
    most = engine.config.max_model_len
    fitting = [index for index, n in enumerate(lengths) if n + room[n] <= most]
    if not fitting:
        shortest = min(lengths)
        raise ValueError(
            f"rounds: {num_rounds} are not allowed; they may add {room[shortest]} tokens to a request, and the "
            f"shortest prompt ({shortest} tokens) then exceeds max_model_len {most}; lower --rounds or raise "
            "--max-model-len"
        )
    max_tokens = max(room[lengths[index]] for index in fitting)
    return [_unending(load, fitting[n % len(fitting)], n, max_tokens) for n in range(size)]


def _tokens_needed(engine: Engine, prompt_len: int, size: int, num_rounds: int) -> int:
    """Tokens that a request may get until the last round is over, if all drafts are accepted and no prompt is
    longer."""
    tree = engine.strategy.tree
    per_round = (tree.depth if tree else engine.strategy.num_drafts) + 1
    # Early requests decode during the prompts of later ones.
    config = engine.config
    rows = config.max_num_batched_tokens - (engine.strategy.num_drafts + 1) * size
    rows = max(1, min(rows, config.most_beside_decodes))
    num_mixed = 1 + -(-size * prompt_len // rows)
    return per_round * (num_mixed + NUM_SETTLING_ROUNDS + num_rounds + config.status_lag + 2)


def _unending(load: Load, index: int, number: int, max_tokens: int) -> Request:
    request = load.request(index)
    sampling = replace(request.sampling, max_tokens=max_tokens, min_tokens=0, stop_token_ids=())
    return Request(number, request.prompt_ids, sampling)


def _fill(engine: Engine, requests: Sequence[Request]) -> None:
    try:
        for request in requests:
            engine.add(request)
    except ValueError:
        empty(engine)
        raise
    while engine.scheduler.wants_mixed_step():
        engine.step()
    for _ in range(NUM_SETTLING_ROUNDS):
        engine.step()
    if (num_running := len(engine.scheduler.running)) < len(requests):
        empty(engine)
        raise ValueError(
            f"num_pages: only {num_running} of {len(requests)} requests fit into the KV pages at "
            "once; raise --num-pages or lower --max-concurrency"
        )


def _run(engine: Engine, num_rounds: int) -> list[int]:
    starts_ns = [time.perf_counter_ns()]
    for _ in range(num_rounds):
        engine.step()
        starts_ns.append(time.perf_counter_ns())
    return starts_ns


def _seen(
    engine: Engine, steps: range, batch_size: int, starts_ns: list[int], phases: list[tuple[int, str, int]]
) -> SteadyRounds:
    rows = {row.step: row for row in engine.log.take() if row.step in steps}
    odd = [s for s in steps if s not in rows or (rows[s].kind, rows[s].batch_size) != ("decode", batch_size)]
    if odd:
        raise RuntimeError(f"rounds: the batch was not steady; {len(odd)} of {len(steps)} were not full decode rounds")
    names = Counter(name for row in rows.values() for name in (row.syncs or "").split(",") if name)
    by_phase: dict[tuple[str, int], int] = {}
    for step, name, ns in phases:
        if step in steps:
            by_phase[name, step] = by_phase.get((name, step), 0) + ns
    return SteadyRounds(
        batch_size=batch_size,
        round_ns=tuple(after - before for before, after in zip(starts_ns, starts_ns[1:], strict=False)),
        syncs_per_round=sum(row.num_syncs or 0 for row in rows.values()) / len(steps),
        syncs={name: count / len(steps) for name, count in names.items()},
        host_phases_ns={
            name: float(median(ns for (phase, _), ns in by_phase.items() if phase == name))
            for name in dict.fromkeys(name for name, _ in by_phase)
        },
    )
