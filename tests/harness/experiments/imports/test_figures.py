"""Files of each tool: every figure again by plain Python, out of the arrays in the file."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest
import tool_files
from tool_files import aiperf_records, guidellm_report, served, sglang_bench, vllm_bench

from specbench.harness.experiments.imports.write import import_files
from specbench.harness.judge.stored import read_run
from specbench.harness.metrics.run_results import results

Plain = dict  # of one request: prompt, start, ttft, e2e (s), tokens; of none that failed


def of_vllm(file: Path) -> list[Plain]:
    raw = json.loads(file.read_text())
    return [
        {
            "key": n,
            "start": raw["start_times"][n],
            "ttft": raw["ttfts"][n],
            "e2e": raw["latencies"][n],
            "tokens": length,
        }
        for n, length in enumerate(raw["output_lens"])
        if not raw["errors"][n]
    ]


def of_sglang(file: Path) -> list[Plain]:
    raw = json.loads(file.read_text())
    return [
        {"key": n, "ttft": raw["ttfts"][n], "e2e": raw["ttfts"][n] + sum(raw["itls"][n]), "tokens": length}
        for n, length in enumerate(raw["output_lens"])
        if not raw["errors"][n]
    ]


def of_aiperf(file: Path) -> list[Plain]:
    found = []
    for line in file.read_text().splitlines():
        raw = json.loads(line)
        if raw["error"] is not None:
            continue
        metrics = {name: metric["value"] for name, metric in raw["metrics"].items()}
        found.append(
            {
                "key": raw["metadata"]["conversation_id"],
                "start": raw["metadata"]["request_start_ns"] / 1e9,
                "ttft": metrics["time_to_first_token"] / 1e3,
                "e2e": metrics["request_latency"] / 1e3,
                "tokens": metrics["output_sequence_length"],
            }
        )
    return found


def of_guidellm(file: Path) -> list[Plain]:
    found = []
    for raw in json.loads(file.read_text())["benchmarks"][0]["requests"]["successful"]:
        times = raw["info"]["timings"]
        begin = times["request_start"]
        found.append(
            {
                "key": json.loads(raw["request_args"])["body"]["messages"][0]["content"],
                "start": begin,
                "ttft": times["first_token_iteration"] - begin,
                "e2e": times["last_token_iteration"] - begin,
                "tokens": raw["output_metrics"]["text_tokens"],
            }
        )
    return found


def mean(values) -> float:
    listed = list(values)
    return sum(listed) / len(listed)


def tpot(one: Plain) -> float:
    return (one["e2e"] - one["ttft"]) / (one["tokens"] - 1)


TOOLS = {
    "vllm": (lambda requests: [vllm_bench(requests)], of_vllm),
    "sglang": (lambda requests: [sglang_bench(requests)], of_sglang),
    "sglang-oai": (lambda requests: [sglang_bench(requests, backend="sglang-oai")], of_sglang),
    "aiperf": (aiperf_records, of_aiperf),
    "guidellm": (lambda requests: [guidellm_report(requests)], of_guidellm),
}


@pytest.fixture(params=TOOLS)
def both(request, tmp_path):
    """(tool, requests without and with speculation of the files, the run)."""
    write, read = TOOLS[request.param]
    files = []
    for name, requests in (("plain", served(num_drafts=0)), ("eagle", served(failed=(4,)))):
        files.append(tool_files.write(tmp_path / f"{name}.json", *write(requests)))
    run = read_run(import_files(files, tmp_path / "runs", ["specbench"], baseline="plain.json"))
    return request.param, [read(file) for file in files], run


def test_times_are_those_of_the_arrays(both):
    tool, sides, run = both
    for arm, plain in zip(("plain", "eagle"), sides, strict=True):
        block = run.figures[arm, 0]
        assert block["ttft_ms.mean"] == pytest.approx(1e3 * mean(one["ttft"] for one in plain), abs=1e-3)
        assert block["tpot_ms.mean"] == pytest.approx(1e3 * mean(map(tpot, plain)), abs=1e-3)
        num_tokens = sum(one["tokens"] for one in plain)
        if "start" in plain[0]:  # a failed one that began at 0 is not the first
            window = max(one["start"] + one["e2e"] for one in plain) - min(one["start"] for one in plain)
            assert block["tps"] == pytest.approx(num_tokens / window, rel=1e-6)
    assert run.figures["eagle", 0]["num_failed_requests"] == 1


def test_the_factor_is_paired_by_request(both):
    _, (plain, eagle), run = both
    other = {one["key"]: one for one in plain}
    logs = [math.log(tpot(other[one["key"]]) / tpot(one)) for one in eagle]
    (summary,) = (arm for arm in results(run.frames).arms if arm.label == "eagle")
    speedup = summary.speedup
    assert speedup.baseline == "plain" and speedup.num_pairs == len(logs) == 11
    assert speedup.tpot_ratio == pytest.approx(math.exp(mean(logs)), rel=1e-6)
    luck = random.Random(0)
    means = sorted(mean(luck.choices(logs, k=len(logs))) for _ in range(4000))
    assert speedup.tpot_ratio_low == pytest.approx(math.exp(means[100]), rel=0.01)
    assert speedup.tpot_ratio_high == pytest.approx(math.exp(means[3899]), rel=0.01)
    tps = [run.figures[arm, 0]["tps"] for arm in ("plain", "eagle")]
    assert speedup.tps_ratio == pytest.approx(tps[1] / tps[0])


def test_acceptance_is_ours_or_absent(both):
    tool, _, run = both
    told = [one for one in served(failed=(4,)) if not one.error]
    rounds = [one for request in told for one in request.rounds]
    accepted = [count for _, count in rounds]
    (arm,) = (arm for arm in results(run.frames).arms if arm.label == "eagle")
    if tool.startswith("sglang"):  # its only figure is of the server's whole life
        assert arm.acceptance.acceptance_length is None and arm.acceptance.marginal == ()
        assert any("accept_length 2.875: since its server started" in mark for mark in arm.marks)
        return
    assert arm.acceptance.acceptance_length == pytest.approx(1 + sum(accepted) / len(rounds))
    assert arm.acceptance.draft_acceptance_rate == pytest.approx(sum(accepted) / (3 * len(rounds)))
    by_position = [mean(count >= i for count in accepted) for i in (1, 2, 3)]
    assert arm.acceptance.marginal == pytest.approx(by_position)
    assert arm.acceptance.accepted_histogram == tuple(accepted.count(n) for n in range(4))
    after = [sum(count >= i for count in accepted) / sum(count >= i - 1 for count in accepted) for i in (1, 2, 3)]
    assert arm.acceptance.conditional == pytest.approx(after)
    has_interval = arm.acceptance.acceptance_length_interval is not None
    assert has_interval == (tool != "vllm")  # vLLM's file has sums over the run only
    (plain,) = (arm for arm in results(run.frames).arms if arm.label == "plain")
    assert plain.acceptance.acceptance_length is None


def test_gaps_between_chunks(both):
    tool, _, run = both
    told = [one for one in served(failed=(4,)) if not one.error]
    block = run.figures["eagle", 0]
    if tool == "guidellm":  # tells no chunks
        assert block["itl_ms.mean"] is None and block["icl_ms.mean"] is None
        return
    gaps = [gap for one in told for gap in one.gaps]
    assert block["icl_ms.mean"] == pytest.approx(1e3 * mean(gaps), rel=1e-4)
    num_gaps = sum(one.num_tokens - 1 for one in told)
    assert block["itl_ms.mean"] == pytest.approx(1e3 * sum(gaps) / num_gaps, rel=1e-4)
    assert block["round_ms.mean"] is None and block["syncs_per_round"] is None


def test_time_in_the_client_s_queue(both):
    tool, _, run = both
    told = [one.queue for one in served(failed=(4,)) if not one.error]
    counted = run.figures["eagle", 0].get("counters.client.queue_mean_ns")
    if tool.startswith("sglang"):
        assert counted is None
        return
    assert counted == pytest.approx(1e9 * mean(told), rel=1e-3)
    assert any("queued in the client: mean" in note for note in run.record.arm("eagle").notes)


def test_sglang_has_no_start_times_so_tps_is_that_of_its_duration(tmp_path):
    requests = served()
    raw = sglang_bench(requests)
    file = tool_files.write(tmp_path / "s.jsonl", raw)
    run = read_run(import_files([file], tmp_path / "runs", ["specbench"]))
    assert run.figures["s", 0]["tps"] == pytest.approx(sum(raw["output_lens"]) / raw["duration"], rel=1e-6)
    assert any("submit times spread" in note for note in run.record.arm("s").notes)


def test_rounds_that_cannot_be_told_leave_the_sums(tmp_path):
    """aiperf without steps, and drafts of changing number: the length is known, positions are not."""
    requests = served()
    for one in requests:
        one.rounds[0] = (2, min(one.rounds[0][1], 2))
    file = tool_files.write(tmp_path / "a.jsonl", *aiperf_records(requests, has_steps=False))
    run = read_run(import_files([file], tmp_path / "runs", ["specbench"]))
    (arm,) = results(run.frames).arms
    rounds = [one for request in requests for one in request.rounds]
    length = 1 + sum(accepted for _, accepted in rounds) / len(rounds)
    assert arm.acceptance.acceptance_length == pytest.approx(length) and arm.acceptance.marginal == ()
    assert run.figures["a", 0]["acceptance.acceptance_length"] == pytest.approx(length)


def test_positions_of_changing_drafts_are_vllms_own(tmp_path):
    raw = vllm_bench(served())
    raw["spec_decode_draft_tokens"] -= 1
    file = tool_files.write(tmp_path / "v.json", raw)
    run = read_run(import_files([file], tmp_path / "runs", ["specbench"]))
    (arm,) = results(run.frames).arms
    assert arm.acceptance.marginal == () and arm.acceptance.acceptance_length is not None
    assert arm.acceptance.peers.vllm.per_position == pytest.approx(raw["spec_decode_per_position_acceptance_rates"])
