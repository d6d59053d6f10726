import dataclasses
import json
import re

import pytest
from profile_samples import eagle_profile, foreign_profile, fused_profile

from specbench.harness.profiling.record import RoundFigures, SlowDown
from specbench.harness.store.files import json_text
from specbench.reports.html import html_page
from specbench.reports.markdown import markdown_document
from specbench.reports.profile.diff import SCHEMA, diff_profiles
from specbench.reports.profile.diff_document import diff_document
from specbench.reports.terminal import plain_document

NAMES = ("old", "new")


@pytest.fixture
def diff():
    return diff_profiles(eagle_profile(), fused_profile())


def test_headline_figures_have_signed_changes(diff):
    change = {d.name: d.change for d in diff.headline}
    assert change["launches a round"] == -17 and change["synchronisations a round"] == -3.4
    assert change["kernels from a graph"] == pytest.approx(0.0486)
    assert change["verify to draft, idle"] == pytest.approx(-29_300)
    assert change["wait of the host a round"] == pytest.approx(-575_610)


def test_phases_are_side_by_side_in_the_order_of_a_round(diff):
    assert [(p.phase, p.draft_step) for p in diff.phases] == [
        ("advance", None),
        ("verify", None),
        ("accept", None),
        *(("draft", i) for i in range(4)),
        ("status", None),
    ]
    assert diff.phases[-1].b is None and diff.phases[3].a.graph_share_kernels == 0.0


def test_syncs_that_went_are_zero_on_the_other_side(diff):
    (copy,) = [s for s in diff.syncs if s.kind == "pageable-copy"]
    assert (copy.per_round.a, copy.per_round.b, copy.wait.change) == (1.0, 0.0, -531_200.0)


def test_kernels_that_came_and_went(diff):
    status = {k.name: k.status for k in diff.kernels}
    assert status["_fused_accept_kernel"] == "only in B" and status["_state_update_kernel"] == "only in A"
    assert diff.kernels[0].name == "_fused_accept_kernel"


def test_the_largest_change_of_kernel_time_comes_first():
    kernels = eagle_profile().kernels
    slower = dataclasses.replace(kernels[1], total_ns=kernels[1].total_ns * 2)
    diff = diff_profiles(eagle_profile(), eagle_profile(kernels=(kernels[0], slower, *kernels[2:])))
    assert diff.kernels[0].name == slower.name and diff.kernels[0].total.change == pytest.approx(96_000)


def test_a_profile_against_itself_has_no_change():
    diff = diff_profiles(eagle_profile(), eagle_profile())
    assert diff.warnings == () and {d.change for d in diff.headline} == {0.0}
    assert {k.status for k in diff.kernels} == {"both"}
    text = plain_document(diff_document(eagle_profile(), eagle_profile(), NAMES))
    assert "No kernel was added, removed or changed." in text


def other(**changes):
    profile = eagle_profile()
    return dataclasses.replace(profile, source=dataclasses.replace(profile.source, **changes))


def test_what_else_differs_is_warned_of():
    subject = dataclasses.replace(eagle_profile().subject, batch_size=64)
    for profile, words in (
        (other(devices=("NVIDIA L4",)), "Different GPUs: NVIDIA H200 in A, NVIDIA L4 in B."),
        (other(kind="kineto", tool=None), "Different tools: nsys in A, kineto in B."),
        (other(tool="nsys 2024.1"), "Different versions of the tool: NVIDIA Nsight Systems 2025.3.1 in A, nsys 2024.1"),
        (eagle_profile(subject=subject), "Different batch sizes: 8 in A, 64 in B."),
        (eagle_profile(subject=None), "The batch size of a side is not known"),
    ):
        (warning,) = diff_profiles(eagle_profile(), profile).warnings
        assert warning.startswith(words)


def test_refused_evidence_has_no_phases_on_either_side():
    diff = diff_profiles(eagle_profile(), foreign_profile())
    assert diff.phases == () and diff.syncs == ()
    assert "The evidence of B is refused: figures by phase are left out." in diff.warnings
    assert "verify to draft, idle" not in {d.name for d in diff.headline}


def test_tables_show_what_changed():
    sections = {s.title: s for s in diff_document(eagle_profile(), fused_profile(), NAMES).sections}
    rows = [row for title in ("At a glance", "Phases") for table in sections[title].tables for row in table.rows]
    assert ("synchronisations a round", "3.4", "0", "-3.4") in rows
    assert ("verify to draft, idle, µs", "31.2", "1.90", "-29.3") in rows
    assert ("draft step 0", "0%", "100%", "+100.0 pt", "14", "14", "0") in rows
    assert ("draft step 1", "100%", "100%", "0", "14", "14", "0") in rows


@pytest.mark.parametrize("form", [plain_document, markdown_document, html_page])
def test_every_form_of_the_comparison(form):
    text = form(diff_document(eagle_profile(), fused_profile(), NAMES))
    assert "old against new" in text and "-29.3" in text and "Figures of a round" in text


def test_timelines_share_a_scale():
    document = diff_document(eagle_profile(), fused_profile(), NAMES)
    a, b = next(s for s in document.sections if s.timelines).timelines
    assert a.ticks[-1].text == b.ticks[-1].text == "1,000" and a.ticks[-1].x == b.ticks[-1].x
    assert max(r.x + r.width for r in b.rects) < 0.8 * max(r.x + r.width for r in a.rects)


def test_json_is_strict_and_whole():
    content = json.loads(
        json_text(diff_profiles(eagle_profile(), fused_profile())), parse_constant=lambda name: pytest.fail(name)
    )
    assert content["schema"] == SCHEMA and len(content["phases"]) == 8
    launches = {"name": "launches a round", "unit": "count", "a": 18.0, "b": 1.0, "interval": None}
    assert launches in content["headline"]


def with_rounds(profile, *, shift_ns=0.0):
    """Ten rounds around the profile's own figures."""
    waves = [(-1) ** n * n * 100.0 for n in range(10)]
    flat = (18.0,) * 10
    rounds = RoundFigures(
        round_ns=tuple(profile.round_ns + shift_ns + w for w in waves),
        gpu_busy_ns=tuple(profile.gpu_busy_ns + w for w in waves),
        launches=flat,
        graph_launches=flat,
        syncs=flat,
        wait_ns=flat,
    )
    return dataclasses.replace(profile, rounds=rounds, round_ns=profile.round_ns + shift_ns)


def test_intervals_over_the_rounds_stand_beside_the_changes():
    a, b = with_rounds(eagle_profile()), with_rounds(eagle_profile(), shift_ns=-5_000.0)
    found = {d.name: d for d in diff_profiles(a, b).headline}
    low, high = found["round under the profiler"].interval
    assert low < -5_000 < high < 0 and high - low < 2_000
    low, high = found["GPU busy a round"].interval
    assert low < 0 < high, "nothing changed but which rounds were caught"
    assert found["launches a round"].interval == (0, 0)
    assert found["kernels from a graph"].interval is None and found["verify to draft, idle"].interval is None
    text = plain_document(diff_document(a, b, NAMES))
    assert re.search(r"-5\.00 \[-[56]\.\d\d, -4\.\d\d\]", text) and "Each side is one process" in text


def test_a_side_without_rounds_has_no_intervals():
    assert not [d for d in diff_profiles(with_rounds(eagle_profile()), eagle_profile()).headline if d.interval]
    assert "one process" not in plain_document(diff_document(eagle_profile(), eagle_profile(), NAMES))


def test_a_side_that_its_profiler_slowed_too_much_has_no_idle_times():
    slow = eagle_profile(slow_down=SlowDown(profiled_round_ns=160.0, unprofiled_round_ns=100.0))
    diff = diff_profiles(eagle_profile(), slow)
    assert "B was slowed down too much by its profiler: idle times are left out." in diff.warnings
    assert not [d.name for d in diff.headline if "idle" in d.name or d.name.startswith("verify to draft")]
    assert "GPU idle a round" in {d.name for d in diff_profiles(eagle_profile(), eagle_profile()).headline}
