import pytest
from run_samples import frame, prefill, request, step

from specbench.harness.metrics.acceptance import acceptance_metrics


def test_groups_by_context_and_temperature():
    """Prompts of 510 and 1,500 tokens: the first request's context reaches 512 in its second round."""
    steps = [
        prefill(0, 0, 0, 1),
        step(1, 0, 1, 2, k=2, j=0),
        step(2, 0, 2, 3, k=2, j=2),
        prefill(3, 1, 3, 4),
        step(4, 1, 4, 5, k=2, j=1),
        step(5, 1, 5, 6, k=0),
    ]
    short = {"num_prompt_tokens": 510, "prompt_id": "a@T=0"}
    long = {"num_prompt_tokens": 1500, "prompt_id": "a@T=0.7"}
    requests = [
        request(0, first_ms=1, last_ms=3, num_output_tokens=5) | short,
        request(1, first_ms=4, last_ms=6, num_output_tokens=4) | long,
    ]
    groups = acceptance_metrics(frame("requests", requests), frame("steps", steps)).groups
    found = [(g.kind, g.name, g.num_forwards, g.num_verifications, g.acceptance_length) for g in groups]
    assert found == [
        ("context", "0-511", 1, 1, 1.0),
        ("context", "512-1023", 1, 1, 3.0),
        ("context", "1024-2047", 2, 1, 2.0),
        ("temperature", "0", 2, 2, 2.0),
        ("temperature", "0.7", 2, 1, 2.0),
    ]
    assert groups[-1].tokens_per_forward == 1.5


def test_one_group_is_none():
    assert chain_example().groups == ()


def chain_example():
    """Request 0 hits its limit in its last verification; request 1 has rounds without a draft and a short draft."""
    steps = [
        prefill(0, 0, 0, 1),
        step(1, 0, 1, 2, k=4, j=2),
        step(2, 0, 2, 3, k=4, j=4),
        step(3, 0, 3, 4, k=4, j=3, emitted=2),
        prefill(4, 1, 4, 5),
        step(5, 1, 5, 6, k=4, j=0),
        step(6, 1, 6, 7, k=0),
        step(7, 1, 7, 8, k=2, j=2),
        step(8, 1, 8, 9, k=0),
    ]
    requests = [
        request(0, first_ms=1, last_ms=4, num_output_tokens=1 + 3 + 5 + 2, finish_reason="stop"),
        request(1, first_ms=5, last_ms=9, num_output_tokens=1 + 1 + 1 + 3 + 1),
    ]
    return acceptance_metrics(frame("requests", requests), frame("steps", steps))


def test_lengths_by_hand():
    figures = chain_example()
    assert figures.acceptance_length == pytest.approx(1 + 11 / 5)
    assert figures.acceptance_length_by_request == pytest.approx((4 + 2) / 2)
    assert figures.tokens_per_forward == pytest.approx(16 / 7)
    assert figures.num_forwards_without_draft == 2
    assert figures.num_truncated_tokens == 2


def test_rates_by_position_use_only_drafts_that_reach_it():
    figures = chain_example()
    assert figures.marginal == pytest.approx([4 / 5, 4 / 5, 2 / 4, 1 / 4])
    assert figures.conditional == pytest.approx([4 / 5, 4 / 4, 2 / 3, 1 / 2])
    assert figures.accepted_histogram == (1, 0, 2, 1, 1)
    assert figures.draft_acceptance_rate == pytest.approx(11 / 18)
    assert figures.accepted_per_verified == pytest.approx(16 / 23)


def test_vllm_and_sglang_would_print_these():
    peers = chain_example().peers
    assert peers.vllm.mean_acceptance_length == pytest.approx(3.2)
    assert peers.vllm.draft_acceptance_rate == pytest.approx(11 / 18)
    assert peers.vllm.per_position == pytest.approx([4 / 5, 4 / 5, 2 / 5, 1 / 5])
    assert peers.sglang.accept_length == pytest.approx(18 / 7)
    assert peers.sglang.accept_rate == pytest.approx(11 / 28)
    assert peers.sglang.avg_spec_accept_length == pytest.approx((11 / 3 + 7 / 4) / 2)


def test_no_draft_at_all():
    steps = [prefill(0, 0, 0, 1), step(1, 0, 1, 2), step(2, 0, 2, 3)]
    requests = [request(0, first_ms=1, last_ms=3, num_output_tokens=3)]
    figures = acceptance_metrics(frame("requests", requests), frame("steps", steps))
    assert figures.acceptance_length is None
    assert figures.tokens_per_forward == 1
    assert figures.marginal == () and figures.accepted_histogram == ()
    assert figures.peers.vllm.mean_acceptance_length is None


def test_a_position_no_draft_reached_has_no_conditional_rate():
    steps = [step(0, 0, 0, 1, k=3, j=0), step(1, 0, 1, 2, k=3, j=1)]
    figures = acceptance_metrics(frame("requests", []), frame("steps", steps))
    assert figures.marginal == pytest.approx([0.5, 0, 0])
    assert figures.conditional == (0.5, 0.0, None)


def test_trees_are_counted_by_depth_and_never_as_a_chain():
    steps = [step(0, 0, 0, 1, k=8, depth=3, j=2), step(1, 0, 1, 2, k=8, depth=3, j=0)]
    figures = acceptance_metrics(frame("requests", []), frame("steps", steps))
    assert figures.draft_acceptance_rate is None
    assert figures.accepted_depth_rate == pytest.approx(2 / 6)
    assert figures.accepted_per_verified == pytest.approx((3 + 1) / (9 + 9))
    assert figures.marginal == pytest.approx([0.5, 0.5, 0])
    assert figures.peers.sglang.accept_rate == pytest.approx(2 / 16)


def test_interval_resamples_requests_not_steps():
    """All spread lies between requests: many steps a request must not narrow the interval."""
    accepted = [0, 0, 4, 4, 2, 2, 1, 3]
    few = [step(i, r, i, i + 1, k=4, j=j) for r, j in enumerate(accepted) for i in range(r * 2, r * 2 + 2)]
    many = [step(i, r, i, i + 1, k=4, j=j) for r, j in enumerate(accepted) for i in range(r * 50, r * 50 + 50)]
    intervals = [
        acceptance_metrics(frame("requests", []), frame("steps", rows)).acceptance_length_interval
        for rows in (few, many)
    ]
    assert intervals[0].num_clusters == 8
    assert intervals[0].low == pytest.approx(intervals[1].low)
    assert 1 + 2 - 1.2 < intervals[0].low < 1 + 2 < intervals[0].high < 1 + 2 + 1.2
