import numpy as np
import pytest

from specbench.harness.engines.warmup import WarmUp
from specbench.harness.stats.spread import crossed_interval, percentiles, ratio_interval, spread


def feed(warm_up, durations):
    for count, duration in enumerate(durations, start=1):
        if warm_up.add(duration):
            return count
    return None


def test_stable_rounds_end_after_two_windows():
    warm_up = WarmUp(window_s=1.0, max_s=100)
    assert feed(warm_up, [0.1] * 100) in (20, 21, 22)  # windows close at the first sum >= 1 s
    assert warm_up.is_stable and warm_up.describe().startswith("stable after 2.")


def test_rounds_that_get_faster_go_on_until_they_stop_getting_faster():
    warm_up = WarmUp(window_s=1.0, max_s=100)
    durations = [0.25 * 0.9**i for i in range(10) for _ in range(40)]
    feed(warm_up, durations[:39])
    assert warm_up.is_stable  # constant so far
    restless = WarmUp(window_s=1.0, max_s=100)
    assert feed(restless, [0.3 * 0.98**i for i in range(60)]) is None
    assert feed(restless, [0.09] * 100) is not None and restless.is_stable


def test_out_of_time_is_done_but_not_stable():
    warm_up = WarmUp(window_s=1.0, max_s=3.0)
    assert feed(warm_up, [1.0, 1.5, 0.4, 0.4, 0.4]) == 4
    assert warm_up.is_done and not warm_up.is_stable and warm_up.describe().startswith("not stable after 3.3 s")


def test_one_slow_round_does_not_disturb_the_median():
    warm_up = WarmUp(window_s=1.0, max_s=100)
    assert feed(warm_up, [0.05] * 10 + [0.4] + [0.05] * 40) is not None and warm_up.is_stable


@pytest.mark.parametrize("name", ["window_s", "tolerance", "max_s"])
def test_values_that_cannot_work(name):
    with pytest.raises(ValueError, match=name):
        WarmUp(**{name: 0.0})


def test_spread_and_percentiles():
    found = spread([1.0, 2.0, 3.0, 10.0])
    assert (found.median, found.min, found.max, found.iqr, found.n) == (2.5, 1, 10, 4.75 - 1.75, 4)
    assert found.half_range_fraction == pytest.approx(4.5 / 2.5)
    assert percentiles([], 50) == {} and percentiles([1, 3], 50) == {"p50": 2.0}


def test_intervals_cover_the_truth_about_as_often_as_they_say():
    """Blocks that differ as much as prompts do: what prompts alone would show is far too narrow."""
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(60):
        values_BP = 5.0 + rng.normal(0, 1, size=(12, 1)) + rng.normal(0, 1, size=40) + rng.normal(0, 1, size=(12, 40))
        interval = crossed_interval(values_BP)
        assert interval is not None
        hits += interval.low <= 5.0 <= interval.high
    assert 51 <= hits  # nominal 57 of 60


def test_an_interval_takes_two_blocks_and_two_prompts():
    values_BP = np.array([[1.0, 2.0, np.nan], [1.5, 2.5, 3.0]])
    found = crossed_interval(values_BP)
    assert found is not None and found.num_clusters == 3 and 1 <= found.low < found.high <= 3
    assert crossed_interval(values_BP[:1]) is None and crossed_interval(values_BP[:, :1]) is None
    assert crossed_interval(np.array([[1.0, np.nan], [np.nan, 2.0]])) is None, "no prompt ran in two blocks"
    assert crossed_interval(np.empty((0, 0))) is None


def test_ratio_interval_weighs_clusters_by_their_denominators():
    interval = ratio_interval([10, 0], [10, 1])
    assert interval is not None and interval.low == 0 and interval.high == 1
    assert ratio_interval([1], [2]) is None
