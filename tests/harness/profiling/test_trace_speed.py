"""A trace of 200,000 operations takes little memory and seconds; measured in a process of its own."""

from __future__ import annotations

import pytest
from machine_pace import run_with_pace
from profiling.synthetic import spec_trace, write_nsys

NUM_ROUNDS = 4_762  # of 42 operations

CHILD = """
import json, resource, sys
from pathlib import Path
from specbench.harness.profiling.analysis import analyse_trace
from specbench.harness.profiling.rules import PhaseRules
profile = analyse_trace(Path(sys.argv[1]), rules=PhaseRules.shipped())
used = resource.getrusage(resource.RUSAGE_SELF)
# Its ru_maxrss would begin with the size of the process that started this one.
peak_kib = next(int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line)
print(json.dumps(dict(
    ops=profile.quality.num_ops, rounds=profile.quality.num_rounds, round_ns=profile.round_ns,
    cpu_s=used.ru_utime + used.ru_stime, peak_kib=peak_kib, torch="torch" in sys.modules,
)))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    path = write_nsys(tmp_path_factory.mktemp("large") / "t.sqlite", spec_trace(NUM_ROUNDS))
    return run_with_pace(CHILD, path)


@pytest.mark.slow
def test_two_hundred_thousand_operations(found):
    assert (found["ops"], found["rounds"], found["round_ns"]) == (42 * NUM_ROUNDS, NUM_ROUNDS, 616_000)
    assert found["ops"] >= 200_000
    assert found["peak_kib"] < 1 << 20
    assert not found["torch"]


@pytest.mark.timed
def test_they_take_less_than_five_seconds_of_the_processor(found):
    assert found["cpu_s"] < 5 * found["slower"]
