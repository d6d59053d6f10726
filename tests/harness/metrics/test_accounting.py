import math

import pytest
from run_samples import frame, phase, prefill, request, step

from specbench.harness.metrics.accounting import (
    accounting_identity,
    phase_metrics,
    phase_rounds,
    round_metrics,
    step_table,
)
from specbench.harness.metrics.latency import latency_metrics


def mixed_example():
    """Request 0 decodes alone, sits through the prefill of request 1 (decoding one token in it), then both decode."""
    steps = [
        prefill(0, 0, 0, 10),
        step(1, 0, 12, 20, k=1, j=1, num_syncs=3),
        prefill(2, 1, 21, 41, batch_size=2),
        step(2, 0, 21, 41, kind="mixed", batch_size=2),
        step(3, 0, 43, 53, k=1, j=1, batch_size=2, num_syncs=1),
        step(3, 1, 43, 53, k=1, j=0, batch_size=2, num_syncs=1),
    ]
    requests = [
        request(0, first_ms=10, last_ms=53, num_output_tokens=6),
        request(1, submit_ms=15, first_ms=41, last_ms=53, num_output_tokens=2),
    ]
    return frame("requests", requests), frame("steps", steps)


def identity(requests, steps, phases):
    tpot_ms = latency_metrics(requests, steps)["tpot_ms.weighted"]
    table = step_table(steps)
    return accounting_identity(requests, steps, phase_rounds(frame("phases", phases), table), table, tpot_ms)


def test_rounds_by_hand():
    figures = round_metrics(step_table(mixed_example()[1]))
    assert figures["num_decode_rounds"] == 2 and figures["num_mixed_steps"] == 1 + 1
    assert figures["round_ms.mean"] == pytest.approx((10 + 12) / 2)
    assert figures["decode_tps"] == pytest.approx((2 + 2 + 1) / 0.022)
    assert figures["gap_ms.mean"] == pytest.approx(2)
    assert figures["syncs_per_round"] == pytest.approx(2)
    assert figures["mean_batch_size"] == pytest.approx(1.5)
    assert {k: v for k, v in figures.items() if k.startswith("rounds_by_graph.")} == {"rounds_by_graph.none": 2}


def test_drafts_of_a_round_by_hand():
    """Rounds of one request with 5, 2 and 2 rows, and one of two requests with a row each."""
    steps = [step(n, 0, 10 * n, 10 * n + 9, k=k) for n, k in enumerate((4, 1, 1))]
    steps += [step(3, request, 30, 39, k=0, batch_size=2) for request in (0, 1)]
    figures = round_metrics(step_table(frame("steps", steps)))
    assert figures["drafts_per_round"] == pytest.approx((4 + 1 + 1 + 0) / 4)
    shares = {name: value for name, value in figures.items() if name.startswith("rounds_by_drafts.")}
    assert shares == {"rounds_by_drafts.0": 0.25, "rounds_by_drafts.1": 0.5, "rounds_by_drafts.4": 0.25}


def test_no_shares_where_requests_of_a_round_have_unequal_drafts():
    steps = [step(0, request, 0, 9, k=k, batch_size=2) for request, k in ((0, 1), (1, 2))]
    figures = round_metrics(step_table(frame("steps", steps)))
    assert figures["drafts_per_round"] == pytest.approx(1.5)
    assert not any(name.startswith("rounds_by_drafts.") for name in figures)


def test_drafts_are_those_offered_not_the_rows_that_are_computed():
    """An n-gram look-up of up to 4 drafts that found 4, none and 2: every round has 5 rows."""
    steps = [step(n, 0, 10 * n, 10 * n + 9, k=4) | {"num_proposed": found} for n, found in enumerate((4, 0, 2))]
    figures = round_metrics(step_table(frame("steps", steps)))
    assert figures["drafts_per_round"] == pytest.approx(2) and figures["rounds_by_drafts.0"] == pytest.approx(1 / 3)
    assert figures["rows_per_round"] == 5
    unknown = [row | {"num_proposed": None} for row in steps]
    assert round_metrics(step_table(frame("steps", unknown)))["drafts_per_round"] is None


def test_overlapping_launches_count_no_time_twice():
    steps = [step(0, 0, 0, 10), step(1, 0, 2, 20), step(2, 0, 4, 30)]
    table = step_table(frame("steps", steps))
    assert table["round_ns"].sum() == 30_000_000
    assert math.isnan(table["gap_ns"].iloc[0]) and (table["gap_ns"].iloc[1:] == 0).all()


def test_identity_holds_with_mixed_steps_and_uneven_batches():
    requests, steps = mixed_example()
    figures, _ = identity(requests, steps, [phase(1, "verify", 8), phase(3, "verify", 10)])
    assert figures["tpot_ms"] == pytest.approx(55 / 6)
    parts_ms = {name: value for name, value in figures.items() if name.startswith("parts_ms.")}
    assert parts_ms == pytest.approx({"parts_ms.verify": 28 / 3, "parts_ms.gap": 2})
    assert figures["mixed_ms_per_token"] == pytest.approx(21 / 6)
    assert figures["residual"] == pytest.approx(0, abs=1e-9)


def test_mixed_steps_that_run_ahead_are_charged_from_when_the_last_one_was_read():
    """Step 2 is launched before request 1 has its first token, which step 1 brings."""
    steps = [
        prefill(0, 0, 0, 10),
        prefill(1, 1, 5, 20, batch_size=2),
        step(1, 0, 5, 20, kind="mixed", batch_size=2),
        prefill(2, 2, 15, 32, batch_size=3),
        *(step(2, n, 15, 32, kind="mixed", batch_size=3) for n in (0, 1)),
        step(3, 0, 34, 40, k=1, j=0),
    ]
    requests = [
        request(0, first_ms=10, last_ms=40, num_output_tokens=4),
        request(1, first_ms=20, last_ms=32, num_output_tokens=2),
        request(2, first_ms=32, last_ms=32, num_output_tokens=1),
    ]
    figures, _ = identity(frame("requests", requests), frame("steps", steps), [phase(3, "verify", 5)])
    assert figures["mixed_ms_per_token"] == pytest.approx((10 + 2 * 12) / 4)


def test_time_outside_the_phases_shows_as_residual():
    requests, steps = mixed_example()
    figures, _ = identity(requests, steps, [phase(1, "verify", 6), phase(3, "verify", 8)])
    assert figures["residual"] == pytest.approx((3 * 2 / 6) / (55 / 6))


def test_a_recorded_gap_takes_the_place_of_the_host_clock():
    requests, steps = mixed_example()
    phases = [phase(1, "verify", 8), phase(3, "verify", 10), phase(1, "gap", 5), phase(3, "gap", 5)]
    assert identity(requests, steps, phases)[0]["parts_ms.gap"] == pytest.approx(5)


def test_repeated_phases_of_a_round_add_up():
    phases = [phase(1, "draft_next", 1), phase(1, "draft_next", 2), phase(3, "draft_next", 5), phase(2, "verify", 99)]
    figures = phase_metrics(phase_rounds(frame("phases", phases), step_table(mixed_example()[1])))
    assert figures == {"plain.draft_next": pytest.approx(4)}  # median of 3 and 5; the mixed step is left out


def test_instrumented_phases_never_give_the_plain_residual():
    requests, steps = mixed_example()
    phases = [phase(1, "verify", 8, instrumented=True), phase(3, "verify", 10, instrumented=True)]
    figures, _ = identity(requests, steps, phases)
    assert "residual" not in figures and figures["residual_instrumented"] == pytest.approx(0, abs=1e-9)
    plain_too, source = identity(requests, steps, [*phases, phase(1, "verify", 6), phase(3, "verify", 8)])
    assert source == "plain" and plain_too["residual"] > 0.1


def test_without_phases_nothing_is_predicted():
    figures, _ = identity(*mixed_example(), [])
    assert figures["predicted_tpot_ms"] is None and "residual" not in figures
