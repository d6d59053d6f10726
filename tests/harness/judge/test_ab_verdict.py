"""The record of an experiment: verdicts by metric, rejected blocks, equal sides, outputs, exit codes."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from ab_samples import ACCEPTED, experiment

from specbench.harness.judge import ab_verdict as judge_module
from specbench.harness.judge.ab_verdict import judge
from specbench.harness.metrics.figures import TOKENS_PER_STEP, TPOT_MS
from specbench.harness.store.ab_judgement import SameOutput
from specbench.harness.store.codec import to_document
from specbench.reports.document import Cell
from specbench.reports.experiments.verdict_table import verdict_table
from specbench.reports.site import badges


def by_name(record: dict) -> dict[str, dict]:
    return {m.metric.name: m for m in record.metrics}


def verdicts(record: dict) -> list[str]:
    found = by_name(record)
    return [found[name].verdict for name in ("step time", "tokens per step", "TPOT")]


def test_a_faster_step(tmp_path):
    record = judge(experiment(tmp_path, change=-0.03))
    assert verdicts(record) == ["improved", "equivalent", "improved"]
    assert (record.verdict, record.exit_code, record.num_kept, record.num_rejected) == ("improved", 0, 10, 0)
    step = by_name(record)["step time"]
    assert step.change == pytest.approx(-0.03, abs=0.005) and step.low < -0.03 < step.high
    assert step.b / step.a - 1 == pytest.approx(step.change) and step.a == pytest.approx(10, rel=0.03)
    assert step.num_pairs == len(step.pairs) == 10
    json.dumps(to_document(record), allow_nan=False)


def test_a_slower_step_is_a_regression(tmp_path):
    record = judge(experiment(tmp_path, change=+0.03))
    assert verdicts(record) == ["regressed", "equivalent", "regressed"]
    assert record.verdict == "regressed" and record.exit_code == 1


def test_less_acceptance_is_seen_apart_from_speed(tmp_path):
    """The same step time and fewer tokens: tokens per step by prompt, and TPOT, tell; the step does not."""
    fewer = [max(0, j - 1) if i % 2 else j for i, j in enumerate(ACCEPTED)]
    record = judge(experiment(tmp_path, accepted_b=fewer))
    assert verdicts(record) == ["equivalent", "regressed", "regressed"] and record.exit_code == 1
    tokens = by_name(record)["tokens per step"]
    assert tokens.num_pairs == 12 and tokens.metric.pairs == "prompts" and tokens.change < -0.05


@pytest.mark.parametrize(("change", "product", "exit_code"), [(0.02, "improved", 0), (0.6, "regressed", 1)])
def test_longer_steps_of_more_tokens_go_both_ways_and_tpot_decides(tmp_path, change, product, exit_code):
    more = [j + 1 for j in ACCEPTED]
    record = judge(experiment(tmp_path, change=change, accepted_b=more))
    assert verdicts(record) == ["regressed", "improved", product]
    assert (record.verdict, record.product, record.exit_code) == ("mixed", product, exit_code)
    assert verdict_table(record).title == f"B against A: mixed, TPOT {product}"
    tone, sign = {"improved": ("good", "▲"), "regressed": ("bad", "▼")}[product]
    assert badges.verdict(record) == Cell(text=f"{sign} mixed, TPOT {product}", tone=tone)


def test_both_ways_without_a_tpot_is_no_verdict(tmp_path, monkeypatch):
    """Answers of one token have none: nobody can say what the change is worth."""
    own = judge_module.pairs_of

    def without_tpot(figure, *args):
        return replace(own(figure, *args), values=()) if figure is TPOT_MS else own(figure, *args)

    monkeypatch.setattr(judge_module, "pairs_of", without_tpot)
    record = judge(experiment(tmp_path, change=0.6, accepted_b=[j + 1 for j in ACCEPTED]))
    assert (record.verdict, record.product, record.exit_code) == ("mixed", "no data", 4)


def test_tokens_per_step_by_hand(tmp_path):
    record = judge(experiment(tmp_path, num_requests=6, accepted_b=[0] * 8))
    found = by_name(record)["tokens per step"]
    first = 1 + sum(ACCEPTED) / len(ACCEPTED)
    second = 1 + sum(ACCEPTED[1:]) / len(ACCEPTED[1:])
    third = 1 + sum(ACCEPTED[2:]) / len(ACCEPTED[2:])
    assert [a for a, _ in found.pairs] == pytest.approx([first, second, third] * 2)
    assert [b for _, b in found.pairs] == [1.0] * 6
    assert found.change == pytest.approx((first * second * third) ** (-1 / 3) - 1)


def test_chunks_that_a_client_saw_are_no_steps(tmp_path):
    """Some engines store them beside the server's steps, with no number of accepted drafts."""
    frames = experiment(tmp_path, num_requests=6, accepted_b=[0] * 8).frames()
    seen = frames.steps.assign(num_emitted=50, num_accepted=float("nan"))
    both = replace(frames, steps=pd.concat([frames.steps, seen], ignore_index=True))
    found, expected = (judge_module.pairs_of(TOKENS_PER_STEP, each, {}, range(10)) for each in (both, frames))
    assert len(expected.values) == 6 and found.values == expected.values


def test_noise_hides_it(tmp_path):
    record = judge(experiment(tmp_path, change=-0.01, noise=0.05))
    assert record.verdict == "inconclusive" and record.exit_code == 0
    assert by_name(record)["step time"].more_pairs > 10


def test_fewer_than_six_blocks_are_exploratory(tmp_path):
    record = judge(experiment(tmp_path, change=-0.5, num_blocks=5))
    assert verdicts(record) == ["exploratory"] * 3 and record.verdict == "exploratory" and record.exit_code == 4
    assert by_name(record)["step time"].change == pytest.approx(-0.5, abs=0.02)


def test_rejected_blocks_do_not_count(tmp_path):
    reasons = {("A", 2): ["throttled: hardware slowdown"], ("B", 5): ["1 foreign processes on the GPU"]}
    record = judge(experiment(tmp_path, change=-0.03, reasons=reasons))
    assert (record.num_kept, record.num_rejected, record.verdict) == (8, 2, "improved")
    assert record.blocks[2].reasons == ("A: throttled: hardware slowdown",)
    assert by_name(record)["step time"].num_pairs == 8


def test_failed_blocks_are_rejected(tmp_path):
    record = judge(experiment(tmp_path, change=-0.03, failed=[("B", 1)]))
    assert record.num_rejected == 1 and record.num_kept == 9
    assert record.blocks[1].reasons == ("B: failed: RuntimeError: out of memory",)


def test_more_than_a_fifth_rejected_is_invalid(tmp_path):
    reasons = {("A", n): ["throttled: hardware slowdown"] for n in (0, 3, 7)}
    record = judge(experiment(tmp_path, change=+0.3, reasons=reasons))
    assert (record.num_rejected, record.verdict, record.exit_code) == (3, "invalid", 4)
    assert verdicts(record) == ["exploratory"] * 3, "no metric of an invalid measurement has a verdict"


def test_failed_requests_reject_a_block(tmp_path):
    run = experiment(tmp_path, change=-0.03, finished=False)
    frames = run.frames()
    rows = frames.requests[(frames.requests["arm"] == "A") & (frames.requests["repeat"] == 4)]
    steps = frames.steps[(frames.steps["arm"] == "A") & (frames.steps["repeat"] == 4)]
    rows = rows.assign(
        finish_reason=["error", *["length"] * (len(rows) - 1)], error=["broken", *[""] * (len(rows) - 1)]
    )
    run.append("A", 4, rows.to_dict("list"), steps.to_dict("list"))
    record = judge(run)
    assert record.blocks[4].reasons == ("A: 1 failed requests",) and record.num_kept == 9


@pytest.mark.parametrize("reasons", [{}, {("A", 9): ["load"]}])
def test_a_block_of_which_one_side_is_missing(tmp_path, reasons):
    """Nine good blocks of ten are no verdict yet: the number was fixed beforehand."""
    record = judge(experiment(tmp_path, change=-0.03, missing=[("B", 9)], finished=False, reasons=reasons))
    assert record.verdict == "unfinished" and verdicts(record) == ["exploratory"] * 3 and record.exit_code == 4
    assert record.num_kept == 9 and record.num_rejected == 0 and record.status == "running"
    assert record.blocks[9].measured is False


def test_equal_sides(tmp_path):
    quiet = judge(experiment(tmp_path, is_aa=True))
    assert (quiet.is_aa, quiet.verdict, quiet.exit_code) == (True, "equivalent", 0)
    moved = judge(experiment(tmp_path, is_aa=True, change=-0.05))
    assert (moved.verdict, moved.exit_code) == ("invalid", 4), "a change between equal sides is a bad measurement"


def test_unchanged_code_has_no_verdict_of_change(tmp_path):
    """A/A experiments at the noise of a quiet machine; test_simulated_truth.py has them by the thousand."""
    found = [judge(experiment(tmp_path, noise=0.004, num_requests=2, seed=seed)).verdict for seed in range(4)]
    assert found == ["equivalent"] * 4


def test_outputs_are_compared(tmp_path):
    same = judge(experiment(tmp_path, min_same_output=1.0))
    assert same.same_output == SameOutput(num_same=120, num_pairs=120, is_enough=True) and same.exit_code == 0
    longer = [4, *ACCEPTED[1:-1], 3]
    differ = judge(experiment(tmp_path, change=0.1, accepted_b=longer, min_same_output=1.0))
    assert differ.same_output.num_same < 120 and verdicts(differ)[0] == "regressed"
    assert differ.exit_code == 6, "wrong outputs come before speed"


def test_a_share_of_equal_outputs_is_met_exactly(tmp_path):
    """0.55 * 20 is a little more than 11 in floating point."""
    run = experiment(tmp_path, num_requests=2, min_same_output=0.55)
    frames = run.frames()
    for block in range(9):
        rows = frames.requests[(frames.requests["arm"] == "B") & (frames.requests["repeat"] == block)]
        steps = frames.steps[(frames.steps["arm"] == "B") & (frames.steps["repeat"] == block)]
        rows = rows.assign(output_sha256=["other", *rows["output_sha256"][1:]])
        run.append("B", block, rows.to_dict("list"), steps.to_dict("list"))
    record = judge(run)
    assert record.same_output == SameOutput(num_same=11, num_pairs=20, is_enough=True) and record.exit_code == 0


@pytest.mark.parametrize(
    "change",
    [{"prompt_id": "another {}"}, {"output_sha256": None}, {"output_sha256": "text:{}"}],
    ids=["other prompts", "unknown", "text beside tokens"],
)
def test_outputs_that_nobody_can_compare_are_no_pass(tmp_path, change):
    """They are not wrong either, which would be exit code 6."""
    run = experiment(tmp_path, change=-0.03, min_same_output=0.9)
    frames = run.frames()
    for block in range(10):
        rows = frames.requests[(frames.requests["arm"] == "B") & (frames.requests["repeat"] == block)]
        steps = frames.steps[(frames.steps["arm"] == "B") & (frames.steps["repeat"] == block)]
        rows = rows.assign(**{name: [how and how.format(i) for i in range(len(rows))] for name, how in change.items()})
        run.append("B", block, rows.to_dict("list"), steps.to_dict("list"))
    record = judge(run)
    assert record.same_output.num_pairs == 0 and record.exit_code == 4
    assert any("cannot be checked" in note for note in verdict_table(record).notes)


def test_the_minimum_effect_is_the_plan_s(tmp_path):
    assert judge(experiment(tmp_path, change=-0.03, min_effect=0.1)).verdict == "equivalent"


def test_figures_are_those_of_the_blocks(tmp_path):
    run = experiment(tmp_path, change=-0.03)
    pairs = np.array(by_name(judge(run))["TPOT"].pairs)
    from specbench.harness.metrics.metrics import measure_blocks

    blocks = measure_blocks(run.frames())
    expected = [[blocks[label, n].values["tpot_ms.mean"] for label in "AB"] for n in range(10)]
    assert pairs == pytest.approx(np.array(expected))


def test_sides_that_are_driven_differently_have_no_verdict(tmp_path):
    """A factor of 1.6 that HTTP may have made, in both directions of time; the same sides driven alike have one."""
    record = judge(experiment(tmp_path, change=0.6, driven=("in process", "HTTP")))
    assert verdicts(record) == ["exploratory"] * 3 and (record.verdict, record.exit_code) == ("exploratory", 4)
    assert by_name(record)["step time"].change == pytest.approx(0.6, abs=0.02), "what was measured is still told"
    assert "A was driven in process, B HTTP" in to_document(record)["driven_otherwise"]
    assert f"exploratory: {record.driven_otherwise}" in verdict_table(record).notes
    for driven in (("HTTP", "HTTP"), (None, "in process")):
        alike = judge(experiment(tmp_path, change=0.6, driven=driven))
        assert (alike.verdict, alike.driven_otherwise) == ("regressed", "")
