"""Every reader of foreign data, and the command line, under inputs that are almost right (targets.py).

The same inputs in every run, few of them: `make fuzz` looks for new ones. What was found lies in corpus/TARGET/ and is
read here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fuzz.contained import Watch
from fuzz.targets import Target, Trial, all_targets

CORPUS = Path(__file__).with_name("corpus")
TARGETS: Mapping[str, Target] = all_targets()


@pytest.fixture(scope="module")
def watch() -> Watch:
    return Watch()


@pytest.mark.parametrize("name", TARGETS)
def test_inputs_are_accepted_or_refused(name, watch, tmp_path):
    before = set(psutil.Process().children(recursive=True))  # of other tests: a warm process stays until the end
    target = TARGETS[name]
    trial = Trial(target, tmp_path, watch)
    for file in sorted((CORPUS / name).glob("*")):
        trial(file.read_bytes())

    @settings(max_examples=target.tries, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(st.sampled_from(trial.seeds), st.randoms(use_true_random=False))
    def holds(seed: bytes, random: Random) -> None:
        trial(target.mutate(seed, random))

    holds()
    assert set(psutil.Process().children(recursive=True)) <= before


def test_the_corpus_belongs_to_targets():
    assert {path.name for path in CORPUS.glob("*") if path.is_dir()} <= set(TARGETS)
