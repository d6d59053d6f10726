"""One profile as text, Markdown and page: the same sections in the same order, nothing that evidence does not carry."""

import dataclasses
import io
import re

import pytest
from profile_samples import HOSTILE, eagle_profile, foreign_profile, fused_profile, hostile_profile
from rich.console import Console

from specbench.harness.profiling.record import SlowDown
from specbench.reports.html import html_page, text_columns
from specbench.reports.markdown import markdown_document
from specbench.reports.profile.report import profile_document, profiles_document, without_host_times
from specbench.reports.profile.sentences import SHARES_NOT_SPEED
from specbench.reports.profile.tables import (
    claims_table,
    idle_table,
    kernel_table,
    merged_steps,
    overview_table,
    parts_table,
    phase_table,
    ran_as,
)
from specbench.reports.terminal import plain_document, print_document

SECTIONS = [
    "A round at a glance",
    "Timeline",
    "Phases",
    "Graph certificate",
    "Synchronisations",
    "GPU idle time",
    "Kernels",
    "Evidence",
    "Command",
    "How to read the times",
]
FORMS = {"text": plain_document, "markdown": markdown_document, "html": html_page}


def row(table, name):
    return next(r for r in table.rows if r[0] == name)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_has_the_sections_in_order(form):
    text = FORMS[form](profile_document(eagle_profile(), "Profile: eagle"))
    heading = {"text": "\n{}\n---", "markdown": "\n## {}\n", "html": ">{}</h2>"}[form]
    places = [text.index(heading.format(title)) for title in SECTIONS]
    assert places == sorted(places)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_has_the_figures(form):
    text = FORMS[form](profile_document(eagle_profile(), "Profile: eagle")).replace("\\_", "_")
    for piece in ("nsys profile -t cuda,nvtx", "99.6%", "95.1%", "31.2", "531.2", "nvjet_tst_128x8", "1.26x"):
        assert piece in text
    assert SHARES_NOT_SPEED in text


def test_the_phase_table():
    table = phase_table(eagle_profile())
    assert row(table, "draft step 0")[1:] == ("67.0", "61.0", "64.7", "8.4%", "14", "0%", "0%", "14", "0")
    assert row(table, "draft step 2")[5:] == ("14", "100%", "100%", "0", "1")
    assert row(phase_table(fused_profile()), "verify")[1] == "-"


def test_claims_stand_beside_what_was_measured():
    assert claims_table(eagle_profile()).rows == (
        ("target", "full", "advance, verify, accept", "232", "100%"),
        ("first", "none", "draft step 0", "14", "0%"),
        ("later", "full", "draft steps 1 to 3", "42", "100%"),
    )
    assert claims_table(foreign_profile()).rows == ()


def test_steps_that_launch_a_kernel_alike_are_one_row():
    merged = {(k.name[:5], where): k for where, k in merged_steps(eagle_profile().kernels)}
    later = merged["nvjet", "draft steps 1 to 3"]
    assert (later.calls, later.total_ns, later.mean_ns, later.in_graph) == (21.0, 84_000.0, 4_000.0, 21.0)
    assert merged["nvjet", "draft step 0"].in_graph == 0.0
    assert kernel_table(eagle_profile()).rows[0][:3] == ("nvjet_tst_128x8_64x12_4x1_v_bz_TNT", "verify", "120")


@pytest.mark.parametrize("form", FORMS)
def test_refused_evidence_leaves_out_figures_by_phase(form):
    text = FORMS[form](profile_document(foreign_profile(), "Profile: eagle"))
    assert "Refused: only 31%" in text and "There are no figures by phase." in text
    assert "Time and launches by phase" not in text and "drafter" not in text
    assert not re.search(r"idles [\d.]+ µs between verify and draft", text)
    assert "531.2" in text and "18" in text  # waits and launches need no phase
    if form == "html":
        assert not re.search(r'class="bar phase-(?!other)', text)


def test_doubtful_evidence_warns_above_everything():
    doubtful = dataclasses.replace(eagle_profile().quality, verdict="doubtful", attributed_share=0.78)
    text = plain_document(profile_document(eagle_profile(quality=doubtful), "Profile: eagle"))
    assert text.splitlines()[2].startswith("! Doubtful: 78%") and "Time and launches by phase" in text


def test_a_trace_without_command_says_so():
    assert "The trace does not contain the program's command." in plain_document(
        profile_document(foreign_profile(), "Profile: eagle")
    )


def test_a_trace_without_gpu_work_has_a_report():
    idle = dataclasses.replace(eagle_profile().idle, by_cause_ns={}, verify_to_draft_by_cause_ns={}, total_ns=0.0)
    graph = dataclasses.replace(eagle_profile().graph, graph_share_kernels=None, graph_share_time=None)
    bare = eagle_profile(kernels=(), timeline=(), syncs=(), syncs_per_round=0.0, idle=idle, graph=graph, phases=())
    for form in FORMS.values():
        assert "Evidence" in form(profile_document(bare, "Profile: eagle"))


def test_several_arms_are_side_by_side_first():
    profiles = {"eagle": eagle_profile(), "fused": fused_profile(), "foreign": foreign_profile()}
    table = overview_table(list(profiles.items()), shared=())
    assert row(table, "eagle")[1:] == ("good", "holds", "18", "4", "95.1%", "3.4", "31.2", "71.5%", "1.26x")
    assert row(table, "foreign")[-1] == "-"
    page = html_page(profiles_document(profiles, "Profiles of x"))
    assert page.index("Arms side by side") < page.index(">eagle</h2>") < page.index(">Command</h3>")
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]+)"', page)) <= set(ids)


@pytest.mark.parametrize("width", [60, 100, 200])
def test_the_terminal_shows_all_at_any_width(width):
    console = Console(width=width, force_terminal=True, record=True, file=io.StringIO())
    print_document(profile_document(hostile_profile(), "Profile: eagle"), console)
    text = console.export_text().replace("\n", "")
    assert "onerror=alert" in text and "Time and launches" in text


def test_names_from_a_trace_are_text_on_the_page():
    page = html_page(profile_document(hostile_profile(), "Profile: eagle"))
    assert "<script" not in page and "</script" not in page and "<img" not in page
    assert "&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;" in page


def test_names_from_a_trace_are_text_in_markdown():
    text = markdown_document(profile_document(hostile_profile(), "Profile: eagle"))
    outside = re.sub(r"(`{3,})text\n.*?\n\1", "", text, flags=re.DOTALL)
    assert HOSTILE in text  # in a code block, to be copied
    assert "<img" not in outside and "</script" not in outside


def test_the_page_holds_no_script_and_no_address():
    page = html_page(profile_document(eagle_profile(), "Profile: eagle"))
    assert not re.search(r"<script|\bon\w+=|https?:|@import|url\((?!#)|src=", page)
    assert "default-src 'none'" in page


def test_tables_have_captions_and_scopes():
    page = html_page(profile_document(eagle_profile(), "Profile: eagle"))
    tables = page.count("<table>")
    assert tables == page.count("<caption>") == page.count('<div class="scroll"') - page.count('<svg class="timeline"')
    assert page.count('scope="row"') > 20 and page.count('scope="col"') > 20


def test_columns_of_words():
    assert text_columns([("a", "1.5", "-"), ("b", "<0.1%", "+12.5 pt"), ("c", "x", "1.26x")]) == {0, 1}


def test_a_profiler_that_slows_rounds_too_much_leaves_counts_only():
    slow = eagle_profile(slow_down=SlowDown(profiled_round_ns=160.0, unprofiled_round_ns=100.0))
    text = plain_document(profile_document(slow, "Profile: eagle"))
    assert "! The profiler slowed the rounds 1.60x, more than 1.5x" in text
    assert "GPU idle time by cause" not in text and "Verify to draft" not in text
    assert row(phase_table(without_host_times(slow)), "verify")[1] == "-" and "How each part ran" in text
    assert "! The profiler slowed" not in plain_document(profile_document(eagle_profile(), "Profile: eagle"))


@pytest.mark.parametrize(
    ("graph_kernels", "graph_launches", "said"),
    [
        (0, 0, "eager"),
        (5, 2, "piecewise, 35.7% of its kernels from graphs"),
        (14, 1, "one graph"),
        (14, 3, "3 graphs"),
        (14, 0, "in a graph launched by another part"),
    ],
)
def test_the_verdict_on_a_pass(graph_kernels, graph_launches, said):
    (first, *_) = [p for p in eagle_profile().phases if p.draft_step == 0]
    share = graph_kernels / first.kernels
    found = dataclasses.replace(
        first, graph_kernels=graph_kernels, graph_launches=graph_launches, graph_share_kernels=share
    )
    assert ran_as(found) == said


def test_what_a_drafter_does_between_its_passes_is_no_pass():
    profile = eagle_profile()
    (first, *_) = [p for p in profile.phases if p.draft_step == 0]
    glue = dataclasses.replace(first, draft_step=None, kernels=3, graph_kernels=0)
    both = dataclasses.replace(profile, phases=(*profile.phases, glue))
    assert glue not in both.drafter and len(both.drafter) == 4
    assert row(parts_table(both), "draft, between passes")[1] == "eager"
    alone = dataclasses.replace(profile, phases=(*(p for p in profile.phases if p.phase != "draft"), glue))
    assert alone.drafter == (glue,) and row(parts_table(alone), "draft")[1] == "eager"


def test_a_round_of_more_than_10_000_microseconds_is_told_in_milliseconds():
    slow = eagle_profile(round_ns=1_229_250_000.0)
    phases = tuple(dataclasses.replace(p, gpu_busy_ns=1000 * p.gpu_busy_ns) for p in slow.phases)
    slow = dataclasses.replace(slow, phases=phases)
    busy = next(fact for fact in profile_document(slow, "Profile: eagle").sections[0].facts if fact.name == "GPU busy")
    assert busy.note.endswith("median round 1,229 ms")
    table = phase_table(slow)
    at = table.headers.index("GPU busy ms")
    assert row(table, "verify")[at] == "512.0" and row(table, "advance")[at] == "6.00" and "host µs" in table.headers


def test_no_cause_has_a_share_of_no_idle_time():
    idle = dataclasses.replace(eagle_profile().idle, by_cause_ns={"host-late": 0.0})
    assert idle_table(dataclasses.replace(eagle_profile(), idle=idle)).rows[0][2] == "-"
