"""Files of `vllm bench serve`: older ones, failed requests, and what is refused."""

from __future__ import annotations

import json

import pytest
import tool_files
from tool_files import served, sglang_bench, vllm_bench, without_detail

from specbench.harness.experiments.imports.formats import read_results
from specbench.harness.experiments.imports.write import import_files
from specbench.harness.judge.stored import read_run


def imported(tmp_path, *objects):
    file = tool_files.write(tmp_path / "r.json", *objects)
    return read_run(import_files([file], tmp_path / "runs", ["specbench", "import", "r.json"]))


def arm_of(run, label="r"):
    return run.record.arm(label), run.figures[label, 0]


def test_older_files_without_times_keep_latencies_and_throughput(tmp_path):
    requests = served()
    raw = vllm_bench(requests, start_times=..., latencies=..., queue_times=...)
    arm, block = arm_of(imported(tmp_path, raw))
    ends = [sum(gaps) for gaps in raw["itls"]]
    tpots = [1e3 * end / (num - 1) for end, num in zip(ends, raw["output_lens"], strict=True)]
    assert block["tpot_ms.mean"] == pytest.approx(sum(tpots) / len(tpots), rel=1e-6)
    assert block["ttft_ms.mean"] == pytest.approx(1e3 * sum(raw["ttfts"]) / len(requests), rel=1e-6)
    assert block["tps"] == pytest.approx(sum(raw["output_lens"]) / raw["duration"], rel=1e-6)
    notes = " ".join(arm.notes)
    assert "no start times" in notes and "no latencies" in notes and "queued" not in notes


def test_a_failed_request_that_began_at_0_is_not_the_first(tmp_path):
    requests = served(failed=(0, 5))
    raw = vllm_bench(requests)
    assert raw["start_times"][0] == raw["start_times"][5] == 0.0 and min(raw["start_times"][1:5]) > 1000
    run = imported(tmp_path, raw)
    _, block = arm_of(run)
    ok = [one for one in requests if not one.error]
    window = max(one.last for one in ok) - min(one.start for one in ok)
    assert block["window_s"] == pytest.approx(window) and block["num_failed_requests"] == 2
    rows = run.frames.requests
    assert rows["error"].tolist()[0] == "boom" and rows["finish_reason"].tolist()[5] == "error"
    assert rows["t_submit_ns"].min() == 0 and rows["num_output_tokens"].tolist()[0] == 0


def test_a_request_without_output_has_failed(tmp_path):
    raw = vllm_bench(served(failed=(3,)), errors=...)
    run = imported(tmp_path, raw)
    assert run.frames.requests["error"].tolist()[3] == "no output"


def test_what_the_file_does_not_tell_is_null_and_said(tmp_path):
    run = imported(tmp_path, vllm_bench(served(), generated_texts=...))
    arm, block = arm_of(run)
    rows = run.frames.requests
    assert rows["t_first_device_ns"].isna().all() and rows["output_sha256"].isna().all()
    assert {fact.value for fact in arm.unknown} >= {"token_ids", "rounds", "device_times", "graphs", "syncs"}
    assert block["tpot_device_ms.mean"] is None and block["num_preemptions"] is None
    assert run.record.environment.hardware is None and run.record.git is None
    told = arm.imported
    assert told.source == "vllm bench serve" and told.file == "r.json" and told.baseline is None
    assert told.reported["mean_tpot_ms"] == 9.25 and "ttfts" not in told.reported
    assert run.record.started_utc.startswith("2026-01-02T03:04:05")


def test_totals_alone_give_acceptance_and_name_what_they_do_not(tmp_path):
    raw = vllm_bench(served())
    run = imported(tmp_path, without_detail(raw))
    arm, block = arm_of(run)
    assert block["acceptance.acceptance_length"] == pytest.approx(raw["spec_decode_acceptance_length"])
    assert block["tps"] is None and block["tpot_ms.mean"] is None and block["num_requests"] == 0
    (note,) = [note for note in arm.notes if note.startswith("totals only")]
    assert "--save-detailed" in note and "mean_tpot_ms 9.25" in note and "output_throughput" in note


def test_totals_beside_a_whole_file_have_no_factor(tmp_path):
    files = [tool_files.write(tmp_path / "whole.json", vllm_bench(served(num_drafts=0)))]
    files.append(tool_files.write(tmp_path / "totals.json", without_detail(vllm_bench(served()))))
    run = read_run(import_files(files, tmp_path / "runs", ["specbench"]))
    (summary,) = (arm for arm in run_arms(run) if arm.label == "totals")
    assert summary.speedup.tps_ratio is None and summary.speedup.tpot_ratio is None


def run_arms(run):
    from specbench.harness.metrics.run_results import results

    return results(run.frames).arms


def test_appended_results_become_arms(tmp_path):
    run = imported(tmp_path, vllm_bench(served()), vllm_bench(served(num=3), label="short"))
    assert [arm.label for arm in run.record.arms] == ["r #1", "short #2"]
    assert [run.figures[label, 0]["num_requests"] for label in run.arms] == [12, 3]


CONTRADICTIONS = [
    ({"output_lens": [1000] * 12}, r"total_output_tokens is \d+, but output_lens add up to 12000"),
    ({"total_output_tokens": 12}, r"total_output_tokens is 12, but output_lens add up to \d+"),
    ({"completed": 17}, "completed is 17, but 12 of 12 requests have no error"),
    ({"completed": 3}, "completed is 3, but 12 of 12 requests have no error"),
    ({"duration": 0.01}, r"duration is 0.01 s, but a request took 0\.\d+ s"),
    ({"completed": "all"}, r"completed: \"all\" is not allowed; allowed: int"),
]


@pytest.mark.parametrize("make", [vllm_bench, sglang_bench])
@pytest.mark.parametrize(("changes", "message"), CONTRADICTIONS)
def test_totals_that_contradict_the_requests_are_refused(tmp_path, make, changes, message):
    file = tool_files.write(tmp_path / "bad.json", make(served(), **changes))
    with pytest.raises(ValueError, match=message) as found:
        read_results(file)
    assert "bad.json" in str(found.value)


@pytest.mark.parametrize("make", [vllm_bench, sglang_bench])
def test_totals_are_compared_where_they_are_there_and_clocks_may_differ(tmp_path, make):
    one = served(num=1)
    took = one[0].last - one[0].start
    for requests, changes in (
        (served(), {"total_output_tokens": ..., "output_throughput": ...}),
        (served(), {"completed": 12, "total_output_tokens": None}),
        (one, {"duration": took / 1.03}),
        (served(failed=(1, 4)), {}),
        (served(failed=(1, 4)), {"errors": ...}),
        (served(failed=(1,)), {"errors": [""] * 12}),  # a server's answer without a reason
        (served(failed=(1,)), {"errors": [""] * 12, "completed": 12}),  # served, but empty
    ):
        (result,) = read_results(tool_files.write(tmp_path / "r.json", make(requests, **changes)))
        assert len(result.requests) == len(requests)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"itls": ..., "ttfts": ...}, "bad.json: ttfts is missing; make it with --save-result --save-detailed$"),
        ({"ttfts": [0.1]}, "requests do not match"),
        ({"ttfts": [float("nan")] + [0.1] * 11}, r"bad.json: ttfts\[0\]: NaN is not allowed; allowed: float >= 0.0$"),
        ({"ttfts": [0.1, -1] + [0.1] * 10}, r"bad.json: ttfts\[1\]: -1 is not allowed; allowed: float >= 0.0$"),
        ({"ttfts": None}, "bad.json: ttfts: null is not allowed; allowed: array$"),
        ({name: {} for name in ("ttfts", "itls", "input_lens", "output_lens")}, "lens: {} is not allowed"),
        ({"itls": [[0.1, "x"]] + [[0.1]] * 11}, r'itls\[0\]\[1\]: "x" is not allowed; allowed: float'),
        ({"itls": [5] + [[0.1]] * 11}, r"itls\[0\]: 5 is not allowed; allowed: array \| null"),
        ({"errors": ["", 5 * ["x" * 20]] + [""] * 10}, r'errors\[1\]: \["xx.{76}\.\.\. is not allowed; allowed: str'),
        ({"duration": None}, "duration: null is not allowed"),
        ({"duration": "long"}, 'duration: "long" is not allowed'),
        ({"duration": 10**400}, r"duration: 10*\.\.\.: Number out of range"),
        ({"output_lens": [1.5] * 12}, r"output_lens\[0\]: 1.5 is not allowed; allowed: int"),
        ({"output_lens": [2**40] * 12}, "1099511627776 is not allowed; allowed: int <= 2147483647"),
        ({"start_times": [1.0]}, "requests do not match: .*'start_times': 1"),
        ({"input_lens": []}, "requests do not match"),
        ({"spec_decode_num_drafts": "many"}, 'spec_decode_num_drafts: "many" is not allowed; allowed: int'),
        ({"spec_decode_draft_tokens": ...}, "spec_decode_draft_tokens is missing; vLLM writes all"),
        (
            {"spec_decode_per_position_acceptance_rates": [7.5]},
            r"rates\[0\]: 7.5 is not allowed; allowed: float <= 1.0",
        ),
        ({"spec_decode_accepted_tokens": 10_000}, "accepted_tokens is 10000, but spec_decode_draft_tokens is "),
        ({"max_concurrency": "four"}, 'max_concurrency: "four" is not allowed; allowed: int'),
        ({"max_concurrency": -1}, "max_concurrency: -1 is not allowed; allowed: int >= 0"),
        ({"request_rate": float("nan")}, "request_rate: NaN is not allowed"),
        ({"ttfts": [1e308] * 12}, r"1e\+308 is not allowed; allowed: float <= 9000000000.0"),
        ({"duration": 0}, "duration: 0 is not allowed; allowed: float > 0.0"),
        ({"request_rate": {"a": 1}}, r'request_rate: {"a": 1} is not allowed; allowed: float \| null'),
        ({"model_id": {"a": 1}}, r'model_id: {"a": 1} is not allowed; allowed: str \| null'),
        ({"label": ["a"]}, r'label: \["a"\] is not allowed; allowed: str \| null'),
    ],
)
def test_bad_files_are_named(tmp_path, changes, message):
    file = tmp_path / "bad.json"
    file.write_text(json.dumps(vllm_bench(served(), **changes)))
    with pytest.raises(ValueError, match=message) as found:
        read_results(file)
    assert "bad.json" in str(found.value)
