"""Goodput, against a count by hand as `vllm bench serve --goodput` makes it."""

from __future__ import annotations

import pytest
from run_samples import begun, frame, request, sample_run

from specbench.harness.metrics.goodput import REQUESTS_PER_S, SHARE, goodput, with_goodput
from specbench.harness.metrics.run_results import results_of
from specbench.harness.stats.slos import parse_slos
from specbench.harness.store.run_directory import RunDirectory

REQUESTS = [
    request(0, submit_ms=0, first_ms=20, last_ms=80, num_output_tokens=7),  # TTFT 20, TPOT 10, E2EL 80
    request(1, submit_ms=10, first_ms=50, last_ms=90, num_output_tokens=3),  # TTFT 40, TPOT 20, E2EL 80
    request(2, submit_ms=0, first_ms=30, last_ms=30, num_output_tokens=1),  # TTFT 30, no TPOT, E2EL 30
    request(3, submit_ms=0, first_ms=0, last_ms=0, num_output_tokens=0, finish_reason="error", error="boom"),
    request(4, submit_ms=0, first_ms=5, last_ms=100, num_output_tokens=3, finish_reason="abort"),
]
WINDOW_S = 0.1


@pytest.mark.parametrize(
    ("slos", "kept"),
    [
        ("ttft:30", 2),  # a limit may be reached, and is not exceeded
        ("ttft:29.9", 1),
        ("tpot:10", 2),  # one token has no TPOT and keeps every limit on it
        ("e2el:79", 1),
        ("ttft:30 tpot:9", 1),
        ("ttft:40 tpot:20 e2el:80", 3),
        ("ttft:1", 0),
    ],
)
def test_a_request_counts_that_keeps_all_limits(slos, kept):
    found = goodput(frame("requests", REQUESTS), parse_slos(slos.split()))
    assert found == {REQUESTS_PER_S: pytest.approx(kept / WINDOW_S), SHARE: pytest.approx(kept / 5)}


def test_nothing_has_no_goodput():
    assert goodput(frame("requests", REQUESTS[:0]), {"ttft": 1.0}) == {REQUESTS_PER_S: None, SHARE: None}
    assert goodput(frame("requests", REQUESTS[3:4]), {"ttft": 1.0}) == {REQUESTS_PER_S: None, SHARE: 0.0}


def test_results_get_it_block_by_block_and_only_when_asked(tmp_path):
    run = sample_run(tmp_path)
    found, requests = results_of(run), run.frames().requests
    assert with_goodput(found, requests, {}) is found
    slos = {"ttft": 20.0, "tpot": 4.2}
    asked = with_goodput(found, requests, slos)
    for block in asked.blocks:
        own = requests[(requests["arm"] == block.arm) & (requests["repeat"] == block.repeat)]
        num_kept = 0
        for row in own.itertuples():
            tpot_ms = (row.t_last_ns - row.t_first_ns) / max(row.num_output_tokens - 1, 1) / 1e6
            is_served = row.finish_reason in ("stop", "length") and row.num_output_tokens > 0
            num_kept += is_served and row.t_first_ns - row.t_submit_ns <= 20e6 and tpot_ms <= 4.2
        seconds = (own["t_last_ns"].max() - own["t_submit_ns"].min()) / 1e9
        assert block.figures.values[REQUESTS_PER_S] == pytest.approx(num_kept / seconds), block.arm
    assert [arm.median(SHARE) for arm in asked.arms] == [0.0, 0.75, None]  # the third failed
    per_s = [b.figures.values[REQUESTS_PER_S] for b in asked.blocks if b.arm == asked.arms[1].label]
    assert asked.arms[1].median(REQUESTS_PER_S) == pytest.approx(sum(per_s) / 2)


@pytest.mark.parametrize(("slos", "is_known"), [({"ttft": 50.0}, False), ({"tpot": 50.0}, True)])
def test_a_void_ttft_keeps_no_limit(tmp_path, slos, is_known):
    """A prefix cache served prompts of the second block, whose TTFT is that of other prompts."""
    run = RunDirectory.create(tmp_path, "cached", begun("no-spec"))
    for repeat, hits in enumerate((0, 96)):
        counters = [{"name": "engine.cached_prompt_tokens", "value": hits}]
        run.append("no-spec", repeat, requests=REQUESTS[:3], steps=[], counters=counters)
    found = with_goodput(results_of(run), run.frames().requests, slos)
    assert [block.figures.values[SHARE] for block in found.blocks] == [1.0, 1.0 if is_known else None]
    assert (found.blocks[1].figures.values[REQUESTS_PER_S] is not None) == is_known
    assert found.arms[0].median(SHARE) == 1.0


WRONG = ["itl:5", "ttft", "ttft:", "ttft:x", "ttft:0", "ttft:-1", "ttft:inf", "ttft:nan", "", "ttft:5,tpot:5", "500"]


@pytest.mark.parametrize("word", WRONG)
def test_what_is_no_limit_is_refused(word):
    with pytest.raises(ValueError, match="^goodput: ") as refused:
        parse_slos([word])
    said = str(refused.value)
    assert repr(word) in said and "ttft:MS, tpot:MS, e2el:MS, each at most once" in said and "ttft:500 tpot:50" in said


def test_a_limit_is_given_once():
    with pytest.raises(ValueError, match="ttft again"):
        parse_slos(["ttft:1", "tpot:2", "ttft:3"])
