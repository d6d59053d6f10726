"""The arithmetic of the race on a CPU, from turns whose times are known, and the race that is stored."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.append(str(BENCHMARKS))

from cpu_race import TRANSFORMERS, Turn, lines, race, rate, ratio  # noqa: E402


def turns(side: str, seconds_per_token: tuple[float, ...], num_tokens: int = 11) -> list[Turn]:
    """Two repeats a prompt, the second twice as slow as the first: their mean is given."""
    return [
        Turn(side, repeat, prompt, num_tokens, s * (num_tokens - 1) * share, s * num_tokens * share * 2)
        for repeat, share in ((0, 2 / 3), (1, 4 / 3))
        for prompt, s in enumerate(seconds_per_token)
    ]


def test_ratios_weigh_every_prompt_the_same_and_intervals_hold_them():
    ours, theirs = turns("specbench no-spec", (0.01, 0.03)), turns(TRANSFORMERS, (0.04, 0.04), num_tokens=21)
    both = ours + theirs
    assert rate(both, "specbench no-spec") == pytest.approx(50) and rate(both, TRANSFORMERS) == pytest.approx(25)
    value, low, high = ratio(both, "specbench no-spec", TRANSFORMERS, "decode_s")
    assert value == pytest.approx(2) and low == pytest.approx(4 / 3) and high == pytest.approx(4)
    assert ratio(both, "specbench no-spec", TRANSFORMERS, "cpu_s")[0] == pytest.approx(2)


def test_the_better_vllm_is_compared():
    sides = {"specbench no-spec": 0.01, "specbench eagle:k=4": 0.005, TRANSFORMERS: 0.03}
    sides |= {"vllm eager no-spec": 0.012, "vllm compiled no-spec": 0.011}
    sides |= {"vllm eager eagle:k=4": 0.006, "vllm compiled eagle:k=4": 0.007}
    said = lines([turn for side, s in sides.items() for turn in turns(side, (s, s))])
    assert "specbench no-spec / vllm compiled no-spec: 1.10x [1.10, 1.10] in decode TPS" in said
    assert "specbench eagle:k=4 / vllm eager eagle:k=4: 1.20x [1.20, 1.20] in decode TPS" in said
    assert sum(TRANSFORMERS + ":" in line for line in said) == 5  # its own TPS, and two figures a strategy


class Load:
    def __len__(self) -> int:
        return 3

    def request(self, index: int) -> int:
        return index


def test_sides_take_turns_and_answers_of_one_token_are_left_out(monkeypatch):
    class Run:
        load = Load()

    asked = []

    def side(name):
        def ask(prompt):
            asked.append((name, prompt))
            return (1 if prompt == 1 and name == "b" else 5), 0.1

        return ask

    monkeypatch.setattr("cpu_race.PAUSE_S", 0)
    found = race(Run(), {"a": side("a"), "b": side("b")}, 2)  # type: ignore[arg-type]
    assert {(turn.repeat, turn.prompt) for turn in found} == {(r, p) for r in (0, 1) for p in (0, 2)}
    assert len(asked) == 3 * 3 * 2 and all(a[1] == b[1] for a, b in zip(asked[::2], asked[1::2], strict=True))
    assert min(turn.cpu_s for turn in found) >= 0


@pytest.mark.parametrize("name", ["cpu-race.json", "cpu-race-another.json", "cpu-race-fast-memory.json"])
def test_the_stored_race_says_what_its_turns_and_the_page_say(name):
    stored = json.loads((BENCHMARKS / "results" / name).read_text())
    turns = [Turn(**turn) for turn in stored["turns"]]
    assert '"/' not in json.dumps(stored), "no path of the machine"
    assert lines(turns) == stored["said"] and len({turn.side for turn in turns}) == 7
    page = (BENCHMARKS / "cpu.md").read_text()
    for line in stored["said"]:
        figure, interval = re.search(r": ([\d.]+)x?( \[.*?\])? ", line).groups()
        assert f" {figure}{interval or ''} |" in page, line
