"""Every figure of a synthetic trace whose times were chosen.

One round of `spec_trace`, in us from the start of its step (the GPU ended 2 us before):
    advance      call 0-4        kernel 6-7.5
    verify       graph 4-13      20 kernels 10-510
    accept       call 13-17      kernel 510-513
    pinned copy  call 17-20      513-514.5            in no phase
    draft_ids    copy 20-516     514.5-516            into pageable memory: the host waits
                 sync 516-518
    draft_first  calls 518-542   6 kernels 524-554
    draft_next   graph 542-551   6 kernels 554-584
                 graph 551-560   6 kernels 584-614
    status       sync 560-616                         behind the step
"""

from __future__ import annotations

import dataclasses
from statistics import median

import pytest
from profiling.synthetic import COMMAND, DRAFT_KERNELS, FIRST_STEP, Synth, spec_trace, write_nsys

from specbench.harness.profiling.analysis import analyse_trace
from specbench.harness.profiling.profile_file import read_profile, write_profile
from specbench.harness.profiling.record import Subject
from specbench.harness.profiling.rules import PhaseRules

RULES = PhaseRules.shipped()
SUBJECT = Subject(
    arm="a",
    strategy="eagle",
    config={},
    graph_plan="full",
    batch_size=1,
    num_drafts=3,
    claimed_parts={},
    engine_syncs_per_round=None,
    profiler_argv=None,
)


@pytest.fixture
def analysed(tmp_path):
    """Analyses a synthetic trace."""

    def analyse(synth=None, **options):
        path = write_nsys(tmp_path / "trace.sqlite", synth or spec_trace())
        return analyse_trace(path, rules=options.pop("rules", RULES), **options)

    return analyse


def by_phase(profile):
    return {(row.phase, row.draft_step): row for row in profile.phases}


def test_time_by_phase(analysed):
    rows = by_phase(analysed())
    busy = {key: row.gpu_busy_ns for key, row in rows.items()}
    assert busy == {
        ("advance", None): 1_500,
        ("verify", None): 500_000,
        ("accept", None): 3_000,
        ("draft", 0): 30_000,
        ("draft", 1): 30_000,
        ("draft", 2): 30_000,
        ("status", None): 0,
        ("host", None): 1_500,
        ("other", None): 1_500,
    }
    assert {key: row.gpu_span_ns for key, row in rows.items()} == busy
    assert {key: row.host_ns for key, row in rows.items()} == {
        ("advance", None): 4_000,
        ("verify", None): 9_000,
        ("accept", None): 4_000,
        ("draft", 0): 24_000,
        ("draft", 1): 9_000,
        ("draft", 2): 9_000,
        ("status", None): 56_000,
        ("host", None): 498_000,
        ("other", None): None,
    }
    assert rows["verify", None].busy_share == pytest.approx(500 / 597.5)
    assert sum(row.busy_share for row in rows.values()) == pytest.approx(1)


def test_launches_and_graph_shares(analysed):
    profile = analysed()
    rows = by_phase(profile)
    verify, first, later = rows["verify", None], rows["draft", 0], rows["draft", 2]
    assert (verify.kernels, verify.graph_kernels, verify.eager_launches, verify.graph_launches) == (20, 20, 0, 1)
    assert (first.kernels, first.graph_kernels, first.eager_launches, first.graph_launches) == (6, 0, 6, 0)
    assert (later.graph_share_kernels, later.graph_share_time) == (1, 1)
    assert rows["host", None].graph_share_kernels is None  # a copy, no kernels
    assert (profile.graph.launches_per_round, profile.graph.graph_launches_per_round) == (8 + 3, 3)
    assert profile.graph.graph_share_kernels == pytest.approx(32 / 40)
    assert profile.graph.graph_share_time == pytest.approx(560 / 594.5)


def test_the_round_and_idle_time_by_cause(analysed):
    profile = analysed()
    assert (profile.round_ns, profile.gpu_busy_ns) == (616_000, 597_500)
    assert profile.gpu_busy_share == pytest.approx(597.5 / 616)
    idle = profile.idle
    assert idle.total_ns == 18_500
    assert idle.by_cause_ns == {"host-late": 16_000, "launch-latency-or-dependency": 2_500, "back-to-back": 0}
    assert (idle.verify_to_draft_span_ns, idle.verify_to_draft_idle_ns, idle.num_overlapped) == (14_000, 8_000, 0)
    assert idle.verify_to_draft_by_cause_ns["host-late"] == 8_000


def test_a_blocking_read_is_one_wait_though_it_is_two_calls(analysed):
    profile = analysed()
    rows = [(s.phase, s.api, s.kind, s.per_round, s.wait_ns) for s in profile.syncs]
    assert rows == [
        ("status", "cudaEventSynchronize", "explicit", 1, 56_000),
        ("host", "cudaMemcpyAsync + cudaStreamSynchronize", "pageable-copy", 1, 498_000),
    ]
    assert profile.syncs_per_round == 2


def test_kernels(analysed):
    profile = analysed()
    assert [(k.name, k.phase, k.calls, k.total_ns) for k in profile.kernels[:2]] == [
        ("gemm", "verify", 10, 300_000),
        ("flash_fwd_splitkv_kernel", "verify", 10, 200_000),
    ]
    assert {k.name for k in profile.kernels if k.is_attention} == {"flash_fwd_splitkv_kernel", "flash_fwd_kernel"}
    copy = next(k for k in profile.kernels if k.phase == "other")
    assert (copy.name, copy.mean_ns, copy.in_graph) == ("Memcpy DtoH (Device -> Pinned)", 1_500, 0)
    assert sum(k.share for k in profile.kernels) == pytest.approx(1)


def test_attention_kernels_are_kept_however_short(analysed):
    s = Synth()
    for number in range(2):
        with s.range(f"specbench:step {number}"), s.range("specbench:verify"):
            for k in range(70):
                s.launch(f"gemm_{k}", 9_000)
            s.launch("paged_attention_kernel", 100)
    kernels = analysed(s).kernels
    assert len(kernels) == 61 and kernels[-1].name == "paged_attention_kernel"


def test_timeline_of_the_median_round(analysed):
    profile = analysed()
    assert profile.timeline_round == FIRST_STEP
    bars = {(b.row, b.phase, b.draft_step): b for b in profile.timeline}
    verify = bars["host", "verify", None]
    assert (verify.name, verify.t0_ns, verify.t1_ns) == ("specbench:verify", 4_000, 13_000)
    wait = bars["sync", "status", None]
    assert (wait.t0_ns, wait.t1_ns) == (560_000, 616_000)
    last = bars["gpu:7", "draft", 2]
    assert (last.t1_ns, last.via_graph) == (614_000, True)
    assert len(profile.timeline) == 8 + 2 + 42


def test_source_and_quality(analysed):
    profile = analysed()
    source, quality = profile.source, profile.quality
    assert (source.kind, source.tool, source.schema_version) == ("nsys", "nsys 2025.3.1.90", "3.20.2")
    assert source.command == (*COMMAND[:-1], "[redacted]") and source.working_dir == "/home/user/work"
    assert source.devices == ("NVIDIA H200",)
    assert quality.verdict == "good" and quality.attributed_share == pytest.approx(596 / 597.5)
    assert (quality.num_ops, quality.num_rounds, quality.num_rounds_left_out) == (126, 3, 0)
    assert quality.notes == ()


def test_a_profile_survives_its_file(analysed, tmp_path):
    profile = analysed(subject=SUBJECT)
    assert read_profile(write_profile(profile, tmp_path)) == profile


# -- the certificate --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("claims", "verdict", "said"),
    [
        ({"target": "none", "first": "none", "later": "none"}, "no claim", ""),
        ({"target": "none", "first": "none", "later": "full"}, "holds", ""),
        ({"first": "full"}, "void", "draft step 0 (claimed full): 18 of 18 kernels launched by the host, in 3 of 3"),
        ({"target": "full"}, "void", "advance (claimed full): 3 of 3 kernels"),
        ({"target": "piecewise", "later": "piecewise"}, "holds", ""),
        ({"first": "piecewise"}, "void", "first (claimed piecewise): no graph launch in 3 of 3 rounds"),
    ],
)
def test_certificate(analysed, claims, verdict, said):
    graph = analysed(subject=dataclasses.replace(SUBJECT, claimed_parts=claims)).graph
    assert graph.verdict == verdict
    assert said in " ".join(graph.reasons) and bool(graph.reasons) == bool(said)


def test_one_eager_kernel_in_one_round_voids_a_claim(analysed):
    s = Synth()
    for number in range(5):
        with s.range(f"specbench:step {number}"), s.range("specbench:draft_first"):
            s.graph(DRAFT_KERNELS)
            if number == 3:
                s.launch("straggler", 1_000)
    graph = analysed(s, subject=dataclasses.replace(SUBJECT, claimed_parts={"first": "full"})).graph
    assert graph.verdict == "void"
    assert graph.reasons == (
        "draft step 0 (claimed full): 1 of 31 kernels launched by the host, in 1 of 5 rounds: straggler",
    )


def test_a_part_that_never_ran_voids_its_claim(analysed):
    subject = dataclasses.replace(SUBJECT, claimed_parts={"later": "full"})
    graph = analysed(spec_trace(num_drafts=1), subject=subject).graph
    assert (graph.verdict, graph.reasons) == ("void", ("later (claimed full): no kernels of it in 3 of 3 rounds",))
    of_one_draft = dataclasses.replace(subject, num_drafts=1)
    assert analysed(spec_trace(num_drafts=1), subject=of_one_draft).graph.verdict == "holds"


# -- which rounds -----------------------------------------------------------------------------------------------------


def test_steps_with_prompt_rows_are_left_out_and_counted(analysed):
    s = Synth()
    for number in range(6):
        with s.range(f"specbench:step {number}"):
            if number in (0, 3):
                with s.range("specbench:prefill"), s.range("specbench:verify"):
                    s.launch("prompt", 90_000)
            else:
                with s.range("specbench:verify"):
                    s.launch("decode", 10_000)
    profile = analysed(s)
    assert {k.name for k in profile.kernels} == {"decode"}
    assert (profile.quality.num_rounds, profile.quality.num_rounds_left_out) == (4, 2)
    assert "2 steps with prompt rows left out" in profile.quality.notes
    assert profile.round_ns == 4_000  # only of rounds that another decode round follows


def test_prompt_steps_alone_are_analysed_and_said_so(analysed):
    s = Synth()
    for number in range(2):
        with s.range(f"specbench:step {number}"), s.range("specbench:prefill"):
            s.launch("prompt", 9_000)
    profile = analysed(s)
    assert by_phase(profile)["prefill", None].kernels == 1
    assert any("no decode round" in note for note in profile.quality.notes)


@pytest.mark.parametrize("cut", ["launch", "replay", "range"])
def test_a_step_cut_off_by_the_end_of_the_capture_is_left_out(analysed, cut):
    s = spec_trace()
    if cut == "launch":  # the last drafter replay left nothing
        last = max(op.cid for op in s.ops)
        s.ops = [op for op in s.ops if op.cid != last]
    elif cut == "replay":
        s.ops.pop()
    else:
        s.ranges = [r for r in s.ranges if r.name != f"specbench:step {FIRST_STEP + 2}"]
    profile = analysed(s)
    assert profile.quality.num_rounds == 2
    assert by_phase(profile)["draft", 2].kernels == 6
    assert profile.syncs_per_round == 2


def test_a_late_status_holds_the_host_back_but_is_no_synchronisation(analysed):
    s = Synth()
    for number in range(3):
        with s.range(f"specbench:step {number}"), s.range("specbench:verify"):
            s.launch("gemm", 20_000)
        with s.range("specbench:late_status"):
            s.call("cudaEventQuery", 500)
            s.call("cudaEventSynchronize", 10_000)
    profile = analysed(s)
    assert [(w.phase, w.kind, w.per_round, w.wait_ns) for w in profile.syncs] == [("status", "late", 1, 10_000)]
    assert profile.syncs_per_round == 0
    assert (profile.rounds.wait_ns, profile.rounds.late_wait_ns) == ((0,) * 3, (10_000,) * 3)


def test_copies_that_block(analysed):
    s = Synth()
    for number in range(2):
        with s.range(f"specbench:step {number}"), s.range("specbench:verify"):
            s.launch("gemm", 1_000)
            s.copy(api="cudaMemcpy")
            s.call("cudaStreamIsCapturing", 100)
            s.sync()
            s.copy(kind=1, host_memory=0)  # host to device: does not wait for the device
    assert [(w.api, w.kind) for w in analysed(s).syncs] == [
        ("cudaMemcpy", "blocking-copy"),
        ("cudaStreamSynchronize", "explicit"),
    ]


def test_freeing_memory_waits_for_the_device(analysed):
    s = Synth()
    for number in range(2):
        with s.range(f"specbench:step {number}"), s.range("specbench:verify"):
            s.launch("gemm", 1_000)
            s.sync("cudaFree")
            s.call("cudaFreeAsync", 500)
            s.call("cuMemFreeHost", 500)
    profile = analysed(s)
    assert [(w.api, w.kind, w.per_round) for w in profile.syncs] == [
        ("cuMemFreeHost", "free", 1),
        ("cudaFree", "free", 1),
    ]
    assert profile.syncs_per_round == 2


def test_calls_inside_other_calls_count_once(analysed):
    s = Synth()
    for number in range(2):
        with s.range(f"specbench:step {number}"), s.range("specbench:verify"):
            s.launch("gemm", 1_000)
            s.sync()
            outer = s.calls[-1]
            s.calls.append(
                dataclasses.replace(
                    outer, name="cuStreamSynchronize", t0=outer.t0 + 10, t1=outer.t1 - 10, cid=900 + number
                )
            )
    assert [(w.api, w.per_round) for w in analysed(s).syncs] == [("cudaStreamSynchronize", 1)]


def test_an_overlapped_drafter_has_a_negative_span_and_no_idle_time(analysed):
    s = Synth()
    for number in range(2):
        with s.range(f"specbench:step {number}"):
            with s.range("specbench:verify"):
                op = s.launch("gemm", 100_000)
            with s.range("specbench:draft_first"):
                s.gpu = op.t1 - 30_000
                s.launch("early", 50_000)
            s.sync()
    profile = analysed(s)
    rows = by_phase(profile)
    assert (profile.idle.verify_to_draft_span_ns, profile.idle.verify_to_draft_idle_ns) == (-30_000, 0)
    assert profile.idle.num_overlapped == 2
    # The overlap counts once, for the earlier of the two.
    assert (rows["verify", None].gpu_busy_ns, rows["draft", 0].gpu_busy_ns) == (100_000, 20_000)
    assert rows["draft", 0].gpu_span_ns == 50_000 and profile.gpu_busy_ns == 120_000


def test_evidence_decides_what_is_concluded(analysed):
    def half(share_ns):
        s = Synth()
        for number in range(3):
            with s.range(f"specbench:step {number}"):
                with s.range("specbench:draft_first"):
                    s.graph([("known", share_ns)])
                s.launch("unknown", 100_000 - share_ns)
        return s

    subject = dataclasses.replace(SUBJECT, claimed_parts={"first": "full"})
    doubtful, refused = analysed(half(60_000), subject=subject), analysed(half(40_000), subject=subject)
    assert (doubtful.quality.verdict, doubtful.graph.verdict) == ("doubtful", "cannot tell")
    assert doubtful.graph.reasons == ("3 kernels in the rounds have no phase, 3 of them not launched by a graph",)
    assert by_phase(doubtful)["other", None].gpu_busy_ns == 40_000
    assert (refused.quality.verdict, refused.phases, refused.graph.verdict) == ("refused", (), "cannot tell")
    assert refused.quality.attributed_share == pytest.approx(0.4)
    assert "40.0%" in refused.graph.reasons[0]
    assert refused.kernels and refused.round_ns > 0


def test_figures_of_each_round_add_up_to_those_of_all(analysed):
    profile = analysed()
    rounds = profile.rounds
    num = profile.quality.num_rounds
    assert len(rounds.launches) == num and sum(rounds.launches) / num == profile.graph.launches_per_round
    assert sum(rounds.graph_launches) / num == profile.graph.graph_launches_per_round
    assert sum(rounds.syncs) / num == profile.syncs_per_round
    assert sum(rounds.gpu_busy_ns) / num == profile.gpu_busy_ns
    assert sum(rounds.wait_ns) / num == sum(sync.wait_ns for sync in profile.syncs)
    assert median(rounds.round_ns) == profile.round_ns
    idle = profile.idle
    assert sum(idle.by_round_ns) / len(idle.by_round_ns) == idle.total_ns
    assert median(idle.verify_to_draft_by_round_ns) == idle.verify_to_draft_idle_ns
