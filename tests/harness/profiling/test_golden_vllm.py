"""Rounds of vLLM 0.26 on an H200 (golden/README.md), by the shipped rules: the counts of launches
and synchronisations were also counted in the trace's own tables, round by round."""

import pytest
from golden_traces import analysed

from specbench.reports.profile.report import profile_document
from specbench.reports.profile.sentences import warnings
from specbench.reports.terminal import plain_document

TOOLS = ("nsys", "kineto")


@pytest.fixture(scope="module")
def first_runner(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vllm")
    return {t: analysed({"nsys": "vllm/runner1.sqlite.xz", "kineto": "vllm/runner1.json.gz"}[t], folder) for t in TOOLS}


@pytest.mark.parametrize("tool", TOOLS)
def test_phases_of_the_first_model_runner(first_runner, tool):
    profile = first_runner[tool]
    quality = profile.quality
    assert (quality.verdict, quality.attributed_share, quality.num_rounds) == ("good", 1, 20)
    assert profile.batch_size == 1
    assert quality.num_ops_without_launch == quality.num_ops_without_round == 0
    rows = {row.phase: row for row in profile.phases}
    kernels = {name: (row.kernels, row.eager_launches, row.graph_launches) for name, row in rows.items()}
    assert kernels == {
        "advance": (19, 19, 0),
        "verify": (331, 0, 1),  # one graph holds the whole forward of the target
        "accept": (15, 15, 0),
        "draft": (96, 60, 8),  # four passes, each two graphs around eager attention
        "status": (0, 0, 0),
        "host": (0, 0, 0),
    }
    assert rows["draft"].graph_share_kernels == pytest.approx(36 / 96)
    assert [k.mean_ns > 0 for k in profile.kernels if k.is_attention and k.phase == "verify"] == [True, True]


def test_both_tools_agree_on_counts(first_runner):
    counts = {
        (p.graph.launches_per_round, p.graph.graph_launches_per_round, p.syncs_per_round, p.quality.num_ops)
        for p in first_runner.values()
    }
    ((launches, graph_launches, syncs, num_ops),) = counts
    assert (launches, graph_launches, num_ops) == (103, 9, 10_405)
    assert syncs == pytest.approx(59 / 20)  # two in the first round, three in each of the others


def test_the_tools_agree_on_shares(first_runner):
    shares = []
    for profile in first_runner.values():
        busy = {row.phase: row.gpu_busy_ns for row in profile.phases}
        shares.append({phase: time / sum(busy.values()) for phase, time in busy.items()})
    assert shares[0] == {phase: pytest.approx(share, abs=0.01) for phase, share in shares[1].items()}


def test_the_second_model_runner_names_no_phase_and_nothing_is_concluded_of_phases(tmp_path):
    profile = analysed("vllm/runner2.sqlite.xz", tmp_path)
    assert (profile.quality.verdict, profile.quality.attributed_share, profile.phases) == ("refused", 0, ())
    assert profile.graph.graph_launches_per_round == 5  # one of the target, four of the drafter: no eager attention
    assert profile.syncs_per_round == 1
    (warning,) = warnings(profile)
    assert "VLLM_USE_V2_MODEL_RUNNER=0" in warning


@pytest.mark.parametrize(
    ("claims", "verdict", "reasons"),
    [
        ({"verify": "full", "drafter": "piecewise"}, "holds", ()),
        ({"drafter": "full"}, "void", ("draft (claimed full): 1200 of 1920 kernels launched by the host",)),
        ({"first": "full"}, "void", ("first (claimed full): no kernels of it in 20 of 20 rounds",)),
    ],
)
def test_what_is_claimed_of_the_first_model_runner(tmp_path, claims, verdict, reasons):
    graph = analysed("vllm/runner1.json.gz", tmp_path, **claims).graph
    assert graph.verdict == verdict and len(graph.reasons) == len(reasons)
    assert all(found.startswith(said) for found, said in zip(graph.reasons, reasons, strict=True)), graph.reasons


def test_a_claim_about_phases_that_are_not_named_cannot_be_told(tmp_path):
    graph = analysed("vllm/runner2.sqlite.xz", tmp_path, drafter="full").graph
    assert graph.verdict == "cannot tell" and "could be attributed to a phase" in graph.reasons[0]


def test_the_graphs_of_the_second_model_runner_are_told_apart_as_far_as_launches_can(tmp_path):
    """One replay of the target, with 30 layers; then the drafter's, whose later passes are one graph, three times."""
    profile = analysed("vllm/runner2.sqlite.xz", tmp_path)
    rows = [(r.first, r.num, r.attention > 0, r.rounds) for r in profile.replays]
    assert [row[:3] for row in rows] == [(1, 1, True), (2, 1, True), (3, 3, True)]
    assert sum(r.num for r in profile.replays) == profile.graph.graph_launches_per_round
    assert profile.replays[0].kernels > 10 * profile.replays[1].kernels
    text = plain_document(profile_document(profile, "Profile: eagle"))
    assert "Graphs replayed" in text and "3 to 5, the same graph" in text
    assert "Graphs replayed" not in plain_document(
        profile_document(analysed("vllm/runner1.json.gz", tmp_path), "Profile: eagle")
    )
