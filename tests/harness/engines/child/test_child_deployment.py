"""A deployment in a child without an engine: rows, warm-up, answers and scores as runs and certificates get them."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
import torch
from toy import fake_child

from specbench.harness.engines.base import Capabilities, Model
from specbench.harness.engines.child.deployment import ChildDeployment
from specbench.harness.engines.child.opened import Opened
from specbench.harness.engines.child.process import ChildProcess
from specbench.harness.engines.load import Load, PromptRequest
from specbench.harness.engines.warmup import WarmUp
from specbench.harness.profiling.host_trace import analyse_host_trace
from specbench.harness.profiling.rules import PhaseRules
from specbench.harness.profiling.tracers import NoTracer, TorchTracer
from specbench.harness.run.block_sink import NullSink
from specbench.harness.spec.logit_edits import LogitEdits
from specbench.harness.spec.sampling import SamplingParams
from specbench.harness.store.arm_record import Fact
from specbench.harness.store.inputs_record import ModelRecord
from specbench.harness.store.schema import build_table
from specbench.workloads.base import Prompt


class Kept(NullSink):
    def __init__(self, cancel_after: int | None = None):
        self.requests, self.steps, self.counters, self._most = [], [], {}, cancel_after

    @property
    def cancelled(self) -> bool:
        return self._most is not None and len(self.requests) >= self._most

    def request(self, row):
        self.requests.append(row)

    def add_steps(self, rows):
        self.steps += rows

    def add_counters(self, rows):
        self.counters.update(rows)


class Letters:
    """Token 97 is `a`."""

    vocab_size = 900

    def decode(self, ids: list[int]) -> str:
        return "".join(map(chr, ids))


@pytest.fixture
def deployment(tmp_path):
    model = Model(described=ModelRecord(), vocab_size=900, tokenizer=Letters(), eos_token_ids=())
    with ChildProcess([sys.executable, fake_child.__file__], {}, tmp_path / "log") as child:
        opened = Opened.of(child.ask({"do": "open", "engine": {}}, "opened"))
        yield ChildDeployment(
            child,
            opened,
            capabilities=Capabilities({Fact.SYNCS: "not told"}),
            model=model,
            batch_size=2,
            max_model_len=64,
            ignore_eos=False,
            num_drafts=2,
        )


def load_of(*first: int, max_tokens: int = 8, stop: tuple[int, ...] = ()) -> Load:
    prompts = [Prompt(id=f"p{n}", token_ids=(n, n), max_tokens=max_tokens, text="") for n in first]
    drawn = {"temperature": 0.0, "top_k": 0, "top_p": 1.0, "seed": 1}
    return Load(prompts=prompts, arrival_s=[0.0] * len(prompts), max_concurrency=2, stop_token_ids=stop, **drawn)


def test_what_it_is_was_read_back(deployment):
    assert deployment.described.version == "1.2" and deployment.described.backend == "fingers"
    assert deployment.described.notes == ("counts",) and deployment.described.config["pid"].isdigit()
    assert deployment.batch_size == 2 and not deployment.capabilities.knows(Fact.SYNCS)


def test_changes_of_logits_are_sent_to_the_child(deployment):
    edits = LogitEdits(min_tokens=99, banned_token_ids=(3,), logit_bias=((5, -1.0),))
    load = replace(load_of(10), edits=edits)
    (asked,) = deployment._command([load.request(0)], [0.0], 1)["requests"]
    assert asked["edits"] == {"banned_token_ids": [3], "logit_bias": {"5": -1.0}, "min_tokens": 8}, "8: max_tokens"
    (plain,) = deployment._command([load_of(10).request(0)], [0.0], 1)["requests"]
    assert plain["edits"] == {}


def test_a_block(deployment):
    sink = Kept()
    deployment.reset()
    deployment.measure(load_of(10, 20, 30), sink)
    rows = {row.prompt_id: row for row in sink.requests}
    assert list(rows["p20"].output_token_ids) == list(range(21, 29)) and rows["p20"].finish_reason == "length"
    assert rows["p20"].num_prompt_tokens == 2 and rows["p20"].t_submit_ns < rows["p20"].t_first_ns
    assert rows["p30"].t_submit_ns > min(rows["p10"].t_last_ns, rows["p20"].t_last_ns), "two at a time"
    assert sink.counters == {"engine.spec_decode_num_drafts": 8.0, "collects": 0.0}
    first = [row for row in sink.steps if row.request_id == 0]
    assert [(row.is_prefill, row.num_proposed, row.num_accepted, row.num_emitted) for row in first] == [
        (True, 0, 0, 1),
        (False, 2, 2, 3),
        (False, 2, 2, 3),
        (False, 2, 2, 1),
    ]
    assert [row.truncated for row in first] == [False, False, False, True]
    assert first[0].kind == "mixed" and first[0].num_rows == 2 and first[1].num_rows == 6
    assert first[1].draft_depth == 2 and first[1].t_device_ns is None and first[1].num_syncs is None
    for table, kept in (("requests", sink.requests), ("steps", sink.steps)):
        assert build_table(table, "arm", 0, kept).num_rows == len(kept)


def test_stop_ids_are_sent(deployment):
    sink = Kept()
    deployment.measure(load_of(10, stop=(15,)), sink)
    (row,) = sink.requests
    assert list(row.output_token_ids) == [11, 12, 13, 14, 15] and row.finish_reason == "stop"


def test_a_sink_that_wants_no_more_ends_the_block(deployment):
    sink = Kept(cancel_after=1)
    load = load_of(10, *range(20, 880), max_tokens=60)  # 9 s: the end is seen before that on busy cores, too
    deployment.measure(load, sink)
    assert sink.requests and sink.requests[-1].finish_reason == "abort" and len(sink.requests) < len(load)


def test_what_went_wrong_reaches_the_run_and_what_had_ended_is_kept(deployment):
    sink = Kept()
    with pytest.raises(RuntimeError, match="^out of memory"):
        deployment.measure(load_of(10, 20, fake_child.OUT_OF_MEMORY), sink)
    assert sink.requests and {row.prompt_id for row in sink.requests} <= {"p10", "p20"}


def test_warm_up_meets_the_load_and_is_fed_with_rounds(deployment):
    warmup = WarmUp(window_s=0.01, tolerance=0.9, max_s=20)
    deployment.warm_up(load_of(10, 20, 30), warmup)
    assert warmup.is_stable and warmup.num_rounds > 4
    assert "how each of its steps ran" in deployment.capabilities.unknown[Fact.GRAPHS], "its steps did not say"
    nothing_to_time = WarmUp(window_s=0.01, max_s=20)
    deployment.warm_up(load_of(10, max_tokens=1), nothing_to_time)
    assert nothing_to_time.num_rounds == 0


@pytest.mark.parametrize(
    ("load", "said"),
    [
        (load_of(10, max_tokens=63), "max_model_len: 64 is not allowed; prompt p10 may need 65 tokens"),
        (load_of(10, 900), "prompt p900: token 900 is not allowed; the model has 0 to 899"),
    ],
)
def test_a_request_that_can_never_be_served(deployment, load, said):
    with pytest.raises(ValueError, match=said):
        deployment.check(load)
    deployment.check(load_of(10, max_tokens=62))


def test_answers_are_cut_at_stop_strings(deployment):
    asked = [
        PromptRequest(id=n, key=f"k{n}", prompt_ids=(96,), text="", sampling=SamplingParams(max_tokens=12), stop=stop)
        for n, stop in enumerate([("ef",), ()])
    ]
    sink = Kept()
    assert deployment.generate(asked, sink) == {0: "abcd", 1: "abcdefghijkl"}
    cut, whole = sorted(sink.requests)
    assert (cut.num_output_tokens, cut.finish_reason) == (6, "stop"), "up to the token that ends the stop string"
    assert (whole.num_output_tokens, whole.finish_reason) == (12, "length")


def test_part_of_an_answer_is_none(deployment):
    """SGLang ends a request whose context is full with what there is; accuracy scored that as the answer."""
    sampling, sink = SamplingParams(max_tokens=4), Kept()
    asked = [
        PromptRequest(id=n, key=f"k{n}", prompt_ids=(first,), text="", sampling=sampling)
        for n, first in enumerate([96, fake_child.FAILS])
    ]
    with pytest.raises(RuntimeError, match="^1 of 2 requests failed: its context is full$"):
        deployment.generate(asked, sink)
    assert [row.request_id for row in sink.requests] == [0], "the other one is kept"


def test_scores(deployment):
    scored = deployment.score([5, 6, 7], 2)
    assert scored.log_prob == -1.0 and scored.is_greedy
    assert scored.regrets == (0.0, 0.0)
    unlikely = deployment.score([5, 6, 0], 2)
    assert not unlikely.is_greedy and unlikely.regrets == (0.25, 0.25)


def test_a_configuration_is_kept_flat():
    told = {"version": "1", "graph_mode": None, "backend": None, "hardware": None, "notes": []}
    config = {"sizes": [1, 2], "spec": {"method": "ngram", "k": 4, "model": None}, "eager": True}
    assert Opened.of({**told, "config": config}).facts.config == {
        "sizes": "[1, 2]",
        "spec.method": "ngram",
        "spec.k": "4",
        "eager": "true",
    }


def test_its_rounds_are_traced_in_its_own_process(deployment, tmp_path):
    path = tmp_path / "trace.json.gz"
    traced = deployment.trace(load_of(10, 20, 30, stop=(12,)), 4, TorchTracer(path, torch.device("cpu")))
    rounds = traced.rounds
    assert (rounds.batch_size, len(rounds.round_ns), len(rounds.unprofiled_ns)) == (2, 4, 4)
    assert (traced.num_drafts, traced.graph_plan, rounds.syncs_per_round) == (2, "none", None)
    profile = analyse_host_trace(path, rules=PhaseRules.shipped())
    assert [(p.phase, p.draft_step, p.ranges) for p in profile.host_phases] == [
        ("verify", None, 1),
        ("draft", 0, 1),
        ("draft", 1, 1),
    ]
    assert profile.quality.num_rounds == 4  # nothing of the rounds before them


def test_rounds_without_a_profiler_leave_no_ranges(deployment):
    assert len(deployment.trace(load_of(10, 20), 3, NoTracer()).rounds.round_ns) == 3


def test_rounds_that_no_prompt_leaves_room_for_are_refused(deployment):
    with pytest.raises(ValueError, match=r"rounds: 9 is not allowed.* max_model_len 64; lower --rounds"):
        deployment.trace(load_of(10, 20), 9, NoTracer())


def test_a_request_that_ends_within_the_rounds_is_seen(deployment, tmp_path):
    path = tmp_path / "trace.json.gz"
    with pytest.raises(ValueError, match="the batch was not steady: [0-9]+ steps were not decode rounds of 2 requests"):
        deployment.trace(load_of(fake_child.STALLS, 20), 3, NoTracer())
    deployment.trace(load_of(10, 20), 3, TorchTracer(path, torch.device("cpu")))
    assert path.exists()  # another can begin
