"""Open load: requests arrive at the asked rate, and never more than --max-concurrency are in flight."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from specbench.workloads.arrivals import arrival_times

RATE, NUM, SEED = 20.0, 16, 3


def most_in_flight(requests: pd.DataFrame) -> int:
    """From the rows alone: +1 at each submission, -1 at each last token; an end at the same instant counts first."""
    starts, ends = requests["t_submit_ns"], requests["t_last_ns"]
    events = sorted([(t, 1) for t in starts] + [(t, -1) for t in ends])
    return int(np.cumsum([change for _, change in events]).max())


@pytest.fixture
def measured(cli, toy, only_run, clock):
    def run(*words) -> pd.DataFrame:
        result = cli(*toy, "-s", "no-spec", "--num-prompts", NUM, "--seed", SEED, *words)
        assert result.exit_code == 0, result.output
        rows = only_run().frames().requests
        for _, of_repeat in rows.groupby("repeat"):
            assert sorted(of_repeat["request_id"]) == list(range(NUM))
        assert (rows["num_output_tokens"] == 10).all()
        return rows.sort_values("request_id")

    return run


def test_no_request_is_early_and_the_rate_is_kept(measured):
    sent_s = measured("--request-rate", RATE, "--max-concurrency", NUM)["t_submit_ns"].to_numpy() / 1e9
    due_s = np.array(arrival_times(NUM, RATE, SEED))
    late_s = (sent_s - sent_s[0]) - (due_s - due_s[0])
    # The block's own start is not in the rows: the first request stands for it. A request waits for the step that is
    # under way, a millisecond of this clock; all at once would be 0.7 s early.
    assert late_s.min() > -0.01 and late_s.max() < 0.01 and due_s[-1] - due_s[0] > 0.7
    assert (np.diff(sent_s) >= 0).all()


@pytest.mark.parametrize("limit", [1, 2])
def test_max_concurrency_holds_at_any_rate(measured, limit):
    assert most_in_flight(measured("--request-rate", 10_000, "--max-concurrency", limit)) == limit


@pytest.mark.parametrize(("words", "is_slow"), [(("--request-rate", RATE), False), (("--request-rate", 10_000), True)])
def test_an_arm_that_cannot_keep_up_with_the_rate_says_so(measured, only_run, words, is_slow):
    """With one request in flight, the load is a closed loop, whatever the rate; times before a place is free are not
    in TTFT."""
    measured(*words, "--max-concurrency", NUM if not is_slow else 1, "--num-repeats", 2)
    notes = [note for note in only_run().record.arm("no-spec").notes if "--request-rate" in note]
    assert len(notes) == is_slow
    assert not is_slow or "--request-rate 10000: it cannot keep up with --max-concurrency 1" in notes[0]


@pytest.mark.parametrize("limit", [3, 99])
def test_all_at_once_fills_the_concurrency(measured, limit):
    assert most_in_flight(measured("--max-concurrency", limit)) == min(limit, NUM)


def test_a_resumed_run_keeps_an_infinite_rate(cli, toy, only_run):
    """JSON has no infinity."""
    cli(*toy, "-s", "no-spec")
    file = only_run().path / "run.json"
    raw = json.loads(file.read_text())
    assert raw["config"]["request_rate"] == "inf"
    raw["config"]["num_repeats"] = 2
    file.write_text(json.dumps(raw))
    assert cli("run", "--resume", only_run().path).exit_code == 0
    assert only_run().done_blocks() == {("no-spec", 0), ("no-spec", 1)}
