"""Steady rounds and the torch profiler over them, from the batch to the file, on a CPU."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from dataclasses import replace

import pytest
import torch
from toy.engines import assert_idle, generate, make_engine, named_strategy, request
from toy.plans import CPU, Plan, late
from toy.prompts import text_prompt

from specbench.harness.engines.load import Load
from specbench.harness.engines.native.drive import native_request
from specbench.harness.engines.native.steady import NUM_SETTLING_ROUNDS, steady_requests, trace_rounds
from specbench.harness.engines.ranges import NullRanges
from specbench.harness.profiling.tracers import NoTracer, TorchTracer
from specbench.workloads.base import Prompt


def _load(lengths=(9, 5, 12), *, max_concurrency: int = 3, **more) -> Load:
    prompts = [
        Prompt(id=str(i), text="", token_ids=tuple(text_prompt(i, n)), max_tokens=4) for i, n in enumerate(lengths)
    ]
    values = dict(temperature=0.0, top_k=0, top_p=1.0, stop_token_ids=(), seed=1)
    return Load(prompts=prompts, arrival_s=[0.0] * len(prompts), max_concurrency=max_concurrency, **(values | more))


def _engine(plan: Plan = CPU, **config):
    return make_engine(plan, named_strategy("eagle", k=2, head="random"), **{"max_model_len": 160, **config})


def test_the_batch_stays_full_though_answers_would_end():
    """Prompts ask for four tokens and their second ones are stop ids: neither ends a request within the rounds."""
    engine, load = _engine(), _load()
    answers = generate(engine, [native_request(load.request(i)) for i in range(3)])
    stops = tuple({r.output_ids[1] for r in answers.values()})
    rounds = trace_rounds(engine, replace(load, stop_token_ids=stops), 12, NoTracer())
    assert (rounds.batch_size, len(rounds.round_ns)) == (3, 12) and min(rounds.round_ns) > 0
    assert rounds.syncs_per_round == 1 and rounds.syncs == {"sampled_ids": 1.0}
    assert list(rounds.host_phases_ns) == ["advance", "verify", "accept", "draft_first", "draft_next"]
    assert_idle(engine)
    assert isinstance(engine.ranges, NullRanges) and not engine.log.rows
    generate(engine, [request(0, text_prompt(0, 9), max_tokens=6)])  # as good as before


@pytest.mark.parametrize(("plan", "per_round"), [(late("cpu", "none", 2), 0), (Plan("cpu", sync="multi"), 3)])
def test_the_engines_own_count_is_of_the_rounds_themselves(plan, per_round):
    """Status read late belongs to the round that it is of, also where it is read after the last one."""
    rounds = trace_rounds(_engine(plan), _load(), 7, NoTracer())
    assert rounds.syncs_per_round == per_round == pytest.approx(sum(rounds.syncs.values()))


def test_few_prompts_are_sent_in_turn_and_long_ones_passed_over():
    engine = _engine(max_model_len=96)
    seen = []
    add = engine.add
    engine.add = lambda r: (seen.append((r.id, len(r.prompt_ids))), add(r))  # type: ignore[method-assign]
    trace_rounds(engine, _load((9, 80, 5)), 4, NoTracer())
    assert seen == [(0, 9), (1, 5), (2, 9)]


def test_rounds_that_no_prompt_leaves_room_for_are_refused():
    with pytest.raises(ValueError, match=r"rounds: 90 are not allowed.*max_model_len 160; lower --rounds or raise"):
        trace_rounds(_engine(), _load(), 90, NoTracer())


def test_a_prompt_that_the_engine_refuses_leaves_it_idle():
    engine, load = _engine(), _load()
    wrong = replace(load, prompts=[*load.prompts[:2], replace(load.prompts[2], token_ids=(5, 9999))])
    with pytest.raises(ValueError, match="prompt: request 2 has token ids outside 0..127"):
        trace_rounds(engine, wrong, 4, NoTracer())
    assert_idle(engine)
    assert trace_rounds(engine, _load(), 4, NoTracer()).batch_size == 3


def test_requests_outlast_prompts_of_which_a_step_takes_few():
    """Three tokens a request in each step, if all drafts were accepted, from the first that decodes on."""
    engine, num_rounds, mixed = _engine(max_num_batched_tokens=21, mixed_chunk_size=2), 4, 0
    requests = steady_requests(engine, _load((12, 12, 12)), num_rounds)
    for each in requests:
        engine.add(each)
    while engine.scheduler.wants_mixed_step():
        engine.step()
        mixed += 1
    assert mixed > 5 and requests[0].sampling.max_tokens >= 3 * (mixed + NUM_SETTLING_ROUNDS + num_rounds)


def test_a_batch_that_the_pages_cannot_hold_is_refused():
    engine = _engine(num_pages=42, max_model_len=300)
    with pytest.raises(ValueError, match="num_pages: only . of 3 requests fit .* raise --num-pages"):
        trace_rounds(engine, _load((56, 56, 56)), 4, NoTracer())
    assert_idle(engine)


def test_a_request_that_leaves_is_seen(monkeypatch):
    engine = _engine()
    step, count = engine.step, iter(range(1000))

    def leaving():
        if next(count) == 20:
            engine.abort(1)
        return step()

    monkeypatch.setattr(engine, "step", leaving)
    with pytest.raises(RuntimeError, match="the batch was not steady"):
        trace_rounds(engine, _load(), 20, NoTracer())


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_the_torch_profiler_sees_exactly_the_rounds(tmp_path, name):
    path = tmp_path / name
    engine = _engine()
    trace_rounds(engine, _load(), 6, TorchTracer(path, torch.device("cpu")))
    opened = gzip.open(path) if name.endswith(".gz") else path.open("rb")
    with opened as file:
        events = [e for e in json.load(file)["traceEvents"] if e.get("cat") == "user_annotation"]
    names = Counter(e["name"].partition("specbench:")[2] for e in events if e["name"].startswith("specbench:"))
    steps = sorted(int(n.split()[1]) for n in names if n.startswith("step "))
    assert len(steps) == 6 and steps == list(range(steps[0], steps[0] + 6))
    # Twice in a round: the copy is queued within the step, and waited for after it.
    expected = {"advance": 6, "verify": 6, "accept": 6, "draft_first": 6, "draft_next": 6, "status": 12, "prepare": 6}
    assert {n: c for n, c in names.items() if not n.startswith("step ")} == expected
    assert isinstance(engine.ranges, NullRanges)


def test_the_hosts_own_phases_and_late_reads_have_ranges(tmp_path):
    def names(plan: Plan) -> set[str]:
        path = tmp_path / f"{plan.name}.json"
        trace_rounds(_engine(plan), _load(), 3, TorchTracer(path, torch.device("cpu")))
        events = json.loads(path.read_text())["traceEvents"]
        return {e["name"].partition("specbench:")[2] for e in events if e.get("cat") == "user_annotation"}

    assert {"next_tokens", "draft_ids", "prepare", "status"} <= names(Plan("cpu", sync="multi"))
    assert "late_status" in names(late("cpu", "none", 1)) and "late_status" not in names(CPU)


def test_a_load_of_more_than_the_engine_holds_is_its_largest_batch():
    rounds = trace_rounds(_engine(max_num_seqs=2), replace(_load(), max_concurrency=3), 3, NoTracer())
    assert rounds.batch_size == 2


@pytest.mark.parametrize("where", ["while the batch is filled", "within the rounds"])
def test_a_failure_leaves_no_profiler_running_and_the_ranges_as_they_were(tmp_path, monkeypatch, where):
    """A step that fails: the profiler, which is armed before the batch is filled, must not trace what comes after."""
    engine, path, stops = _engine(), tmp_path / "trace.json", []
    before, step, count = engine.ranges, engine.step, iter(range(1000))
    fails_at = 1 if where == "while the batch is filled" else 20

    def failing():
        if next(count) == fails_at:
            raise RuntimeError("no room")
        return step()

    stop = torch.profiler.profile.stop
    monkeypatch.setattr(engine, "step", failing)
    monkeypatch.setattr(torch.profiler.profile, "stop", lambda self: (stops.append(self), stop(self)))
    with pytest.raises(RuntimeError, match="no room"):
        trace_rounds(engine, _load(), 20, TorchTracer(path, torch.device("cpu")))
    assert len(stops) == 1 and engine.ranges is before and not path.exists()
    trace_rounds(_engine(), _load(), 3, TorchTracer(path, torch.device("cpu")))  # another can begin
    assert path.exists()
