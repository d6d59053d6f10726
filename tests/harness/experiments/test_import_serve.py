from __future__ import annotations

import json

import numpy as np
import pytest

from specbench.harness.experiments.import_serve import import_result, read_results
from specbench.harness.judge.stored import read_run
from specbench.harness.metrics.metrics import measure_blocks, results


def result(num=6, tokens=9, chunks=4, **changes):
    """Requests one after another: ttft 0.1 s, then `chunks` gaps of 0.05 s that bring `tokens - 1` tokens."""
    e2e = 0.1 + 0.05 * chunks
    raw = {
        "date": "20260102-030405",
        "backend": "openai",
        "label": None,
        "model_id": "meta/<b>llama</b>",
        "num_prompts": num,
        "request_rate": "inf",
        "max_concurrency": 1,
        "duration": num * e2e,
        "completed": num,
        "failed": 0,
        "output_throughput": tokens / e2e,
        "input_lens": [20] * num,
        "output_lens": [tokens] * num,
        "ttfts": [0.1] * num,
        "itls": [[0.05] * chunks] * num,
        "start_times": [1000 + n * e2e for n in range(num)],
        "latencies": [e2e] * num,
        "generated_texts": [f"text {n}" for n in range(num)],
        "errors": [""] * num,
        "spec_decode_acceptance_rate": 25.0,
        "spec_decode_acceptance_length": 2.0,
        "spec_decode_num_drafts": 24,
    }
    return {k: v for k, v in (raw | changes).items() if v is not ...}


def imported(tmp_path, raw):
    file = tmp_path / "r.json"
    file.write_text(json.dumps(raw))
    (found,) = read_results(file)
    return read_run(import_result(found, file, tmp_path / "runs", ["specbench", "import", "r.json"]))


def figures(run):
    ((_, block),) = measure_blocks(run.frames).items()
    return block.values


def test_figures_under_our_definitions(tmp_path):
    run = imported(tmp_path, result())
    block = figures(run)
    assert block["ttft_ms.mean"] == pytest.approx(100)
    assert block["tpot_ms.mean"] == pytest.approx(1000 * 0.2 / 8)  # not the 50 ms between chunks
    assert block["itl_ms.mean"] == pytest.approx(1000 * 0.2 / 8) and block["itl_ms.p99"] == pytest.approx(50)
    assert block["icl_ms.mean"] == pytest.approx(50)
    assert block["tps"] == pytest.approx(9 / 0.3) and block["num_failed_requests"] == 0


def test_what_cannot_be_had_is_absent_and_said(tmp_path):
    run = imported(tmp_path, result())
    block = figures(run)
    assert block["round_ms.mean"] is None and block["syncs_per_round"] is None
    assert block["acceptance.acceptance_length"] is None and block["acceptance.tokens_per_forward"] is None
    (arm,) = run.record.arms
    assert arm.notes == ("imported: vllm", "vLLM's counters: acceptance length 2.000, rate 25.0%")
    told = run.record.imported
    assert told.source == "vllm" and "acceptance by request" in told.absent
    assert told.reported["spec_decode_num_drafts"] == 24 and "ttfts" not in told.reported
    assert run.record.environment.hardware is None and run.record.git is None
    (summary,) = results(run.frames).arms
    assert "imported: vllm" in summary.marks


def test_counters_that_are_no_numbers_are_left_out(tmp_path):
    raw = result(spec_decode_acceptance_length="2.0", spec_decode_acceptance_rate=None)
    assert imported(tmp_path, raw).record.arms[0].notes == ("imported: vllm",)


def test_older_files_without_start_times_keep_latencies_and_throughput(tmp_path):
    rng = np.random.default_rng(0)
    ttfts = rng.uniform(0.05, 0.2, 6).tolist()
    run = imported(tmp_path, result(ttfts=ttfts, start_times=..., latencies=..., duration=2.5))
    block = figures(run)
    assert block["ttft_ms.mean"] == pytest.approx(1000 * np.mean(ttfts), rel=1e-6)
    assert block["tpot_ms.mean"] == pytest.approx(25)
    assert block["tps"] == pytest.approx(54 / 2.5)
    notes = run.record.arms[0].notes
    assert any("no start_times" in note for note in notes) and any("no latencies" in note for note in notes)


def test_failed_requests_are_rows(tmp_path):
    raw = result(errors=["", "", "boom", "", "", ""], output_lens=[9, 9, 0, 9, 9, 9])
    run = imported(tmp_path, raw)
    assert figures(run)["num_failed_requests"] == 1
    assert run.frames.requests["error"].tolist()[2] == "boom"
    assert figures(run)["tpot_ms.mean"] == pytest.approx(25)


def test_appended_results_become_several_runs(tmp_path):
    file = tmp_path / "r.json"
    file.write_text(json.dumps(result()) + "\n" + json.dumps(result(num=3)))
    assert [len(found.e2e_s) for found in read_results(file)] == [6, 3]


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ([], "Expected `object`, got `array`; make it with --save-result --save-detailed"),
        ({"a": 1}, "missing required field `duration`"),
        (result(itls=..., ttfts=...), "missing required field `ttfts`; make it with --save-result --save-detailed"),
        (result(ttfts=[0.1]), "requests do not match"),
        (result(ttfts=[float("nan")] + [0.1] * 5), r"Expected `float` >= 0.0 - at `\$.ttfts\[0\]`"),
        (result(itls=[["x"]] + [[0.1]] * 5), r"got `str` - at `\$.itls"),
        (result(itls=[5] + [[0.1]] * 5), r"got `int` - at `\$.itls"),
        (result(duration=None), r"got `null` - at `\$.duration`"),
        (result(duration="long"), r"got `str` - at `\$.duration`"),
        (result(output_lens=[1.5] * 6), r"Expected `int`, got `float` - at `\$.output_lens"),
        (result(start_times=[1.0]), "requests do not match: .*'start_times': 1"),
    ],
)
def test_bad_files_are_named(tmp_path, raw, message):
    file = tmp_path / "bad.json"
    file.write_text(json.dumps(raw))
    with pytest.raises(ValueError, match=message) as found:
        read_results(file)
    assert "bad.json" in str(found.value)


def test_no_json(tmp_path):
    file = tmp_path / "bad.json"
    for text in ("", "{", "not json\n{}"):
        file.write_text(text)
        with pytest.raises(ValueError, match="bad.json"):
            read_results(file)


@pytest.mark.parametrize("name", ["input_lens", "output_lens", "ttfts", "itls"])
def test_an_empty_list_is_refused_by_its_file(tmp_path, name):
    with pytest.raises(ValueError, match="r.json: requests do not match"):
        imported(tmp_path, result(**{name: []}))
