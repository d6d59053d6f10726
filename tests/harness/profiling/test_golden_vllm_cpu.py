"""Rounds of vLLM 0.32 on a CPU (golden/README.md): each drafter pass has a range, which its attention confirms."""

import gzip
import json
from collections import Counter
from pathlib import Path

import pytest

from specbench.harness.profiling.host_trace import analyse_host_trace
from specbench.harness.profiling.profile_file import read_profile, write_profile
from specbench.harness.profiling.record import Subject
from specbench.harness.profiling.rules import PhaseRules
from specbench.reports.profile.report import profile_document
from specbench.reports.profile.sentences import findings, warnings
from specbench.reports.terminal import plain_document

GOLDEN = Path(__file__).parent / "golden" / "vllm" / "runner1-cpu.json.gz"
K, NUM_ROUNDS, NUM_LAYERS = 4, 6, 30
SUBJECT = Subject(
    arm="eagle:k=4",
    strategy="eagle",
    config={"engine": "vllm"},
    graph_plan="none",
    batch_size=1,
    num_drafts=K,
    claimed_parts={},
    engine_syncs_per_round=None,
)


def analysed(path=GOLDEN):
    return analyse_host_trace(path, rules=PhaseRules.shipped(), subject=SUBJECT)


@pytest.fixture(scope="module")
def profile():
    return analysed()


def test_each_pass_is_a_row_and_the_layers_are_those_of_the_target(profile):
    rows = {(p.phase, p.draft_step): (p.ranges, p.attention) for p in profile.host_phases}
    assert [rows["draft", n] for n in range(K)] == [(1, 2)] * K
    assert rows["draft", None] == (1, 0) and rows["verify", None] == (1, 2 * NUM_LAYERS)
    assert set(rows) == {(p, None) for p in ("advance", "verify", "accept", "draft", "status", "host")} | {
        ("draft", n) for n in range(K)
    }
    assert (profile.quality.num_rounds, profile.is_host_only) == (NUM_ROUNDS, True)
    assert profile.quality.attributed_share > 0.95


def test_the_passes_are_those_that_the_file_itself_holds(profile):
    """Counted without the analysis: attention operators within ranges, by time alone."""
    events = json.loads(gzip.decompress(GOLDEN.read_bytes()))["traceEvents"]
    spans = [(e["name"], e["ts"], e["ts"] + e["dur"]) for e in events]
    passes = [s for s in spans if s[0] in ("specbench:draft_first", "specbench:draft_next")]
    steps = [s for s in spans if s[0].startswith("specbench:step ")]
    for _, begin, end in steps:
        inside = [p for p in passes if begin <= p[1] and p[2] <= end]
        assert [name.rpartition("_")[2] for name, _, _ in inside] == ["first", *["next"] * (K - 1)]
        calls = Counter()
        for name, t0, t1 in spans:
            if name in ("vllm::unified_attention_with_output", "_C::cpu_attn_reshape_and_cache"):
                calls.update(n for n, p in enumerate(inside) if p[1] <= t0 and t1 <= p[2])
        assert [calls[n] for n in range(K)] == [p.attention for p in profile.host_phases if p.draft_step is not None]


def test_host_times_are_those_of_the_ranges_without_the_ranges_inside(profile):
    events = json.loads(gzip.decompress(GOLDEN.read_bytes()))["traceEvents"]

    def total_ns(name):
        return sum(e["dur"] for e in events if e["name"] == name) * 1e3 / NUM_ROUNDS

    rows = {(p.phase, p.draft_step): p.host_ns for p in profile.host_phases}
    assert rows["draft", 0] == pytest.approx(total_ns("specbench:draft_first"))
    drafting = sum(ns for (phase, _), ns in rows.items() if phase == "draft")
    assert drafting == pytest.approx(total_ns("gpu_model_runner: draft"))


def test_what_a_reader_is_told(profile, tmp_path):
    assert findings(profile) == ("Drafter: 4 passes with ranges of their own, K = 4; attention operators in each: 2.",)
    assert not warnings(profile)
    text = plain_document(profile_document(profile, "Profile: eagle"))
    assert "Evidence: host only" in text and "Time of the host by phase" in text and "GPU busy" not in text
    assert read_profile(write_profile(profile, tmp_path)) == profile


def test_a_pass_without_its_range_is_noticed(tmp_path):
    trace = json.loads(gzip.decompress(GOLDEN.read_bytes()))
    trace["traceEvents"] = [e for e in trace["traceEvents"] if e["name"] != "specbench:draft_first"]
    path = tmp_path / "cut.json"
    path.write_text(json.dumps(trace))
    (said,) = warnings(analysed(path))
    assert said == "The passes do not add up: 3 passes have ranges, and K is 4."


def test_ranges_that_hold_no_forward_are_noticed(tmp_path):
    trace = json.loads(gzip.decompress(GOLDEN.read_bytes()))
    trace["traceEvents"] = [e for e in trace["traceEvents"] if e["cat"] == "user_annotation"]
    path = tmp_path / "bare.json"
    path.write_text(json.dumps(trace))
    (said,) = warnings(analysed(path))
    assert said.count("has no attention kernel") == K
