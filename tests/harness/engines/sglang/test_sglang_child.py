"""Our child drives a package that answers as SGLang does: steps and acceptance from its messages, faults, its end."""

from __future__ import annotations

import os
import runpy
import signal
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest
import toy
from toy.alive import is_alive
from toy.child_orders import request, serve
from toy.processes import eventually

from specbench.harness.engines.child.process import ChildProcess
from specbench.harness.engines.child.wire import Step, StepRow
from specbench.harness.engines.sglang import mapping

FAKE = Path(toy.__file__).with_name("fake_sglang")
FAULTS = runpy.run_path(str(FAKE / "sglang" / "scheduler.py"))  # not imported: nothing of that name is to be found here
OUT_OF_MEMORY, DIES, REFUSED, CUT, MERGED, MISCOUNTED, TOO_LARGE = (
    FAULTS[name] for name in ("OUT_OF_MEMORY", "DIES", "REFUSED", "CUT", "MERGED", "MISCOUNTED", "TOO_LARGE")
)

CHAIN = {
    "speculative_algorithm": "EAGLE3",
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 4,
}
TREE = {**CHAIN, "speculative_num_steps": 2, "speculative_eagle_topk": 2}


def started() -> ChildProcess:
    command = [sys.executable, str(Path(mapping.__file__).with_name("child.py"))]
    return ChildProcess(command, {"PYTHONPATH": str(FAKE)}, Path(tempfile.mkdtemp()) / "log")


def opened(child: ChildProcess, **args) -> dict:
    return child.ask({"do": "open", "engine": {"model_path": "m", "disable_radix_cache": True, **args}}, "opened")


@pytest.fixture
def child():
    """With an EAGLE chain of three drafts."""
    with started() as process:
        opened(process, **CHAIN)
        yield process


def served(child: ChildProcess, command: dict) -> tuple[dict[int, dict], list[tuple[Step, StepRow]], dict]:
    """Ended requests by id, steps with a row each, counters."""
    messages = list(child.asking(command, "served"))
    ended = {one["id"]: one for message in messages for one in message.get("ended", ())}
    steps = [Step(*values) for message in messages for values in message.get("steps", ())]
    rows = [(step, StepRow(*row)) for step in steps for row in step.rows]
    return ended, rows, messages[-1]["served"]["counters"]


def test_says_what_it_is(child):
    with started() as other:
        told = opened(other, decode_attention_backend="fa3", prefill_attention_backend="triton", random_seed=3)
    assert (told["version"], told["hardware"]) == ("0.5.16", "cpu")
    assert told["graph_mode"] == "decode full, prefill disabled"
    assert told["backend"] == "prefill triton, decode fa3"
    assert told["config"]["random_seed"] == 3 and told["config"]["max_req_input_len"] == 100
    assert told["config"]["eos_token_ids"] == [2]


def test_a_message_is_a_step_and_its_counters_are_the_acceptance(child):
    ended, rows, counters = served(child, serve(request(0, 5, 10), request(1, 5, 20, 30, max_tokens=9)))
    assert ended[0]["token_ids"] == list(range(11, 18)) and ended[1]["token_ids"] == list(range(31, 40))
    assert all(one["finish_reason"] == "length" and one["error"] == "" for one in ended.values())
    for number, one in ended.items():
        mine = [(step, row) for step, row in rows if row.request_id == number]
        assert sum(row.num_emitted for _, row in mine) == len(one["token_ids"])
        assert [row.is_prefill for _, row in mine] == [True] + [False] * (len(mine) - 1)
        assert mine[0][0].t_host_ns == one["t_first_ns"] and mine[-1][0].t_host_ns == one["t_last_ns"]
        for _, row in mine[1:]:
            assert row.num_proposed == 3 and row.draft_depth is None
            assert row.num_emitted == row.num_accepted + 1 or row is mine[-1][1]
    rounds = [row for _, row in rows if not row.is_prefill]
    assert counters["engine.spec_verify_ct"] == len(rounds)
    assert counters["engine.spec_num_correct_drafts"] == sum(row.num_accepted for row in rounds)
    assert counters["engine.completion_tokens"] == 16
    assert counters["engine.spec_accept_length"] == 16 / len(rounds), "theirs counts the prompt's token, ours does not"
    by_number = [sum(row.num_accepted == accepted for row in rounds) for accepted in range(4)]
    assert by_number == [counters.get(f"engine.spec_correct_drafts_histogram/{n}", 0) for n in range(4)]


def test_steps_follow_each_other(child):
    _, rows, _ = served(child, serve(*(request(n, 5, 10 * n) for n in range(4)), most=2))
    steps = {step.number: step for step, _ in rows}
    assert sorted(steps) == list(range(len(steps)))
    for number, step in steps.items():
        assert step.t_start_ns < step.t_host_ns
        assert number == 0 or step.t_start_ns >= steps[number - 1].t_host_ns
        assert step.batch_size == len(step.rows) <= 2
    assert {(row.is_prefill, row.num_rows) for _, row in rows} == {(True, 2), (False, 4)}


@pytest.mark.parametrize(("num_steps", "depth"), [(2, 2), (5, 3)])
def test_a_tree_is_at_most_as_deep_as_it_has_nodes(num_steps, depth):
    with started() as child:
        opened(child, **{**TREE, "speculative_num_steps": num_steps})
        _, rows, _ = served(child, serve(request(0, 5, 10)))
    assert {(row.num_proposed, row.draft_depth) for _, row in rows if not row.is_prefill} == {(3, depth)}


def test_no_speculation():
    with started() as child:
        opened(child)
        _, rows, counters = served(child, serve(request(0, 5, 10)))
    assert [(row.num_emitted, row.num_proposed, row.num_accepted) for _, row in rows] == [(1, 0, 0)] * 7
    assert "engine.spec_accept_length" not in counters


def test_where_drafts_vary_acceptance_is_not_known():
    with started() as child:
        opened(child, **CHAIN, speculative_adaptive=True)
        _, rows, counters = served(child, serve(request(0, 5, 10)))
    assert {(row.num_proposed, row.num_accepted) for _, row in rows if not row.is_prefill} == {(None, None)}
    assert counters["engine.spec_num_correct_drafts"] > 0


def test_stop_tokens(child):
    stopped = request(0, 5, 10, max_tokens=20, ignore_eos=False, stop_token_ids=[14])
    ended, rows, _ = served(child, serve(stopped, request(1, 5, 10, ignore_eos=True, stop_token_ids=[14])))
    assert ended[0]["token_ids"] == [11, 12, 13, 14] and ended[0]["finish_reason"] == "stop"
    assert ended[1]["finish_reason"] == "error" and "SGLang ignores them" in ended[1]["error"]
    accepted = sum(row.num_accepted for _, row in rows if row.request_id == 0 and not row.is_prefill)
    assert accepted > 1, "before the answer is cut"


@pytest.mark.parametrize(
    ("token", "error"),
    [
        (REFUSED, "longer than the model's context"),
        (CUT, "ended the answer after 3 of 7 tokens"),
        (MISCOUNTED, "its steps add up to"),
    ],
)
def test_a_request_that_fails_alone(child, token, error):
    ended, _, _ = served(child, serve(request(0, token, 10), request(1, 5, 10)))
    assert ended[0]["finish_reason"] == "error" and error in ended[0]["error"]
    assert ended[1]["finish_reason"] == "length" and ended[1]["error"] == ""


def test_arrivals(child):
    asked_ns = time.monotonic_ns()  # the clock of the child
    ended, _, _ = served(child, serve(request(0, 5, 10), request(1, 5, 20, arrival_s=0.2)))
    assert ended[1]["t_submit_ns"] - asked_ns >= 200_000_000 and ended[1]["t_submit_ns"] > ended[0]["t_submit_ns"]


def test_a_cancel_aborts_what_is_in_flight_and_the_child_goes_on(child):
    asked = serve(request(0, 5, 10, max_tokens=10**6), request(1, 5, 20, arrival_s=1e6))
    messages: list[dict] = []  # the first one tells of steps: the first request is in flight
    for message in child.asking(asked, "served", lambda: bool(messages)):
        messages.append(message)
    (ended,) = [one for message in messages for one in message.get("ended", ())]
    assert (ended["id"], ended["finish_reason"], ended["error"]) == (0, "abort", "")
    assert served(child, serve(request(2, 5, 10)))[0][2]["finish_reason"] == "length"


def test_reset_flushes(child):
    served(child, serve(request(0, 5, 10)))
    assert child.ask({"do": "reset"}, "reset") == {"prefix_cache": "off"}
    with started() as other:
        opened(other, disable_radix_cache=False)
        assert other.ask({"do": "reset"}, "reset") == {"prefix_cache": "emptied"}


def test_scores_are_of_the_last_tokens(child):
    scored = child.ask({"do": "score", "ids": [1, 2, 3, 4, 5], "num_scored": 2}, "scored")
    assert scored == {"log_probs": [-0.4, -0.5], "best_log_probs": [-0.1, -0.1]}
    with pytest.raises(ValueError, match="the first has no score"):
        child.ask({"do": "score", "ids": [1, 2], "num_scored": 2}, "scored")


def test_an_option_that_the_installed_version_does_not_have():
    with started() as child, pytest.raises(ValueError, match="engine.warp: is not an option of the installed SGLang"):
        opened(child, warp=9)


def gone(pids: list[int]) -> bool:
    """Zombies count as gone: whoever inherits them is told."""
    return eventually(lambda: not any(map(is_alive, pids)))


def family(child: ChildProcess) -> list[int]:
    found = [child.pid, *(each.pid for each in psutil.Process(child.pid).children(recursive=True))]
    assert len(found) >= 2, "a scheduler is a process of its own"
    return found


@pytest.mark.parametrize(
    ("token", "error"),
    [(OUT_OF_MEMORY, "out of memory: .*CUDA out of memory. Tried to"), (DIES, "ended with status 3")],
)
def test_the_scheduler_dies(token, error):
    with started() as child:
        opened(child, **CHAIN)
        pids = family(child)
        told = child.asking(serve(request(0, 5, 10, max_tokens=3), request(1, token, 10, max_tokens=50)), "served")
        ended = []
        with pytest.raises(RuntimeError, match=error):
            ended += [one for message in told for one in message.get("ended", ())]
    assert gone(pids)


def test_the_scheduler_is_killed_while_nothing_is_asked(child):
    pids = family(child)
    scheduler = [pid for pid in pids if "spawn_main" in " ".join(psutil.Process(pid).cmdline())]
    os.kill(scheduler[0], signal.SIGKILL)
    assert gone(scheduler[:1])
    with pytest.raises(RuntimeError, match="ended with status -9"):
        child.ask({"do": "reset"}, "reset")
    child.stop()
    assert gone(pids)


def test_a_model_that_does_not_fit():
    with started() as child, pytest.raises(RuntimeError, match="out of memory: .*Tried to allocate 2.00 GiB"):
        opened(child, model_path=TOO_LARGE)
    assert gone([child.pid])


def test_messages_that_are_not_steps_are_refused():
    with started() as child:
        opened(child)
        with pytest.raises(RuntimeError, match="several steps of a request in one message"):
            served(child, serve(request(0, MERGED, 10)))


def test_nothing_is_left_behind(child):
    pids = family(child)
    assert child.stop() == 0
    assert gone(pids)


def test_our_death_ends_it(child):
    pids = family(child)
    os.kill(child.pid, signal.SIGKILL)
    child.stop()
    assert gone(pids)
