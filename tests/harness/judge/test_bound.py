"""`bound` on runs of made-up drafters whose counts are known at every position, against brute-force simulation."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from run_samples import begun, prefill, request, step

from specbench.harness.judge.bound import bound_of
from specbench.harness.spec.arm import ArmSetup
from specbench.harness.store.arm_record import Fact
from specbench.harness.store.run_directory import RunDirectory

LENGTH, MOST = 7, 3  # tokens of an output; drafts
MS = {0: 10.0, 1: 12.0, 2: 13.5, 3: 15.0}  # a round of the drafter `eagle`; MS[2] is on the line between its neighbours
NGRAM_MS = 11.0  # of K = 3, the only one measured
COUNTS = st.lists(st.lists(st.integers(0, MOST), min_size=LENGTH, max_size=LENGTH), min_size=2, max_size=2)


def block(counts, k, round_ms, everywhere=False, token=7):
    """Requests one after the other; `counts[request][before]`: what a round that begins there gets accepted.
    `everywhere`: each round keeps one token only, so that one begins at every position."""
    requests, steps, now = [], [], 0.0
    for request_id, count in enumerate(counts):
        steps.append(prefill(len(steps), request_id, now, now + 20))
        first = now = now + 20
        before = 1
        while before < LENGTH:
            accepted = min(count[before], k)
            kept = 1 if everywhere else min(accepted + 1, LENGTH - before)
            steps.append(step(len(steps), request_id, now, now + round_ms, k=k, j=accepted, emitted=kept))
            now, before = now + round_ms, before + kept
        row = request(request_id, first_ms=first, last_ms=now, num_output_tokens=LENGTH, token=token)
        requests.append(row)
    return {"requests": requests, "steps": steps}


def stored(folder, everywhere=False, **arms):
    """A run of no-spec and `label=(counts, K, ms a round)`, labels without punctuation: eagle_1, ngram_3."""
    labels = {name: name.replace("_", ":k=") for name in arms}
    run = RunDirectory.create(folder, "bound", begun("no-spec", *labels.values()))
    run.append("no-spec", 0, **block([[0] * LENGTH] * 2, 0, MS[0]))
    for name, (counts, k, round_ms) in arms.items():
        run.append(labels[name], 0, **block(counts, k, round_ms, everywhere))
    return run


def walked_ms(counts, k, round_ms):
    """Simulation of K drafts in every round."""
    before, total = 1, 0.0
    while before < LENGTH:
        before, total = before + 1 + min(counts[before], k), total + round_ms
    return total


def best_ms(options, before=1):
    """Of all sequences of rounds. `options`: (counts of the drafter, K, ms)."""
    if before >= LENGTH:
        return 0.0
    return min(ms + best_ms(options, before + 1 + min(counts[before], k)) for counts, k, ms in options)


def tpot(total_ms):
    return pytest.approx(total_ms / (2 * (LENGTH - 1)))


def ngram_ms(k):
    return MS[0] + (NGRAM_MS - MS[0]) * k / MOST


def found(run):
    bound = bound_of(run)
    return bound, {row.name.replace("eagle and ngram", "pair"): row for row in bound.rows}


@settings(max_examples=8, deadline=None)
@given(eagle=COUNTS, ngram=COUNTS)
def test_where_rounds_began_everywhere_it_is_the_simulation(tmp_path_factory, eagle, ngram):
    arms = {"eagle_3": (eagle, 3, MS[3]), "ngram_3": (ngram, 3, NGRAM_MS)}
    _, rows = found(stored(tmp_path_factory.mktemp("runs"), everywhere=True, **arms))
    line = {k: MS[0] + (MS[3] - MS[0]) * k / 3 for k in range(MOST + 1)}
    walks = {k: [walked_ms(counts, k, line[k]) for counts in eagle] for k in line}
    assert rows["eagle, best K for all rounds"].tpot_ms == tpot(min(map(sum, walks.values())))
    assert rows["eagle, best K for each request"].tpot_ms == tpot(sum(map(min, zip(*walks.values(), strict=True))))
    by_round = [[(counts, k, line[k]) for k in line] for counts in eagle]
    assert rows["eagle, best K for each round"].tpot_ms == tpot(sum(map(best_ms, by_round)))
    either = [[*own, *((counts, k, ngram_ms(k)) for k in line)] for own, counts in zip(by_round, ngram, strict=True)]
    assert rows["pair, best of both and K for each round"].tpot_ms == tpot(sum(map(best_ms, either)))
    longer = [[max(pair) for pair in zip(*both, strict=True)] for both in zip(eagle, ngram, strict=True)]
    both_ms = MS[3] + NGRAM_MS - MS[0]
    assert rows["pair in every round"].tpot_ms == tpot(sum(walked_ms(counts, 3, both_ms) for counts in longer))
    perfect = min(math.ceil((LENGTH - 1) / (k + 1)) * line[k] for k in line if k)
    assert rows["eagle, perfect drafts"].tpot_ms == tpot(2 * perfect)
    for row in rows.values():
        assert row.low_ms == pytest.approx(row.tpot_ms) == pytest.approx(row.high_ms) and row.known in (1, None)


@settings(max_examples=8, deadline=None)
@given(eagle=COUNTS, ngram=COUNTS)
def test_the_truth_is_within_the_bounds_of_what_real_arms_record(tmp_path_factory, eagle, ngram):
    arms = {f"eagle_{k}": (eagle, k, MS[k]) for k in (1, 3)} | {"ngram_3": (ngram, 3, NGRAM_MS)}
    bound, rows = found(stored(tmp_path_factory.mktemp("runs"), **arms))
    (facts, _) = bound.drafters
    assert facts.round_ms == pytest.approx(tuple(MS.values())) and facts.measured == (0, 1, 3)
    assert facts.num_shared == facts.num_equal > 0
    walks = {k: [walked_ms(counts, k, MS[k]) for counts in eagle] for k in MS}
    for k in (1, 3):
        assert rows[f"eagle:k={k}"].tpot_ms == tpot(sum(walks[k]))
    by_round = [[(counts, k, MS[k]) for k in MS] for counts in eagle]
    either = [[*own, *((counts, k, ngram_ms(k)) for k in MS)] for own, counts in zip(by_round, ngram, strict=True)]
    truths = {
        "eagle, best K for all rounds": min(map(sum, walks.values())),
        "eagle, best K for each request": sum(map(min, zip(*walks.values(), strict=True))),
        "eagle, best K for each round": sum(map(best_ms, by_round)),
        "pair, best of both and K for each round": sum(map(best_ms, either)),
    }
    for name, total_ms in truths.items():
        row, true_ms = rows[name], total_ms / (2 * (LENGTH - 1))
        assert row.low_ms - 1e-9 <= true_ms <= row.high_ms + 1e-9, name
        assert row.low_ms - 1e-9 <= row.tpot_ms <= row.high_ms + 1e-9, name
        assert (row.low, row.high) == (MS[0] / row.high_ms, MS[0] / row.low_ms)


def test_a_measured_k_stands_as_it_was_measured_where_arms_disagree(tmp_path):
    """An arm with more drafts says otherwise at the same positions: near-ties of the arithmetic."""
    ones, none = [[1] * LENGTH] * 2, [[0] * LENGTH] * 2
    bound, rows = found(stored(tmp_path, eagle_1=(ones, 1, MS[1]), eagle_3=(none, 3, MS[3])))
    assert rows["eagle, best K for all rounds"].tpot_ms == rows["eagle:k=1"].tpot_ms == tpot(6 * MS[1])
    (facts,) = bound.drafters
    assert (facts.num_shared, facts.num_equal) == (6, 0)


def test_behind_a_token_that_differs_nothing_of_the_arm_counts(tmp_path):
    run = stored(tmp_path, eagle_3=([[0] * LENGTH] * 2, 3, MS[3]), ngram_3=([[0] * LENGTH] * 2, 3, NGRAM_MS))
    assert found(run)[1]["ngram, best K for each round"].known == 1
    run.append("ngram:k=3", 0, **block([[3] * LENGTH] * 2, 3, NGRAM_MS, token=8))
    rows = found(run)[1]
    row = rows["ngram, best K for each round"]
    assert row.known == 0 and row.low_ms < row.high_ms
    assert rows["ngram, best K for all rounds"].high_ms == rows["ngram:k=3"].tpot_ms  # its own output tells all of K=3
    run.put_arm(replace(run.record.arm("ngram:k=3"), config=ArmSetup(acceptance="synthetic:rates=1/1/1")))
    assert bound_of(run).is_synthetic  # goes by position, whatever the tokens
    rows = found(run)[1]
    assert rows["ngram, best K for each round"].known > 0 and not [name for name in rows if "pair" in name]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"depth": 2}, "eagle:k=3: drafts trees"),
        ({"num_accepted": None}, "eagle:k=3: no such counter"),
        ({"k": 0}, "eagle:k=3: never drafted"),
    ],
    ids=["tree", "no acceptance", "no drafts"],
)
def test_what_cannot_be_known_is_refused_by_name(tmp_path, change, message):
    run = stored(tmp_path, eagle_3=([[0] * LENGTH] * 2, 3, MS[3]))
    own = block([[0] * LENGTH] * 2, 3, MS[3])
    for row in own["steps"]:
        if not row["is_prefill"]:
            named = {"depth": "draft_depth", "k": "num_proposed"}
            row |= {named.get(name, name): value for name, value in change.items()}
            row |= {"draft_depth": 0} if "k" in change else {}
    run.append("eagle:k=3", 0, **own)
    run.put_arm(replace(run.record.arm("eagle:k=3"), unknown={Fact.ACCEPTANCE: "no such counter"}))
    with pytest.raises(ValueError, match=f"has no arm with usable rounds: {message}"):
        bound_of(run)


def test_other_refusals(tmp_path):
    run = RunDirectory.create(tmp_path, "bound", begun("eagle:k=3"))
    with pytest.raises(ValueError, match="has no arm no-spec"):
        bound_of(run)
    run = stored(tmp_path, eagle_3=([[0] * LENGTH] * 2, 3, MS[3]), ngram_3=([[0] * LENGTH] * 2, 3, MS[3]))
    run.put_arm(replace(run.record.arm("ngram:k=3"), config=ArmSetup(engine="vllm")))
    assert bound_of(run).left_out == ("ngram:k=3: a different engine than that of no-spec",)


@pytest.mark.parametrize("label", ["no-spec", "eagle:k=3"])
@pytest.mark.parametrize(
    "change",
    [
        lambda own: [row.update(t_last_ns=row["t_first_ns"]) for row in own["requests"]],
        lambda own: [row.update(num_output_tokens=1, output_token_ids=[7]) for row in own["requests"]],
        lambda own: [row.update(request_id=row["request_id"] + 10) for row in own["steps"]],
    ],
    ids=["no time", "one token each", "rounds of other requests"],
)
def test_rounds_that_nothing_can_be_learned_from_are_refused_by_arm(tmp_path, label, change):
    """Figures would be divided by that time, or be nan."""
    run = RunDirectory.create(tmp_path, "bound", begun("no-spec", "eagle:k=3"))
    for name, k in (("no-spec", 0), ("eagle:k=3", 3)):
        own = block([[0] * LENGTH] * 2, k, MS[k])
        if name == label:
            change(own)
        run.append(name, 0, **own)
    with pytest.raises(ValueError, match=f"run: the requests of {label} show no time after their first token, or no"):
        bound_of(run)
