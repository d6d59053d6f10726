"""Tokens, acceptance, launches and waits are exactly those of rounds.json.

make_rounds.py makes that file, anew only where a change of behaviour is meant.
"""

from __future__ import annotations

from collections import defaultdict

import pytest
import torch
from golden.rounds_file import Rounds
from golden.run_case import Missing, run_case
from golden.space import Case, cases

STORED = Rounds.read()


@pytest.fixture(autouse=True)
def one_thread():
    assert torch.get_num_threads() == 1


def _params() -> list:
    marks = {"cpu": [], "cuda": [pytest.mark.gpu]}
    return [
        pytest.param(case, id=f"{device} {case.name}", marks=marks[device])
        for device in marks
        for case in cases(device)
    ]


@pytest.mark.parametrize("case", _params())
def test_rounds_are_as_stored(case: Case):
    stored = STORED.cases.get(case.device, {}).get(case.name)
    try:
        found = run_case(case)
    except Missing as reason:
        pytest.skip(str(reason))
    assert stored is not None, "nothing is stored: golden/make_rounds.py on a machine that can run it"
    assert found == stored


@pytest.mark.parametrize("device", sorted(STORED.cases))
def test_whats_stored_is_of_known_cases(device):
    assert set(STORED.cases[device]) <= {case.name for case in cases(device)}


def test_every_drafter_says_what_the_target_says_alone():
    """The toy's weights are drawn on the device itself, so devices agree on the other targets only."""
    said = defaultdict(set)
    for device in STORED.cases:
        for case in cases(device):
            stored = STORED.cases[device].get(case.name)
            if case.is_lossless and stored:
                drawn_on = device if case.target == "toy" else "any"
                said[case.target, drawn_on, case.sampling].add(tuple(stored["tokens"]))
    assert said and all(len(texts) == 1 for texts in said.values())
