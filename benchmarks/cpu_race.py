"""One CPU, batch 1, bf16: our engine, vLLM (eager and compiled) and transformers' `generate` on the same prompts.

    PYTHONPATH=.ns python benchmarks/cpu_race.py --engine-python .engines/vllm --out benchmarks/results/cpu-race.json

`no-spec` of all three, `eagle:k=4` with the shipped head of ours and vLLM's. Everything stays loaded; each prompt goes
to every side once a repeat, in random order, after a pause in which the threads of the side before go to sleep. Decode
TPS: one over the mean time per token from the first to the last, host time, every prompt counting the same. Per
processor second: the same with the processor time of whole requests, of this process and its children. Ratios with 95%
bootstrap intervals over prompts. About 15 minutes on two cores, with nothing beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
import torch

from specbench.harness.engines.load import PromptRequest
from specbench.harness.run.block_sink import NullSink
from specbench.harness.run.prepare import PreparedRun, prepare
from specbench.harness.run.progress import NullProgress
from specbench.harness.spec.arm import parse_arm
from specbench.harness.spec.conditions import RunConfig
from specbench.harness.stats.spread import ratio_interval
from specbench.harness.store.rows import RequestRow
from specbench.workloads.assets.model_source import resolve_model

MODEL = "smollm2-135m-instruct"
STRATEGIES = ("no-spec", "eagle:k=4")
VLLM = {"eager": "true", "compiled": "false"}  # by enforce_eager
TRANSFORMERS = "transformers no-spec"
PAUSE_S = 0.3  # OpenMP's threads spin for 0.2 s after their work
Ask = Callable[[PromptRequest], tuple[int, float]]  # output tokens, seconds between the first and the last


@dataclass(frozen=True)
class Turn:
    """One prompt on one side. `decode_s`: from the first token to the last; `cpu_s`: of the whole request."""

    side: str
    repeat: int
    prompt: int
    num_tokens: int
    decode_s: float
    cpu_s: float


class LastRow(NullSink):
    row: RequestRow

    def request(self, row: RequestRow) -> None:
        self.row = row


class TokenTimes:
    """A streamer of transformers: when each token came. The first call brings the prompt."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def put(self, value: torch.Tensor) -> None:
        self.times.append(time.perf_counter())

    def end(self) -> None: ...


def transformers_side(path: Path) -> Ask:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16, trust_remote_code=False)

    @torch.inference_mode()
    def ask(asked: PromptRequest) -> tuple[int, float]:
        ids, seen = torch.tensor([asked.prompt_ids]), TokenTimes()
        stops = list(asked.sampling.stop_token_ids)
        model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=asked.sampling.max_tokens,
            eos_token_id=stops,
            pad_token_id=stops[0],
            streamer=seen,
        )
        return len(seen.times) - 1, seen.times[-1] - seen.times[1]

    return ask


def engine_side(run: PreparedRun, index: int) -> Ask:
    deployment = run.deployments.of(run.arms[index])

    def ask(asked: PromptRequest) -> tuple[int, float]:
        sink = LastRow()
        deployment.generate([asked], sink)
        return sink.row.num_output_tokens, (sink.row.t_last_ns - sink.row.t_first_ns) / 1e9

    return ask


def cpu_seconds() -> float:
    """Of this process and all that it started and that live."""
    me = psutil.Process()
    times = [process.cpu_times() for process in (me, *me.children(recursive=True))]
    return sum(of.user + of.system for of in times)


def race(run: PreparedRun, sides: Mapping[str, Ask], num_repeats: int) -> list[Turn]:
    order, turns = random.Random(0), []
    for repeat in range(-1, num_repeats):  # the first warms up
        for prompt in range(len(run.load)):
            for side in order.sample(list(sides), len(sides)):
                time.sleep(PAUSE_S)
                before_s = cpu_seconds()
                num_tokens, decode_s = sides[side](run.load.request(prompt))
                turns.append(Turn(side, repeat, prompt, num_tokens, decode_s, cpu_seconds() - before_s))
    short = {turn.prompt for turn in turns if turn.num_tokens < 2}  # no time between two tokens
    return [turn for turn in turns if turn.repeat >= 0 and turn.prompt not in short]


def seconds_per_token(turns: list[Turn], side: str, what: str) -> dict[int, float]:
    """By prompt, over its repeats; `what`: decode_s, whose first token costs nothing, or cpu_s."""
    of_prompt: dict[int, list[Turn]] = {}
    for turn in (turn for turn in turns if turn.side == side):
        of_prompt.setdefault(turn.prompt, []).append(turn)
    free = int(what == "decode_s")
    return {
        prompt: sum(getattr(turn, what) for turn in found) / sum(turn.num_tokens - free for turn in found)
        for prompt, found in of_prompt.items()
    }


def rate(turns: list[Turn], side: str) -> float:
    return 1 / statistics.mean(seconds_per_token(turns, side, "decode_s").values())


def ratio(turns: list[Turn], ours: str, theirs: str, what: str) -> tuple[float, float, float]:
    """Our rate over theirs, and its interval: prompts drawn anew, the same for both sides."""
    a, b = (seconds_per_token(turns, side, what) for side in (ours, theirs))
    interval = ratio_interval([b[prompt] for prompt in a], list(a.values()))
    assert interval is not None, "an interval needs two prompts"
    return sum(b.values()) / sum(a.values()), interval.low, interval.high


def lines(turns: list[Turn]) -> list[str]:
    names = list(dict.fromkeys(sorted(turn.side for turn in turns)))
    said = [f"{side}: {rate(turns, side):.1f} decode TPS" for side in names]
    for strategy in STRATEGIES:
        of_vllm = [side for side in names if side.startswith("vllm") and side.endswith(strategy)]
        if of_vllm:
            best = max(of_vllm, key=lambda side: rate(turns, side))
            said.append(_compared(turns, strategy, best, "decode_s", "decode TPS"))
        said.append(_compared(turns, strategy, TRANSFORMERS, "decode_s", "decode TPS"))
        said.append(_compared(turns, strategy, TRANSFORMERS, "cpu_s", "tokens per processor second"))
    return said


def _compared(turns: list[Turn], strategy: str, other: str, what: str, unit: str) -> str:
    value, low, high = ratio(turns, f"specbench {strategy}", other, what)
    return f"specbench {strategy} / {other}: {value:.2f}x [{low:.2f}, {high:.2f}] in {unit}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine-python", type=Path, help="a virtual environment with vLLM; without one, no vLLM")
    parser.add_argument("--num-prompts", type=int, default=12)
    parser.add_argument("--output-len", type=int, default=64)
    parser.add_argument("--num-repeats", type=int, default=4)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(torch.get_num_threads())  # vLLM's child as ours
    arms = {f"specbench {strategy}": strategy for strategy in STRATEGIES}
    for strategy in STRATEGIES if given.engine_python else ():
        for name, eager in VLLM.items():
            keys = f"engine.enforce_eager={eager},python={given.engine_python}"
            arms[f"vllm {name} {strategy}"] = f"vllm/{strategy}{',' if ':' in strategy else ':'}{keys}"
    config = RunConfig(
        arms=tuple(map(parse_arm, arms.values())),
        model=MODEL,
        dtype="bfloat16",
        device="cpu",
        dataset_name="sharegpt-held-out",
        num_prompts=given.num_prompts,
        output_len=given.output_len,
        max_concurrency=1,
        max_model_len=2048,
    )
    start = time.perf_counter()
    with prepare(config, NullProgress()) as run:
        sides = {name: engine_side(run, index) for index, name in enumerate(arms)}
        sides[TRANSFORMERS] = transformers_side(resolve_model(MODEL).path)
        ready_s = time.perf_counter() - start
        turns = race(run, sides, given.num_repeats)
        versions = {arm.config.label: asdict(run.deployments.of(arm).described) for arm in run.arms}
    said = lines(turns)
    print("\n".join([*said, f"{ready_s:.0f} s until all were ready, {time.perf_counter() - start:.0f} s in all"]))
    if given.out:
        about = dict(threads=torch.get_num_threads(), torch=torch.__version__, workload_sha256=run.workload.sha256)
        kept = dict(about, engines=versions, said=said, turns=[asdict(turn) for turn in turns])
        # Where this checkout lies says nothing of what was measured.
        text = json.dumps(kept, indent=1).replace(f"{Path(__file__).resolve().parents[1]}/", "")
        given.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
