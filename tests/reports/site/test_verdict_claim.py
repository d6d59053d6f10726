"""What stands at the head of an experiment: sides apart, change with interval and power, proof, cautions."""

from __future__ import annotations

from dataclasses import replace

from site_samples import experiment_run

from specbench.reports.charts.chart import Styles
from specbench.reports.site import badges
from specbench.reports.site.overview_page import overview_page
from specbench.reports.site.runs import read_site_runs
from specbench.reports.site.verdict_claim import caution, claim_facts, claim_sides, claim_title, claim_words


def read(path):
    return read_site_runs([path])[0][0]


def named(record, a, b, **more):
    """The record with other arms."""
    arms = {label: replace(record.arms[label], name=name) for label, name in (("A", a), ("B", b))}
    return replace(record, arms=arms, **more)


def test_the_sides_are_told_by_what_they_differ_in(tmp_path):
    record = read(experiment_run(tmp_path, change=-0.03)).ab
    assert claim_title(record) == "B eagle:k=4 against A eagle:k=2"
    forced = ",acceptance=synthetic:rates=0.7"
    sides = "eagle:k=4,state=torch" + forced, "eagle:k=4,state=fused" + forced + "/0.5"
    assert claim_title(named(record, *sides)) == "B state=fused against A state=torch; both eagle:k=4"
    assert claim_sides(named(record, *sides)) == "state=fused against state=torch"
    assert claim_title(named(record, "eagle" + forced, "eagle")).startswith("B eagle")
    assert claim_title(named(record, "eagle:k=2", "eagle:k=2", is_aa=True)) == "A/A: eagle:k=2"
    sides = tuple(replace(s, ref=ref) for s, ref in zip(record.plan.sides, ("main", "fast"), strict=True))
    at = named(record, "eagle:k=2", "eagle:k=2", plan=replace(record.plan, sides=sides))
    assert claim_title(at) == "B at fast against A at main; both eagle:k=2"


def test_the_facts_are_change_interval_power_and_proof(tmp_path):
    run = read(experiment_run(tmp_path, change=-0.03))
    facts = {fact.name: fact for fact in claim_facts(run)}
    assert list(facts) == ["TPOT", "step time", "tokens per step", "same answers", "losslessness"]
    tpot = next(c for c in run.ab.metrics if c.metric.name == "TPOT")
    assert tpot.low < -0.03 < tpot.high or abs(tpot.change + 0.03) < 0.01
    assert facts["TPOT"].value == f"{tpot.change:+.2%}" and f"95% [{tpot.low:+.2%}," in facts["TPOT"].note
    assert f"MDE {tpot.least_effect:.2%} with 10 blocks" in facts["TPOT"].note
    assert facts["same answers"].value == "120 of 120" and facts["losslessness"].value == "not certified"
    assert claim_words(run.ab).startswith(f"TPOT {tpot.change:+.2%} [")


def test_without_a_verdict_there_is_no_large_figure(tmp_path):
    run = read(experiment_run(tmp_path, change=0.03, reasons={("B", n): ["throttled"] for n in range(8)}))
    assert claim_facts(run) == () and claim_words(run.ab) == "" and "are not verdicts" in caution(run.ab)[0]
    page = overview_page([run], [], [], Styles())
    newest, runs = page.sections
    assert "best speed-up, or change" not in runs.tables[0].headers  # a column that would say nothing
    ((link, why),) = newest.tables[0].rows
    assert (newest.badge, newest.facts, newest.charts) == (None, (), ()) and (link, why) == (run.link, "invalid")
    assert newest.sentences == ("No run here has a result to put first.",)
    certificates = next(fact for fact in runs.facts if "certificates" in fact.name)
    assert certificates.value == "none"


def test_forced_acceptance_random_weights_and_mismatches_are_said_first(tmp_path):
    record = read(experiment_run(tmp_path, change=-0.03)).ab
    assert caution(record) == ()
    notes = ("synthetic acceptance (rates=0.7/0.5)", "synthetic weights")
    arms = {**record.arms, "B": replace(record.arms["B"], notes=notes)}
    record = replace(record, mismatches=("seed: 1 and 2",), arms=arms)
    mismatch, forced, weights = caution(record)
    assert claim_words(record).endswith("(forced acceptance)")
    assert "seed: 1 and 2" in mismatch and "(B: rates=0.7/0.5)" in forced and weights.startswith("Random weights (B)")


def test_wrong_answers_are_not_good_news(tmp_path):
    record = read(experiment_run(tmp_path, change=-0.03)).ab
    assert badges.verdict(record).tone == badges.GOOD
    record = replace(record, same_output=replace(record.same_output, is_enough=False))
    assert badges.verdict(record).tone == badges.BAD and "WRONG" in badges.verdict(record).text
