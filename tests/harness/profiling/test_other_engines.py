"""Traces of vLLM and SGLang, by the names that their ranges have."""

from __future__ import annotations

import pytest
from profiling.synthetic import Synth, write_kineto, write_nsys

from specbench.harness.profiling.analysis import analyse_trace
from specbench.harness.profiling.rules import PhaseRules

RULES = PhaseRules.shipped()


def vllm_trace(step_name: str | None, num_steps: int = 4) -> Synth:
    """The step's range ends before sampling and drafting, as in GPUModelRunner.execute_model and sample_tokens."""
    s = Synth()
    for number in range(num_steps):
        start = s.host
        with s.range("gpu_model_runner: preprocess"):
            s.launch("prepare", 1_000)
        with s.range("gpu_model_runner: forward"):
            s.graph([("reshape_and_cache", 2_000), ("flash_fwd_splitkv", 30_000)])
        if step_name:
            end = s.host
            s.host = start
            with s.range(step_name.format(0 if number else 2)):
                s.host = end
        with s.range("gpu_model_runner: sample"):
            s.launch("sample", 2_000)
        with s.range("gpu_model_runner: draft"):
            s.graph([("eagle", 8_000)])
        with s.range("gpu_model_runner: bookkeep"):
            s.copy(host_memory=0)
            s.sync()
    return s


@pytest.mark.parametrize(
    "step_name",
    [
        "execute_context_{}(0)_generation_1(6)",
        "execute_7_context_{}(sq0sk0)_generation_1(sq6sk9)",
        "execute_new_{}_cached_1",
    ],
)
def test_vllm_steps_last_until_the_next(tmp_path, step_name):
    profile = analyse_trace(write_kineto(tmp_path / "t.json", vllm_trace(step_name)), rules=RULES)
    rows = {row.phase: row for row in profile.phases}
    assert rows["draft"].kernels == 1 and rows["draft"].draft_step is None and rows["draft"].graph_share_kernels == 1
    assert rows["verify"].kernels == 2 and rows["accept"].kernels == 1
    # The first step has prompt rows; the last has no end.
    assert (profile.quality.num_rounds, profile.quality.num_rounds_left_out) == (2, 2)
    assert [(w.phase, w.kind, w.per_round) for w in profile.syncs] == [("status", "pageable-copy", 1)]


def test_vllm_without_step_ranges_steps_at_each_preprocess(tmp_path):
    profile = analyse_trace(write_nsys(tmp_path / "t.sqlite", vllm_trace(None)), rules=RULES)
    assert (profile.quality.num_rounds, profile.quality.num_rounds_left_out) == (3, 1)
    assert profile.quality.verdict == "good" and profile.syncs_per_round == 1


def test_sglang_phases_and_the_ranges_inside_the_drafter(tmp_path):
    s = Synth()
    for _ in range(3):
        with s.range("draft"):
            for _ in range(2):
                with s.range("step[DECODE bs=1]"):
                    s.launch("draft_gemm", 4_000)
        with s.range("step[TARGET_VERIFY bs=3]"):
            s.graph([("target_gemm", 40_000)])
        with s.range("draft_extend"), s.range("step[DRAFT_EXTEND bs=1]"):
            s.launch("extend_gemm", 6_000)
    profile = analyse_trace(write_kineto(tmp_path / "t.json.gz", s), rules=RULES)
    kernels = {(k.name, k.phase, k.draft_step) for k in profile.kernels}
    assert kernels == {("draft_gemm", "draft", None), ("target_gemm", "verify", None), ("extend_gemm", "draft", 0)}
    assert profile.quality.num_rounds == 2 and profile.batch_size == 3


def test_sglang_without_a_drafter(tmp_path):
    s = Synth()
    with s.range("step[EXTEND bs=1 toks=107]"):
        s.launch("prompt", 50_000)
    for size in (2, 2, 1, 1):
        with s.range(f"step[DECODE bs={size}]"):
            s.graph([("gemm", 10_000)])
    profile = analyse_trace(write_nsys(tmp_path / "t.sqlite", s), rules=RULES)
    assert [(row.phase, row.kernels) for row in profile.phases] == [("verify", 1)]
    assert profile.quality.num_rounds == 3 and profile.batch_size is None, "it changes"


def test_the_busiest_rank_is_shown_and_the_spread_said(tmp_path):
    ranks = [vllm_trace(None), vllm_trace(None)]
    ranks[1].pid, ranks[1].tid = 5000, 5000
    for rank, extra in zip(ranks, (0, 7_000), strict=True):
        for row in rank.__dict__["ops"][:1]:
            rank.ops[0] = type(row)(row.kind, row.name, row.t0, row.t1 + extra, row.cid)
    ranks[1].ranges = [type(r)(r.name, r.t0, r.t1, 5000) for r in ranks[1].ranges]
    ranks[1].calls = [type(c)(c.name, c.t0, c.t1, 5000, c.cid) for c in ranks[1].calls]
    profile = analyse_trace(write_nsys(tmp_path / "t.sqlite", *ranks), rules=RULES)
    alone = analyse_trace(write_nsys(tmp_path / "alone.sqlite", ranks[1]), rules=RULES)
    assert profile.phases == alone.phases
    assert any(note.startswith("2 processes with rounds") for note in profile.quality.notes)
