import pytest
from run_samples import frame, prefill, request, step

from specbench.harness.metrics.latency import latency_metrics, throughput_metrics, tpot_by_request_ms

REQUESTS = [
    request(0, submit_ms=0, first_ms=20, last_ms=80, num_output_tokens=7),  # TPOT 60 / 6 = 10
    request(1, submit_ms=10, first_ms=50, last_ms=90, num_output_tokens=3),  # TPOT 40 / 2 = 20
    request(2, submit_ms=0, first_ms=30, last_ms=30, num_output_tokens=1),  # one token: no TPOT
    request(3, submit_ms=0, first_ms=0, last_ms=0, num_output_tokens=0, finish_reason="error", error="boom"),
    request(4, submit_ms=0, first_ms=5, last_ms=85, num_output_tokens=3, finish_reason="abort"),
]
NO_STEPS = frame("steps", [])


def test_request_latencies_by_hand():
    figures = latency_metrics(frame("requests", REQUESTS), NO_STEPS)
    assert figures["ttft_ms.mean"] == pytest.approx((20 + 40 + 30) / 3)
    assert figures["ttft_ms.p50"] == pytest.approx(30)
    assert figures["ttft_ms.p95"] == pytest.approx(30 + 0.9 * 10)
    assert figures["e2el_ms.p50"] == pytest.approx(80) and figures["e2el_ms.p99"] == pytest.approx(80)
    assert figures["tpot_ms.mean"] == pytest.approx(15)
    assert figures["tpot_ms.weighted"] == pytest.approx(100 / 8)
    assert figures["tpot_ms.p90"] == pytest.approx(19)
    assert figures["tps_per_user"] == pytest.approx(1000 / 15)
    assert figures["e2e_per_token_ms"] == pytest.approx((80 / 7 + 80 / 3 + 30) / 3)


def test_one_token_outputs_have_ttft_and_no_tpot():
    figures = latency_metrics(frame("requests", [REQUESTS[2]]), NO_STEPS)
    assert figures["ttft_ms.mean"] == pytest.approx(30)
    tpot_ms = {name: value for name, value in figures.items() if name.startswith("tpot_ms.")}
    assert tpot_ms == {"tpot_ms.mean": None, "tpot_ms.weighted": None}
    assert figures["tps_per_user"] is None


def test_device_times_are_a_separate_figure():
    late = request(0, first_ms=20, last_ms=80, num_output_tokens=4)
    late |= {"t_first_device_ns": 15_000_000, "t_last_device_ns": 60_000_000}
    figures = latency_metrics(frame("requests", [late]), NO_STEPS)
    assert figures["tpot_ms.mean"] == pytest.approx(20)
    assert figures["tpot_device_ms.mean"] == pytest.approx(15)
    assert figures["ttft_device_ms.mean"] == pytest.approx(15)


def test_throughput_window_is_first_submit_to_last_token():
    figures = throughput_metrics(frame("requests", REQUESTS), NO_STEPS)
    assert figures["window_s"] == pytest.approx(0.090)
    assert figures["tps"] == pytest.approx((7 + 3 + 1 + 3) / 0.090)  # aborted tokens were emitted, too
    assert figures["requests_per_s"] == pytest.approx(3 / 0.090)
    assert figures["steady_tps"] is None


def test_burst_itl_has_the_mean_of_tpot_and_the_tail_of_the_chunks():
    steps = [prefill(0, 0, 0, 20), step(1, 0, 20, 40, k=4, j=2), step(2, 0, 40, 80, k=4, j=2)]
    requests = frame("requests", [request(0, first_ms=20, last_ms=80, num_output_tokens=7)])
    figures = latency_metrics(requests, frame("steps", steps))
    assert figures["itl_ms.mean"] == pytest.approx(60 / 6) == pytest.approx(figures["tpot_ms.weighted"])
    assert figures["icl_ms.mean"] == pytest.approx(30)
    assert figures["itl_ms.p50"] == 0 and figures["itl_ms.p90"] == pytest.approx(30)
    assert figures["itl_ms.p99"] == pytest.approx(20 + 0.95 * 20)  # of 0 0 0 0 20 40


def test_rounds_that_become_visible_together_are_one_chunk():
    steps = [prefill(0, 0, 0, 20), step(1, 0, 20, 60, k=2, j=1), step(2, 0, 40, 60, k=2, j=1)]
    requests = frame("requests", [request(0, first_ms=20, last_ms=60, num_output_tokens=5)])
    figures = latency_metrics(requests, frame("steps", steps))
    assert figures["icl_ms.mean"] == pytest.approx(40)
    assert figures["itl_ms.mean"] == pytest.approx(10)


def test_steady_tps_counts_only_while_most_requests_are_in_service():
    steps = [prefill(0, 0, 0, 20), step(1, 0, 20, 40, k=3, j=3)]
    steps += [prefill(2, 1, 40, 60), step(2, 0, 40, 60, kind="mixed")]
    steps += [step(3, 0, 60, 80, k=1, j=1), step(3, 1, 60, 80, k=1, j=0)]
    steps += [step(4, 0, 80, 100, k=3, j=3)]
    requests = [
        request(0, first_ms=20, last_ms=100, num_output_tokens=12),
        request(1, submit_ms=30, first_ms=60, last_ms=80, num_output_tokens=2),
    ]
    figures = throughput_metrics(frame("requests", requests), frame("steps", steps))
    assert figures["max_in_flight"] == 2
    assert figures["steady_tps"] == pytest.approx((1 + 1 + 2 + 1) / 0.040)


def test_a_hand_over_between_two_requests_is_not_two_in_flight():
    steps = [prefill(0, 0, 0, 10), step(1, 0, 10, 20), prefill(2, 1, 20, 30), step(3, 1, 30, 40)]
    requests = [
        request(0, first_ms=10, last_ms=20, num_output_tokens=2),
        request(1, submit_ms=20, first_ms=30, last_ms=40, num_output_tokens=2),
    ]
    figures = throughput_metrics(frame("requests", requests), frame("steps", steps))
    assert figures["max_in_flight"] == 1
    assert figures["steady_tps"] == pytest.approx(figures["tps"]) == pytest.approx(4 / 0.040)


def test_tpot_keeps_the_index_of_its_requests():
    assert tpot_by_request_ms(frame("requests", REQUESTS)).round(6).to_dict() == {0: 10.0, 1: 20.0}


def test_times_of_zero_have_no_steady_part():
    requests = [request(n, first_ms=0, last_ms=0, num_output_tokens=3) for n in range(3)]
    steps = [step(n, n, 0, 0) for n in range(3)]
    figures = throughput_metrics(frame("requests", requests), frame("steps", steps))
    assert figures["steady_tps"] is None and figures["tps"] is None
