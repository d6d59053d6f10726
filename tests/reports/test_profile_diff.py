import dataclasses
import json

import pytest
from profile_samples import eagle_profile, foreign_profile, fused_profile

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
    assert a.ticks[-1].text == b.ticks[-1].text == "1000" and a.ticks[-1].x == b.ticks[-1].x
    assert max(r.x + r.width for r in b.rects) < 0.8 * max(r.x + r.width for r in a.rects)


def test_json_is_strict_and_whole():
    content = json.loads(
        json_text(diff_profiles(eagle_profile(), fused_profile())), parse_constant=lambda name: pytest.fail(name)
    )
    assert content["schema"] == SCHEMA and len(content["phases"]) == 8
    assert {"name": "launches a round", "unit": "count", "a": 18.0, "b": 1.0} in content["headline"]
