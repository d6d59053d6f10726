"""The race of decodes with workers that load nothing: what each is told, turns and rows, and a third engine that may
fail; its own worker with a package that stands in for SGLang."""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.append(str(BENCHMARKS))

import decode_race  # noqa: E402
import race_workers  # noqa: E402
from decode_race import table  # noqa: E402
from decode_timer import MIN_DECODE_S, DecodeTimer  # noqa: E402
from peer_shapes import SHAPES, kv_bytes, vocabulary  # noqa: E402
from race_workers import Cell, environment_of  # noqa: E402

from specbench.harness.engines.native.models.shapes import published_shape  # noqa: E402

WORKER = """
import json, os, sys, time
name, shape, acceptance, tokens, *cells = sys.argv
if os.environ.get("RANK") == "1":
    open({log!r} + ".rank1", "w").close()
    sys.stdin.read()
    sys.exit()
while "RANK" in os.environ and "@2" in shape and not os.path.exists({log!r} + ".rank1"):
    time.sleep(0.01)
with open({log!r}, "a") as log:
    log.write(json.dumps([os.path.basename(name), shape, tokens, cells, os.environ.get("ONLY_SGLANG")]) + "\\n")
print("loading")
print(json.dumps(dict(ready=cells, checks=["1 of 1 identical, 0 diverge at a near-tie"] * len(cells))), flush=True)
for line in sys.stdin:
    with open({log!r}, "a") as log:
        log.write(json.dumps([os.path.basename(name), line.strip()]) + "\\n")
    print(json.dumps(dict(figures=[{tps} for cell in cells])), flush=True)
"""
REAL = f"""
import os, runpy, sys
sys.path.insert(0, {str(BENCHMARKS)!r})
runpy.run_path({str(BENCHMARKS / "decode_sglang.py")!r}, run_name="__main__")
"""
SGLANG = """
import os, sys, time
now = [0.0]
time.perf_counter = lambda: now[0]  # a busy machine must not show in its figures
class Engine:
    def __init__(self, **arguments):
        print("{not an answer}", flush=True)
        assert os.environ["SGLANG_SIMULATE_ACC_LEN"] == ("3.0" if "speculative_algorithm" in arguments else "-1")
        self.k, self.calls = arguments.get("speculative_num_steps", 0), 0
        most = arguments["max_running_requests"]
        assert arguments["max_total_tokens"] > most * (128 + 8) and arguments["tp_size"] == 1
        if most == 99:
            raise RuntimeError("torch.OutOfMemoryError: no memory for 99")
    def generate(self, input_ids, sampling_params):
        assert max(map(max, input_ids)) < 40000 and sampling_params["ignore_eos"]
        self.calls += 1
        num = sampling_params["max_new_tokens"]
        if len(input_ids) == 7:
            raise ValueError("seven are refused")
        if len(input_ids) == 5 and self.calls > 9 or len(input_ids) == 6 and self.calls > 4:
            sys.stderr.write("torch.OutOfMemoryError: CUDA out | of memory\\nRuntimeError: scheduler died\\n")
            os._exit(3)
        now[0] += num
        meta = dict(completion_tokens=num, spec_verify_ct=num // 4) if self.k else dict(completion_tokens=num)
        return [dict(output_ids=[1] * num, meta_info=meta) for _ in input_ids]
"""
SETUP = """
echo "setting up"
export PYTHONPATH="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)" ONLY_SGLANG="two
lines"
"""


@pytest.fixture
def peer(tmp_path):
    """A folder that stands in for SGLang's."""
    folder = tmp_path / "peer"
    (folder / "sglang").mkdir(parents=True)
    (folder / "sglang" / "__init__.py").write_text(SGLANG)
    (folder / "setup.sh").write_text(SETUP)
    return folder


@pytest.fixture
def race(tmp_path, monkeypatch, capfd):
    """Runs the race with words; its rows, what workers were told, and what was printed."""
    log = tmp_path / "log"
    for name, tps in (("decode_ours.py", 300), ("decode_vllm.py", 200)):
        (tmp_path / name).write_text(WORKER.format(log=str(log), tps=tps))
    (tmp_path / "decode_sglang.py").write_text(REAL)
    monkeypatch.setattr(decode_race, "HERE", tmp_path)

    def run(words: str) -> tuple[list[dict], list[list], str, str]:
        output = tmp_path / "race.json"
        line = f"--vllm-path {tmp_path} --seconds 0 --output-tokens 8 --output {output} {words}"
        monkeypatch.setattr(sys, "argv", ["decode_race.py", *line.split()])
        decode_race.main()
        printed = capfd.readouterr()
        return json.loads(output.read_text()), list(map(json.loads, log.open())), printed.out, printed.err

    return run


def test_a_figure_sums_batches_until_they_decode_long_enough():
    asked = []

    def generate(tokens: int) -> float:  # a prefill of 30 ms, then 8 ms a token; batches take turns to be slow
        asked.append(tokens)
        slow = 1.5 if len(asked) % 4 == 0 else 1.0
        return 0.030 + 0.008 * slow * (tokens - 1)

    timer = DecodeTimer(generate, batch=8, num_tokens=101)
    assert asked == [16, 1, 101]  # warm-up, of which nothing is counted
    del asked[:]
    timer.settle()
    assert asked == [1, 101] * 2 and timer.num_batches == 2  # by the slower of two
    assert timer.tps() == pytest.approx(2 * 8 * 100 / (0.8 + 1.2))
    assert asked == [1, 101] * 4


@pytest.mark.parametrize(
    ("decode_s", "num_batches"), [(2 * MIN_DECODE_S, 1), (MIN_DECODE_S / 2, 2), (1e-3, 100), (-1.0, 100)]
)
def test_batches_of_a_figure(decode_s, num_batches):
    """With a prefill that took too long, little or nothing seems to be left for decoding."""
    timer = DecodeTimer(lambda tokens: 3.0 + decode_s * (tokens > 1), batch=1, num_tokens=2)
    timer.settle()
    assert timer.num_batches == num_batches


def test_the_number_of_batches_is_not_found_while_other_engines_load():
    is_loading = True

    def generate(tokens: int) -> float:
        return (4.0 if is_loading and tokens == 1 else 3.0) + 0.3 * tokens

    timer = DecodeTimer(generate, batch=32, num_tokens=11)
    is_loading = False
    timer.settle()
    assert timer.num_batches == 1


def test_no_garbage_is_collected_while_a_figure_is_measured():
    collects = []

    def generate(tokens: int) -> float:
        collects.append(gc.isenabled())
        if len(collects) > 10:
            raise RuntimeError("the engine fails")
        return 0.3 * tokens

    timer = DecodeTimer(generate, batch=1, num_tokens=11)
    del collects[:]
    timer.settle()
    assert collects == [False] * 4 and gc.isenabled()
    timer.tps()
    assert collects == [False] * 6 and gc.isenabled()
    with pytest.raises(RuntimeError):
        for _ in range(3):
            timer.tps()
    assert gc.isenabled()


def test_ranks_take_the_number_of_batches_of_the_first():
    timer = DecodeTimer(lambda tokens: 0.4 * tokens, 1, 2, agree=lambda number: number + 2)
    timer.settle()
    assert timer.num_batches == 7


def test_two_engines_take_turns(race):
    rows, told, printed, _ = race("llama-3.1-8b@2,3.0,1x128,4/8x128")
    assert [(row["k"], row["batch"]) for row in rows] == [(0, 1), (4, 1), (4, 8)]
    assert list(rows[0]) == [
        *("shape", "acceptance_length", "k", "batch", "num_prompt", "num_output", "check", "ours_tps", "vllm_tps")
    ]
    assert rows[0]["num_output"] == 8
    assert rows[2]["ours_tps"] == [300, 300] and rows[2]["vllm_tps"] == [200, 200]
    assert rows[0]["acceptance_length"] is None and rows[2]["acceptance_length"] == 3.0
    starts = sorted(line[:4] for line in told if len(line) > 2)
    ours = ["decode_ours.py", "llama-3.1-8b@2", "8", ["0/1x128", "4/1x128", "4/8x128"]]
    vllm = [["decode_vllm.py", "llama-3.1-8b@2", "8", cells] for cells in (["0/1x128"], ["4/1x128", "4/8x128"])]
    assert starts == [ours, *vllm]  # our second rank tells nothing
    assert [line[1] for line in told if len(line) == 2] == ["settle"] * 3 + ["turn"] * 6
    header, _, line, *_ = printed.splitlines()
    assert "SGLang" not in header
    assert line == "| llama-3.1-8b@2 | 0 | 1 | 128 | 300 | 0.0% | 200 | 0.0% | 1.50 [1.50, 1.50] | 1 of 1 / 0 |"


def test_a_race_takes_the_turns_asked_for_when_its_seconds_are_over(race):
    rows, *_ = race("--turns 5 smollm2-135m,2.5,0/1x128 llama-2-70b@2:alone,3.0,0/1x128")
    assert [len(row[f"{side}_tps"]) for row in rows for side in ("ours", "vllm")] == [5] * 4


@pytest.mark.parametrize("turns", ["0", "-1", "two"])
def test_a_race_of_no_turns_is_refused(monkeypatch, capsys, turns):
    words = ["decode_race.py", "--vllm-path", "/tmp/vllm", f"--turns={turns}", "smollm2-135m,2.5,0/1x128"]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit, match="2"):
        decode_race.main()
    assert f"--turns: '{turns}' is not allowed; allowed: a whole number, 1 or more" in capsys.readouterr().err


def test_sglang_is_the_third(race, peer):
    rows, told, printed, _ = race(f"--sglang-path {peer} llama-3.1-8b,3.0,1x128,4/8x128")
    for row in rows:
        assert len(row["sglang_tps"]) == 2 and row["sglang_missing"] is None
        assert row["sglang_tps"] == pytest.approx([row["batch"]] * 2)  # a token takes a second
    assert [row["sglang_accepted"] for row in rows] == [None, 4.0, 4.0]
    assert {line[4] for line in told if len(line) > 2} == {None}  # its environment is that of its own workers
    header, _, line, *_ = printed.splitlines()
    assert header.count("SGLang") == 2 and line.count("|") == header.count("|") == 14


def test_a_cell_that_sglang_refuses_is_missing(race, peer):
    rows, _, printed, said = race(f"--sglang-path {peer} llama-3.1-8b,3.0,4/7x128,4/2x8190,4/2x128")
    assert [row["sglang_missing"] for row in rows] == [
        "ValueError: seven are refused",
        "longer than 8192 tokens",
        None,
    ]
    assert [len(row["sglang_tps"]) for row in rows] == [0, 0, 2]
    assert "4/7x128: ValueError: seven are refused" in said
    assert "| missing: longer than 8192 tokens | – | – | 1 of 1 / 0 |" in printed


def test_an_engine_of_sglang_that_dies_leaves_the_race_to_the_others(race, peer):
    rows, _, printed, said = race(f"--sglang-path {peer} llama-3.1-8b,3.0,0/99x128,4/5x128")
    assert [len(row["vllm_tps"]) for row in rows] == [2, 2]
    first, second = rows  # one ends while it loads, the other in its second turn
    assert first["sglang_tps"] == [] and first["sglang_missing"].endswith("no memory for 99")
    assert len(second["sglang_tps"]) == 1 and second["sglang_missing"] == "torch.OutOfMemoryError: CUDA out / of memory"
    assert "scheduler died" in said and "| missing: RuntimeError: torch.OutOfMemoryError: no memory for 99 |" in printed


def test_an_engine_of_sglang_that_dies_before_the_first_turn_is_missing(race, peer):
    (row,), _, _, said = race(f"--sglang-path {peer} llama-3.1-8b,3.0,4/6x128")
    assert row["sglang_tps"] == [] and row["sglang_missing"] == "torch.OutOfMemoryError: CUDA out / of memory"
    assert [len(row[f"{side}_tps"]) for side in ("ours", "vllm")] == [2, 2] and "scheduler died" in said


def test_a_worker_without_an_answer_is_ended(race, peer, monkeypatch):
    (peer / "sglang" / "__init__.py").write_text("import time\ntime.sleep(60)")
    monkeypatch.setattr(race_workers, "LIMIT_S", 0.5)
    rows, *_ = race(f"--sglang-path {peer} llama-3.1-8b,3.0,4/1x128")
    assert rows[0]["sglang_missing"] == "no answer in 0.5 s" and len(rows[0]["ours_tps"]) == 2


def test_alone_engines_follow_each_other(race, peer):
    words = "llama-2-70b@2:alone,3.0,0/1x128,4/2x128 smollm2-135m,2.5,0/1x128"
    rows, told, printed, _ = race(f"--sglang-path {peer} {words}")
    assert [row["shape"] for row in rows] == ["smollm2-135m", "llama-2-70b@2:alone", "llama-2-70b@2:alone"]
    assert all(len(row[f"{side}_tps"]) == 2 for row in rows for side in ("ours", "vllm"))
    turns = [line for line in told if line[1] != "smollm2-135m"][6:]  # after those of the first
    ours, vllm = ([[f"decode_{side}.py", word] for word in ("settle", "turn", "turn")] for side in ("ours", "vllm"))
    assert [line[:2] for line in turns] == [
        *[["decode_ours.py", "llama-2-70b@2"], *ours],
        *[["decode_vllm.py", "llama-2-70b@2"], *vllm] * 2,
    ]
    assert "| llama-2-70b@2:alone | 4 | 2 | 128 | 300 | 0.0% | 200 | 0.0% | 1.50 [1.50, 1.50] |" in printed
    # Its fake refuses two ranks.
    assert rows[1]["sglang_missing"] and rows[2]["sglang_missing"]


def test_a_race_that_is_none(race):
    with pytest.raises(SystemExit, match="'toy:first' is not allowed"):
        race("toy:first,3.0,1x128")


def test_ours_that_fails_ends_the_race(race, tmp_path):
    (tmp_path / "decode_ours.py").write_text("raise SystemExit(3)")
    with pytest.raises(SystemExit, match="ended with status 3"):
        race("llama-3.1-8b,3.0,0/1x128")


def test_a_peers_environment(peer, tmp_path):
    found = environment_of(str(peer))
    assert found["PYTHONPATH"] == str(peer) and found["ONLY_SGLANG"] == "two\nlines"
    assert environment_of(str(tmp_path))["PYTHONPATH"] == str(tmp_path)
    (peer / "setup.sh").write_text("return 4")
    with pytest.raises(SystemExit, match="setup.sh ended with status 4"):
        environment_of(str(peer))


def test_ratios_of_engines_that_did_not_take_turns():
    row = dict(shape="toy:alone", k=0, batch=1, num_prompt=1, check="", ours_tps=[2.0, 4.0, 4.0], vllm_tps=[1.0, 2.0])
    assert "| 2.00 [1.00, 4.00] |" in table([row])


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_are_the_published_ones(name):
    values, published = SHAPES[name], published_shape(name)
    config = published.config
    assert (values["hidden_size"], values["intermediate_size"]) == (config.hidden_size, config.intermediate_size)
    assert (values["num_attention_heads"], values["num_key_value_heads"]) == (config.num_q_heads, config.num_kv_heads)
    assert (values["num_hidden_layers"], values["vocab_size"]) == (config.num_layers, config.vocab_size)
    assert (values["head_dim"], values["rope_theta"]) == (config.head_dim, config.rope_theta)
    assert values["tie_word_embeddings"] == config.tie_word_embeddings
    assert values["draft_vocab_size"] == published.draft_vocab_size
    assert vocabulary(name) <= config.vocab_size


def test_the_cache_of_a_rank():
    tokens = 64 * (128 + 256 + 64)
    assert kv_bytes("llama-2-70b", tokens, 2) == int(1.1 * 80 * 4 * 8 * 128 * tokens / 2) + (1 << 30)
    assert str(Cell.parse("4/64x128")) == "4/64x128"
