"""Requests that come and go: the loop and its measures on an engine whose steps take a known time, the worker on the
toy model, and the race's table."""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path

import pytest
import torch
from toy.engines import toy_target

from specbench.kernels.attention.torch_attention import TorchAttention

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.append(str(BENCHMARKS))

import arrivals_race  # noqa: E402
from arrivals import Cell, Load, Requests, Served, measures, serve, warm_up  # noqa: E402
from arrivals_ours import Setup, checked, run  # noqa: E402
from arrivals_race import misses, requests_for, table  # noqa: E402
from peer_shapes import kv_bytes_of_pages  # noqa: E402
from race_workers import cells_of  # noqa: E402

from specbench.harness.spec.plans import PLANS  # noqa: E402

STEP_S = 0.1


class Steps:
    """A step takes 0.1 s, of which the clock is told, and brings each request in service `per_step` tokens."""

    def __init__(self, per_step: int = 1):
        self.time_s, self.per_step, self.most, self.settled = 50.0, per_step, 0, 0
        self.left: dict[int, int] = {}
        self.submitted: list[tuple[int, float]] = []

    def submit(self, index, prompt_ids, max_tokens):
        assert len(prompt_ids) == index + 1
        self.left[index] = max_tokens
        self.submitted.append((index, self.time_s - 50))
        self.most = max(self.most, len(self.left))

    def step(self):
        assert self.left, "a step without requests"
        self.time_s += STEP_S
        found = []
        for index in list(self.left):
            num = min(self.left[index], self.per_step)
            self.left[index] -= num
            found.append((index, num, not self.left[index]))
            if not self.left[index]:
                del self.left[index]
        return found

    def settle(self):
        self.settled += 1

    def serve(self, requests: Requests, word: str) -> list[Served]:
        return serve(self, requests, Load.parse(word), lambda: self.time_s, self.sleep)

    def sleep(self, seconds):
        assert seconds > 0
        self.time_s += seconds


def requests(*max_tokens: int, **arrivals_s: list[float]) -> Requests:
    return Requests([[7] * (i + 1) for i in range(len(max_tokens))], list(max_tokens), arrivals_s)


def test_closed_one_follows_when_one_ends():
    engine = Steps()
    served = engine.serve(requests(1, 3, 2, 1), "c2")
    assert engine.most == 2 and engine.settled == 1
    assert [one.start_s for one in served] == pytest.approx([0, 0, 0.1, 0.3])
    assert [one.deliveries[-1][0] for one in served] == pytest.approx([0.1, 0.3, 0.3, 0.4])
    found = measures(served)
    assert found["requests_per_s"] == pytest.approx(4 / 0.4) and found["output_tps"] == pytest.approx(7 / 0.4)
    assert found["ttft_ms_median"] == found["ttft_ms_p99"] == pytest.approx(100)
    assert found["itl_ms_p99"] == found["tpot_ms_mean"] == pytest.approx(100)


def test_open_requests_count_from_when_they_were_due():
    engine = Steps()
    served = engine.serve(requests(2, 1, 1, r3=[0.25, 0.3, 1.0]), "r3")
    # The second was due while a step ran, until 0.35; the third after a time without requests.
    assert engine.submitted == [(0, pytest.approx(0.25)), (1, pytest.approx(0.35)), (2, pytest.approx(1.0))]
    assert [one.start_s for one in served] == [0.25, 0.3, 1.0]
    found = measures(served)
    assert found["ttft_ms_median"] == pytest.approx(100) and found["ttft_ms_p99"] == pytest.approx(149)
    assert found["requests_per_s"] == pytest.approx(3 / 1.1)


def test_several_tokens_at_once_are_one_delivery():
    served = Steps(per_step=4).serve(requests(9), "c1")
    assert [num for _, num in served[0].deliveries] == [4, 4, 1]
    found = measures(served)
    assert found["itl_ms_p99"] == pytest.approx(100) and found["tpot_ms_mean"] == pytest.approx(200 / 8)


def test_answers_of_one_token_have_no_gaps():
    found = measures(Steps().serve(requests(1, 1), "c2"))
    assert (found["itl_ms_p99"], found["tpot_ms_mean"]) == (0, 0)


def test_a_request_with_other_than_its_tokens_ends_the_race():
    class OneIsAll(Steps):
        def submit(self, index, prompt_ids, max_tokens):
            super().submit(index, prompt_ids, 1)

    with pytest.raises(RuntimeError, match="c2: request 1 got 1 tokens; 3 were asked for"):
        OneIsAll().serve(requests(1, 3), "c2")


def test_warm_up_meets_small_batches_too():
    engine = Steps()
    warm_up(engine, requests(*[1] * 20))
    assert engine.settled == 4 and len(engine.submitted) == 20 + 20 + 16 + 2


@pytest.mark.parametrize("word", ["", "c", "c0", "c1.5", "x5", "r-1", "64"])
def test_loads_that_are_none(word):
    with pytest.raises(ValueError):
        Load.parse(word)


def test_words():
    assert [str(Cell.parse(word)) for word in ("0/c64", "4/r2.5")] == ["0/c64", "4/r2.5"]
    assert cells_of(["c64", "4/r40"], Cell.parse) == {
        0: [Cell(0, Load(True, 64))],
        4: [Cell(4, Load(True, 64)), Cell(4, Load(False, 40))],
    }


def test_both_engines_read_the_same_requests(tmp_path):
    made = requests_for([Cell.parse("0/c64"), Cell.parse("0/r40"), Cell.parse("4/r40")], 100, 256, 1)
    made.write(tmp_path / "requests.json")
    assert Requests.read(tmp_path / "requests.json") == made
    assert set(made.arrivals_s) == {"r40"} and made.arrivals_s["r40"] == sorted(made.arrivals_s["r40"])
    assert made.arrivals_s["r40"][-1] == pytest.approx(100 / 40)
    assert len(made.prompts) == len(made.max_tokens) == 100 and max(made.max_tokens) == 256
    assert all(len(p) + m <= 2048 for p, m in zip(made.prompts, made.max_tokens, strict=True))
    assert made == requests_for([Cell.parse("0/r40")], 100, 256, 1)


def test_pages_are_those_of_the_requests_in_service_at_once():
    assert requests(1, 15).num_pages == 1 + 3 + 4  # tokens: 1 + 1 + 32 and 2 + 15 + 32
    assert Requests([[1]] * 300, [15] * 300, {}).num_pages == 1 + 256 * 3
    # Long ones that start when the others have ended are not beside them, but beside the short ones that follow.
    late = Requests([[1]] * 256 + [[1] * 200] * 2 + [[1]] * 300, [15] * 558, {})
    assert late.num_pages == 1 + 254 * 3 + 2 * 16


def test_vllm_gets_as_many_pages_as_ours():
    a_layer = 2 * 2 * 8 * 128 * 16
    assert kv_bytes_of_pages("llama-3.1-8b", 0, 6726, 16) == 6726 * 32 * a_layer
    assert kv_bytes_of_pages("llama-3.1-8b", 4, 6726, 16) // (33 * a_layer) == 6726  # as vLLM divides


def short_requests(num: int) -> Requests:
    made = requests_for([Cell.parse("0/r400")], 200, 12, 3)
    chosen = sorted(range(200), key=lambda i: len(made.prompts[i]))[20 : 20 + num]
    prompts = [[token % 60 + 2 for token in made.prompts[i]] for i in chosen]
    return Requests(prompts, [made.max_tokens[i] for i in chosen], {"r400": [i / 400 for i in range(num)]})


SETUP = Setup(PLANS["none"], TorchAttention(), 24, 8, reference=TorchAttention(), max_num_seqs=6)


def test_our_worker_on_the_toy_model(tmp_path, capsys):
    """Prompts in chunks beside decodes, more requests than slots: each gets its tokens, and the figures are sound."""
    made = short_requests(24)
    made.write(tmp_path / "requests.json")
    cells = [Cell.parse(word) for word in ("0/c4", "2/c16", "2/r400")]
    args = argparse.Namespace(cells=cells, acceptance=2.0, requests=tmp_path / "requests.json")
    with torch.inference_mode():
        run(args, toy_target(), SETUP, [f"{cell}\n" for cell in cells])
    ready, *turns = map(json.loads, capsys.readouterr().out.splitlines())
    settings = ready["ready"]["settings"]
    assert all((own["max_num_batched_tokens"], own["mixed_chunk_size"]) == (24, 8) for own in settings.values())
    assert (
        set(ready["ready"]["checks"]) == set(settings) == {"0", "2"}
        and "24 of 24 identical" in ready["ready"]["checks"]["2"]
    )
    assert len(turns) == 3
    for turn in turns:
        figures = turn["figures"]
        assert all(math.isfinite(value) and value > 0 for value in figures.values())
        ratio = figures["output_tps"] / figures["requests_per_s"]
        assert ratio == pytest.approx(sum(made.max_tokens) / len(made.max_tokens))


def test_our_worker_times_nothing_that_answers_wrongly(monkeypatch):
    class Halved(TorchAttention):
        def forward(self, *args, **kwargs):
            return super().forward(*args, **kwargs) / 2

    wrong = Setup(PLANS["none"], Halved(), 24, 8, reference=TorchAttention(), max_num_seqs=6)
    with pytest.raises(SystemExit, match="correctness"), torch.inference_mode():
        checked(toy_target(), 0, short_requests(6), wrong)


def figures(**changed: float) -> dict[str, float]:
    same = dict(requests_per_s=50.0, output_tps=9000.0, ttft_ms_median=20.0, ttft_ms_p99=60.0)
    return {**same, "itl_ms_p99": 8.0, "tpot_ms_mean": 5.0, **changed}


def test_the_table_names_what_is_missed():
    row = dict(shape="smollm2-135m", k=4, load="c64", vllm=[figures()] * 3)
    row["ours"] = [figures(requests_per_s=r, ttft_ms_median=24.0) for r in (60.0, 75.0, 55.0)]
    assert misses(row) == []
    _, _, line = table([row]).splitlines()
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[:5] == [
        *("smollm2-135m", "4", "c64"),
        "60.0 / 50.0: 1.20 [1.10, 1.50]",
        "9,000 / 9,000: 1.00 [1.00, 1.00]",
    ]
    assert cells[-2:] == ["33.3% / 0.0%", "–"]
    row["ours"] = [figures(requests_per_s=49.0, ttft_ms_median=25.0, itl_ms_p99=8.1)] * 3
    assert misses(row) == ["requests/s", "TTFT median, ms", "ITL P99, ms"]
    assert table([row]).endswith("| requests/s, TTFT median, ms, ITL P99, ms |")


WORKER = f"""
import sys
sys.path.append({str(BENCHMARKS)!r})
from arrivals import Requests, answer, worker_arguments

class InTwo:
    def __init__(self): self.left = {{}}
    def submit(self, index, prompt_ids, max_tokens): self.left[index] = [1, max_tokens - 1]
    def step(self):
        found = [(index, left.pop(0), not left) for index, left in self.left.items()]
        self.left = {{index: left for index, left in self.left.items() if left}}
        return found
    def settle(self): pass

args, own = worker_arguments(None).parse_known_args()
ks = {{cell.k for cell in args.cells}}
print("loading")
settings = dict(own=own) if "vllm" in sys.argv[0] else {{k: dict(own=own) for k in ks}}
ready = dict(settings=settings, checks={{k: "right" for k in ks}})
answer(ready, {{k: InTwo() for k in ks}}, Requests.read(args.requests), sys.stdin)
"""


def test_a_race_gives_both_engines_the_same_turns(tmp_path, monkeypatch, capsys):
    for name in ("arrivals_ours.py", "arrivals_vllm.py"):
        (tmp_path / name).write_text(WORKER)
    monkeypatch.setattr(arrivals_race, "HERE", tmp_path)
    words = f"--vllm-path {tmp_path} --seconds 0 --turns 3 --num-requests 30 --vllm-capture-size 1280"
    words += f" --mixed-chunk-size 8 --output {tmp_path}/race.json"
    monkeypatch.setattr(sys, "argv", ["arrivals_race.py", *words.split(), "smollm2-135m,2.5,c8,4/r500", "toy,2,0/c4"])
    arrivals_race.main()
    rows = json.loads((tmp_path / "race.json").read_text())
    found = [(row["shape"], row["k"], row["load"], len(row["ours"]), len(row["vllm"])) for row in rows]
    small = [("smollm2-135m", k, load, 3, 3) for k, load in ((0, "c8"), (4, "c8"), (4, "r500"))]
    assert found == [*small, ("toy", 0, "c4", 3, 3)]
    assert [row["acceptance_length"] for row in rows] == [None, 2.5, 2.5, None] and rows[0]["check"] == "right"
    assert rows[0]["vllm_settings"] == {"own": ["--capture-size=1280"]}
    assert {"--graph-mixed=full", "--mixed-chunk-size=8"} <= set(rows[0]["ours_settings"]["own"])
    assert capsys.readouterr().out.count("\n| smollm2-135m | ") == 3


def test_a_worker_that_fails_ends_the_race(tmp_path, monkeypatch):
    for name in ("arrivals_ours.py", "arrivals_vllm.py"):
        (tmp_path / name).write_text("raise SystemExit(3)")
    monkeypatch.setattr(arrivals_race, "HERE", tmp_path)
    monkeypatch.setattr(sys, "argv", ["arrivals_race.py", "--vllm-path", str(tmp_path), "toy,2,0/c4"])
    with pytest.raises(SystemExit, match="ended with status 3"):
        arrivals_race.main()
