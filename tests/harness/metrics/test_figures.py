"""Every figure of the registry: complete, found by its key, and in the place that it names."""

from __future__ import annotations

from run_samples import chain_block, frame

from specbench.harness.judge.history.points import METRICS
from specbench.harness.judge.policy import COUNTED_GATES
from specbench.harness.judge.timed import TIMED_GATES
from specbench.harness.metrics.figures import COMPARED, COUNTED, E2EL_MS, HIGHER, ITL_MS, LOWER, OWN, TPOT_MS, TTFT_MS
from specbench.harness.metrics.metrics import block_metrics
from specbench.harness.metrics.registered import figure
from specbench.harness.registry import FIGURES


def test_each_is_complete_and_found_by_its_key():
    assert [figure(key) for key in FIGURES.built_in] == list(OWN)
    for own in OWN:
        assert own.name and own.definition and own.source and own.better in (LOWER, HIGHER), own.key
        assert own.key.endswith("_ms") == (own.unit == "ms"), own.key


def test_each_stands_where_it_says_among_the_figures_of_a_block():
    tables = {name: frame(name, rows) for name, rows in chain_block([4, 0, 2], num_requests=1).items()}
    of_block = block_metrics(**tables).values
    assert [own.key for own in OWN if own.block and of_block[own.block] is None] == []


def test_statistics_of_a_figure_stand_where_it_says():
    of_block = block_metrics(**{n: frame(n, rows) for n, rows in chain_block([4, 0, 2], num_requests=1).items()}).values
    for figure_ in (TPOT_MS, TTFT_MS, ITL_MS, E2EL_MS):
        assert all(figure_.statistic(name)[1] in of_block for name in ("p50", "p90", "p95", "p99")), figure_.key
    assert TTFT_MS.statistic("p99") == ("TTFT p99", "ttft_ms.p99")


def test_gates_and_histories_are_of_figures_of_the_registry():
    assert set(COUNTED_GATES) == {"certificate", *(own.key for own in COUNTED)}
    assert list(TIMED_GATES) == [own.key for own in COMPARED]
    assert set(METRICS) < set(FIGURES.built_in)
