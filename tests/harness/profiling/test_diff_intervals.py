"""A change between two profiles lies in its interval over the rounds: both are of one statistic."""

from __future__ import annotations

import itertools
from statistics import mean

import pytest
from profiling.synthetic import Synth, write_nsys
from profiling.test_golden import ARMS, TOOLS, analysed, unpacked

from specbench.harness.profiling.analysis import analyse_trace
from specbench.harness.profiling.record import LATE
from specbench.harness.profiling.rules import PhaseRules
from specbench.reports.profile.diff import diff_profiles
from specbench.reports.profile.diff_document import diff_document
from specbench.reports.terminal import plain_document

ROUNDING_NS = 1e-6
WAIT_NS = 10_000


def profile_of(folder, waiting_range, waits_ns):
    """A profile of one round for each wait of the host, in a range of that name behind its step."""
    synth = Synth()
    for number, wait_ns in enumerate(waits_ns):
        with synth.range(f"specbench:step {number}"):
            with synth.range("specbench:verify"):
                synth.launch("gemm", 20_000)
            with synth.range("specbench:draft_first"):
                synth.launch("gemm", 5_000)
        with synth.range(f"specbench:{waiting_range}"):
            synth.call("cudaEventSynchronize", wait_ns)
    return analyse_trace(write_nsys(folder / f"{len(waits_ns)}.sqlite", synth), rules=PhaseRules.shipped())


def outside(a, b):
    """Headline figures whose interval does not hold their change."""
    with_interval = [d for d in diff_profiles(a, b).headline if d.interval]
    assert with_interval
    return [d for d in with_interval if not d.interval[0] - ROUNDING_NS <= d.change <= d.interval[1] + ROUNDING_NS]


@pytest.mark.parametrize(
    ("waiting_range", "figure"),
    [("status", "wait of the host a round"), ("late_status", "late wait of the host a round")],
)
@pytest.mark.parametrize("num_long", [1, 2])
def test_rounds_that_wait_a_hundred_times_as_long(tmp_path, waiting_range, figure, num_long):
    waits_a = [WAIT_NS] * 8
    waits_b = [WAIT_NS] * (9 - num_long) + [100 * WAIT_NS] * num_long
    a, b = (profile_of(tmp_path, waiting_range, waits) for waits in (waits_a, waits_b))
    delta = {d.name: d for d in diff_profiles(a, b).headline}[figure]
    assert delta.change == pytest.approx(mean(waits_b) - mean(waits_a))
    assert delta.interval[0] <= delta.change <= delta.interval[1] and delta.interval[1] > 0
    assert outside(a, b) == outside(b, a) == []


def test_late_waits_have_a_line_of_their_own_where_a_side_has_any(tmp_path):
    late, none = profile_of(tmp_path, "late_status", [WAIT_NS] * 6), profile_of(tmp_path, "status", [WAIT_NS] * 7)
    found = {d.name: d for d in diff_profiles(late, none).headline}
    assert (found["wait of the host a round"].a, found["wait of the host a round"].b) == (0, WAIT_NS)
    assert (found["late wait of the host a round"].a, found["late wait of the host a round"].b) == (WAIT_NS, 0)
    text = " ".join(plain_document(diff_document(late, none, ("a", "b"))).split())
    assert "late: waits for an older round" in text
    assert "the median for 'verify to draft, idle' and 'round under the profiler', the mean for all others" in text
    assert "late wait of the host a round" not in {d.name for d in diff_profiles(none, none).headline}


def test_figures_of_real_rounds_lie_in_their_intervals(tmp_path):
    profiles = [analysed(arm, unpacked(arm, tool, tmp_path)) for arm in ARMS for tool in TOOLS]
    assert any(sync.kind == LATE for profile in profiles for sync in profile.syncs)
    for a, b in itertools.permutations(profiles, 2):
        assert outside(a, b) == []
