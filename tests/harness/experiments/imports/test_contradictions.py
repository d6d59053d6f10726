"""Files that contradict themselves are refused, naming both sides; files that only round are not."""

from __future__ import annotations

import pytest
import tool_files
from tool_files import aiperf_records, guidellm_report, served, sglang_bench, vllm_bench

from specbench.harness.experiments.imports.checks import check_requests
from specbench.harness.experiments.imports.formats import read_results
from specbench.harness.experiments.imports.rows import all_steps

NO_TIMES = {"start_times": ..., "latencies": ...}  # older files


def read(tmp_path, *objects):
    """As an import reads a file before it writes anything."""
    file = tool_files.write(tmp_path / "f.json", *objects)
    found = read_results(file)
    for result in found:
        check_requests(result.requests, str(file))
    return found


def span(requests) -> float:
    return max(one.last for one in requests) - min(one.start for one in requests)


def test_a_duration_below_the_span_of_the_start_times_is_refused(tmp_path):
    requests = served(failed=(0,))
    took = span(requests[1:])
    read(tmp_path, vllm_bench(requests, duration=took / 1.03))
    said = rf"f.json: duration is 1 s, but the last request ended {took:.4g} s after the first was sent \(start_times\)"
    with pytest.raises(ValueError, match=said):
        read(tmp_path, vllm_bench(requests, duration=1.0))


def test_a_failed_request_that_was_sent_is_within_the_duration(tmp_path):
    requests = served(failed=(0,))
    raw = vllm_bench(requests)
    raw["start_times"][0] = requests[1].start - 30
    with pytest.raises(ValueError, match=r"duration is \d.* s, but the last request ended 3\d.* s after the first"):
        read(tmp_path, raw)


@pytest.mark.parametrize(
    ("make", "changes", "source"),
    [(sglang_bench, {}, "duration"), (vllm_bench, NO_TIMES, "duration"), (vllm_bench, {}, "start_times")],
)
def test_more_time_in_requests_than_max_concurrency_allows_is_refused(tmp_path, make, changes, source):
    """Without start times TPS follows from the duration alone."""
    requests = served()
    raw = make(requests, duration=span(requests) / 3, **changes)
    if source == "start_times":
        raw["start_times"] = [5000.0] * 12
    for allowed in (None, 0, 12):
        read(tmp_path, raw | {"max_concurrency": allowed})
    with pytest.raises(ValueError, match=rf"max_concurrency is 1, but requests took .* s together .* \({source}\)"):
        read(tmp_path, raw)


def test_a_served_request_without_a_start_time_did_not_start_at_0(tmp_path):
    """All would have started together, for a TPS of as many times its value."""
    (result,) = read(tmp_path, vllm_bench(served(), start_times=[0.0] * 12))
    assert {one.start_s for one in result.requests} == {None}


def test_latencies_below_their_gaps_are_refused(tmp_path):
    raw = vllm_bench(served())
    gaps_s = raw["ttfts"][2] + sum(raw["itls"][2])
    raw["latencies"][2] = raw["ttfts"][2] - 1e-5
    with pytest.raises(ValueError, match=rf"latencies\[2\] is .* s, but ttft and itls add up to {gaps_s:.4g} s"):
        read(tmp_path, raw)
    raw["itls"][2] = []  # a single chunk, of a version that took its time twice
    read(tmp_path, raw)


COUNTERS = {  # 20 verifications with 3 drafts each
    "spec_decode_num_drafts": 20,
    "spec_decode_draft_tokens": 60,
    "spec_decode_accepted_tokens": 30,
    "spec_decode_acceptance_length": 2.5,
    "spec_decode_acceptance_rate": 50.0,
    "spec_decode_per_position_acceptance_rates": [0.8, 0.5, 0.2],
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"acceptance_length": 9.9}, "f.json: spec_decode_acceptance_length is 9.9, but the counters give 2.5;"),
        ({"acceptance_length": 1.5}, "spec_decode_acceptance_length is 1.5, but the counters give 2.5;"),
        ({"acceptance_length": float("nan")}, "spec_decode_acceptance_length: NaN is not allowed"),
        ({"acceptance_rate": 60}, "spec_decode_acceptance_rate is 60, but the counters give 50;"),
        ({"per_position_acceptance_rates": [0.1] * 3}, "rates add up to 0.3, but the counters give 1.5;"),
        ({"per_position_acceptance_rates": [0.2, 0.5, 0.8]}, r"rates: \[0.2, 0.5, 0.8\] is not allowed; allowed: none"),
        ({"per_position_acceptance_rates": [0.9, 0.6]}, "rates has 2 positions, but the counters give 3 drafts per"),
        ({"num_drafts": 0}, "spec_decode_num_drafts is 0, but spec_decode_draft_tokens is 60"),
    ],
)
def test_acceptance_that_contradicts_the_counters_is_refused(tmp_path, changes, message):
    raw = vllm_bench(served()) | COUNTERS | {f"spec_decode_{name}": value for name, value in changes.items()}
    with pytest.raises(ValueError, match=message):
        read(tmp_path, raw)


@pytest.mark.parametrize(
    ("changes", "notes"),
    [
        ({}, []),
        ({"acceptance_length": ..., "acceptance_rate": ..., "per_position_acceptance_rates": []}, []),
        (dict.fromkeys(("num_drafts", "draft_tokens", "accepted_tokens"), 0), []),
        ({"num_drafts": 23}, ["no acceptance by position: verifications had different numbers of drafts"]),
        (
            {"num_drafts": 3000, "draft_tokens": 9000, "accepted_tokens": 4001},
            ["no acceptance by position: its rates are rounded"],
        ),
    ],
)
def test_counters_of_all_kinds_are_read(tmp_path, changes, notes):
    """Figures to two decimals; verifications with up to 3 drafts; without drafts; with the counters alone."""
    raw = vllm_bench(served()) | COUNTERS | {f"spec_decode_{name}": value for name, value in changes.items()}
    rounds, drafts, accepted = (
        raw[f"spec_decode_{name}"] for name in ("num_drafts", "draft_tokens", "accepted_tokens")
    )
    if rounds != 20:
        each = accepted / rounds if rounds else 0
        raw["spec_decode_acceptance_length"] = round(1 + each, 2) if rounds else 0.0
        raw["spec_decode_acceptance_rate"] = round(100 * accepted / max(drafts, 1), 2)
        raw["spec_decode_per_position_acceptance_rates"] = [round(each * share, 2) for share in (0.5, 0.3, 0.2)]
    (result,) = read(tmp_path, {name: value for name, value in raw.items() if value is not ...})
    assert result.drafts.num_rounds == rounds and result.notes == notes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ttfts": [-0.1] * 12}, r"f.json: ttfts\[0\]: -0.1 is not allowed; allowed: float >= 0.0$"),
        ({"itls": [[float("nan")]] * 12}, r"itls\[0\]\[0\]: NaN is not allowed"),
        ({"output_lens": [3] * 11}, "requests do not match: .*'output_lens': 11"),
        ({"itls": ...}, "itls is missing; make it with --output-details$"),
        ({"max_concurrency": -2}, "max_concurrency: -2 is not allowed; allowed: int >= 0"),
        ({"request_rate": -1.0}, "request_rate: -1.0 is not allowed; allowed: float >= 0.0"),
        ({"tag": 5}, r"tag: 5 is not allowed; allowed: str \| null"),
        ({"server_info": {"version": 5}}, r"f.json: server_info: version: 5 is not allowed; allowed: str \| null"),
    ],
)
def test_wrong_values_of_sglang_are_named(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        read(tmp_path, sglang_bench(served(), **changes))


def test_sglang_may_send_at_the_times_of_a_trace(tmp_path):
    (result,) = read(tmp_path, sglang_bench(served(), request_rate="trace"))
    assert result.meta.request_rate is None and "requests were sent at the times of a trace" in result.notes


def changed(table, path, value):
    *parents, last = path.split(".")
    for name in parents:
        table = table[name]
    table[last] = value


OF_DRAFTS = [
    ("num_spec_steps", 15, "num_spec_steps is 15, but acceptance_histogram gives 14"),
    ("num_accepted_draft_tokens", 24, "num_accepted_draft_tokens is 24, but acceptance_histogram gives 25"),
]


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("metadata.request_start_ns", -5, "f.json:1: metadata.request_start_ns: -5 is not allowed; allowed: int >= 0$"),
        ("metadata.credit_issued_ns", -5, "metadata.credit_issued_ns: -5 is not allowed"),
        (
            "metrics.request_latency.value",
            -1.5,
            "metrics.request_latency.value: -1.5 is not allowed; allowed: float >=",
        ),
        ("metrics.time_to_first_token.value", float("nan"), "metrics.time_to_first_token.value: NaN is not allowed"),
        ("metrics.time_to_first_token.unit", "s", "1: metrics.time_to_first_token: .* 's'; allowed: in 'ms'"),
        (
            "metrics.request_latency.value",
            90,
            "request_latency is 90 ms, but time_to_first_token and inter_chunk_.* add",
        ),
        ("metrics.inter_chunk_latency.value", [1e3], "request_latency is .* ms, but .* add up to 1.* ms"),
        (
            "metrics.output_sequence_length.value",
            1.5,
            "metrics.output_sequence_length: 1.5 is not allowed; allowed: a w",
        ),
        ("metrics.output_sequence_length.value", 2**40, "output_sequence_length: 1.*e12 is not allowed|1099511627776"),
        (
            "metrics.output_sequence_length.value",
            2**30,
            "1073741824 output tokens. has too many; allowed: 1048576 output",
        ),
        (
            "spec_decode_acceptance.num_spec_steps",
            15,
            r"f.json: a request \(.*\): its report .*: num_spec_steps is 15, per_step_drafted has 14",
        ),
        ("spec_decode_acceptance.acceptance_histogram", {"3": 14}, "tokens is 25, but acceptance_histogram gives 42"),
        ("spec_decode_acceptance.num_draft_tokens", 43, "num_draft_tokens is 43, and its rounds have 42$"),
        ("spec_decode_acceptance.per_step_drafted", [42], "per_step_drafted has 1 and per_step_accepted 14 entries"),
        (
            "spec_decode_acceptance.per_step_accepted",
            [1] * 14,
            "num_accepted_draft_tokens is 25, and its rounds have 14",
        ),
        ("spec_decode_acceptance.acceptance_histogram", {"0": -1}, r'acceptance_histogram\[...\]: {"0": -1} is not'),
        ("spec_decode_acceptance.acceptance_histogram", {"x": 1}, "acceptance_histogram: 'x' is not allowed; allowed:"),
        (
            "spec_decode_acceptance.acceptance_histogram",
            {"9" * 12: 1},
            "'999999999999' is not allowed; allowed: .* 0 to",
        ),
    ],
)
def test_wrong_values_of_aiperf_are_named(tmp_path, path, value, message):
    records = aiperf_records(served())
    changed(records[0], path, value)
    with pytest.raises(ValueError, match=message):
        read(tmp_path, *records)


def test_tokens_that_were_counted_again_in_the_text_leave_the_rounds(tmp_path):
    """Fewer than the rounds, even: acceptance is the server's, and that of the others would be lost, too."""
    records, found = aiperf_records(served()), []
    for num_tokens in (None, 10):
        if num_tokens:
            changed(records[0], "metrics.output_sequence_length.value", num_tokens)
        (result,) = read(tmp_path, *records)
        steps = all_steps(result, [0.0] * len(result.requests))
        found.append([step.num_accepted for step in steps if step.num_proposed])
    assert found[0] == found[1] and len(found[0]) > 100 and result.requests[0].speculation.num_spec_steps == 14


def test_errors_without_a_message_are_errors(tmp_path):
    records = aiperf_records(served())
    records[0]["error"] = {"message": "", "type": None}
    records[1]["metadata"]["was_cancelled"] = True
    (result,) = read(tmp_path, *records)
    assert [(one.error, one.finish) for one in result.requests[:3]] == [
        ("failed", "error"),
        ("cancelled", "abort"),
        ("", "stop"),
    ]


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (
            "info.timings.request_start",
            -1,
            r"benchmark 1: requests.successful\[0\].info.timings.request_start: -1 is n",
        ),
        ("info.timings.last_token_iteration", float("inf"), "last_token_iteration: Infinity is not allowed"),
        ("output_metrics.text_tokens", -3, r"requests.successful\[0\].output_metrics.text_tokens: -3 is not allowed"),
        ("output_metrics", ..., r"requests.successful\[0\].output_metrics is missing; not a benchmark of guidellm 0.8"),
        ("response_metrics.speculative_decoding.num_draft_tokens", -1, "f.json, benchmark 1: .* -1"),
        ("response_metrics.speculative_decoding.acceptance_histogram", [-1, 15], "f.json, benchmark 1: .* -1"),
        *((f"response_metrics.speculative_decoding.{name}", value, message) for name, value, message in OF_DRAFTS),
    ],
)
def test_wrong_values_of_guidellm_are_named(tmp_path, path, value, message):
    report = guidellm_report(served())
    first = report["benchmarks"][0]["requests"]["successful"][0]
    changed(first, path, value)
    report["benchmarks"][0]["requests"]["successful"][0] = {key: one for key, one in first.items() if one is not ...}
    with pytest.raises(ValueError, match=message):
        read(tmp_path, report)


def with_totals(report, window=None, **totals):
    """A report whose totals are others; `window`: when they were measured."""
    (benchmark,) = report["benchmarks"]
    benchmark["metrics"]["request_totals"] |= totals
    if window:
        benchmark["scheduler_metrics"] = dict(zip(("measure_start_time", "measure_end_time"), window, strict=True))
    return report


@pytest.mark.parametrize("window", [None, (0.0, 9e9)])
@pytest.mark.parametrize("status", ["successful", "errored", "incomplete"])
def test_more_requests_than_guidellm_counted_are_refused(tmp_path, status, window):
    report = guidellm_report(served(failed=(3, 5)))
    listed = report["benchmarks"][0]["requests"]
    if status == "incomplete":
        listed["incomplete"] = listed["errored"]
    num = len(listed[status])
    read(tmp_path, with_totals(report, window, **{status: num}))
    said = rf"metrics.request_totals.{status} is {num - 1}, but requests.{status} has {num} within the measured time"
    with pytest.raises(ValueError, match=f"f.json, benchmark 1: {said}; allowed: a file as"):
        read(tmp_path, with_totals(report, window, **{status: num - 1}))


def test_requests_of_the_warm_up_and_cool_down_of_guidellm_are_omitted(tmp_path):
    """It lists them, and its figures do not count them."""
    report = guidellm_report(served())
    timings = [one["info"]["timings"] for one in report["benchmarks"][0]["requests"]["successful"]]
    for at in timings:
        at["request_end"] = at["last_token_iteration"]
    ends, starts = (sorted(at[name] for at in timings) for name in ("request_end", "request_start"))
    window = ends[2], starts[-2]  # the third request ends in time, and the last but one starts in time
    measured = with_totals(report, window, successful=9, total=9)
    (result,) = read(tmp_path, measured)
    assert len(result.requests) == 9 and result.notes == ["3 requests of the warm-up and cool-down omitted"]
    assert min(one.start_s + one.e2e_s for one in result.requests) == pytest.approx(window[0])
    with pytest.raises(ValueError, match="has 9 of 10 requests; make it without sample_size"):
        read(tmp_path, with_totals(measured, successful=10, total=10))
    with pytest.raises(ValueError, match="benchmark 1: all requests belong to the warm-up or the cool-down"):
        read(tmp_path, with_totals(report, (9e8, 9.1e8), successful=0, total=0))


@pytest.mark.parametrize(
    ("strategy", "told"),
    [
        ({"type_": "synchronous"}, "config.strategy.type_ is synchronous with 1 at a time"),
        ({"type_": "concurrent", "streams": 2}, "config.strategy.type_ is concurrent with 2 at a time"),
    ],
)
def test_more_requests_at_once_than_guidellm_sends_are_refused(tmp_path, strategy, told):
    report = guidellm_report(served(), strategy=strategy)
    timings = [one["info"]["timings"] for one in report["benchmarks"][0]["requests"]["successful"]]
    first = timings[0]["request_start"]
    for at in timings:
        earlier = at["request_start"] - first
        for name in ("request_start", "first_token_iteration", "last_token_iteration"):
            at[name] -= earlier
    with pytest.raises(ValueError, match=rf"{told}, but requests took .* s together within .* s \(request_start\)"):
        read(tmp_path, report)
