"""SGLang's side of benchmarks/decode_race.py: random weights, forced acceptance, its engine in process.

    source /tmp/sglang-peer/setup.sh
    python3 benchmarks/decode_sglang.py SHAPE[@GPUS] ACCEPTANCE_LENGTH OUTPUT_TOKENS K/BxPROMPT ...

All cells have the same K, 0 for no speculation. One JSON line when the engine is ready, with the cells that it cannot
run (`missing`: why) and the tokens a round as SGLang counts them (`accepted`); then, for each line on standard input,
one with the figures of every cell, null where it is missing.

Written for SGLang 0.5.16, with Triton attention and PyTorch's sampler, as packages of its defaults may be absent;
prompts run without a graph, decodes and rounds with one. It draws one acceptance for the whole batch in each step. Its
scheduler is a process of its own, which imports this file again.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from typing import Any

from decode_timer import DecodeTimer, answer_turns
from peer_shapes import MAX_POSITION, num_cached, vocabulary, write_configs
from race_workers import Cell

# The cache has a fixed size, as several engines share the card. The fraction only says how much of what was free at the
# start SGLang leaves alone; other engines that load meanwhile count as its own use, so it must not be low.
MEM_FRACTION = 0.97
SPARE_TOKENS = 8192  # a chunk of prompts


def arguments(shape: str, k: int, num_gpus: int, cells: list[Cell], num_tokens: int) -> dict[str, Any]:
    """SGLang's, which it checks itself."""
    target, draft = write_configs(shape, "sglang")
    max_batch = max(cell.batch for cell in cells)
    found = dict(
        model_path=target, load_format="dummy", skip_tokenizer_init=True, dtype="bfloat16", random_seed=0,
        attention_backend="triton", sampling_backend="pytorch", grammar_backend="none", disable_radix_cache=True,
        disable_prefill_cuda_graph=True, disable_flashinfer_autotune=True, context_length=MAX_POSITION,
        max_running_requests=max_batch, cuda_graph_max_bs_decode=max_batch, tp_size=num_gpus, log_level="error",
        mem_fraction_static=MEM_FRACTION, max_total_tokens=int(1.1 * num_cached(cells, num_tokens)) + SPARE_TOKENS,
    )  # fmt: skip
    if k:
        found |= dict(
            speculative_algorithm="EAGLE3", speculative_draft_model_path=draft, speculative_draft_load_format="dummy",
            speculative_num_steps=k, speculative_eagle_topk=1, speculative_num_draft_tokens=k + 1,
        )  # fmt: skip
    return found


class Batches:
    """Of one cell. `accepted`: tokens a round of the last one."""

    def __init__(self, engine: Any, shape: str, cell: Cell):
        self._engine, self._cell = engine, cell
        self._vocabulary, self._rng = vocabulary(shape), random.Random(0)
        self.accepted: float | None = None

    def generate(self, tokens: int) -> float:
        """Seconds. RuntimeError unless every request got exactly so many tokens."""
        cell = self._cell
        prompts = [[self._rng.randrange(10, self._vocabulary) for _ in range(cell.prompt)] for _ in range(cell.batch)]
        sampling = dict(temperature=0, max_new_tokens=tokens, ignore_eos=True)
        start = time.perf_counter()
        answers = self._engine.generate(input_ids=prompts, sampling_params=sampling)
        seconds = time.perf_counter() - start
        metas = [answer["meta_info"] for answer in (answers if isinstance(answers, list) else [answers])]
        counts = {meta["completion_tokens"] for meta in metas}
        if counts != {tokens}:
            raise RuntimeError(f"{cell}: requests got {sorted(counts)} tokens; {tokens} were asked for")
        rounds = sum(meta.get("spec_verify_ct", 0) for meta in metas)
        self.accepted = sum(meta["completion_tokens"] for meta in metas) / rounds if rounds else None
        return seconds


def main() -> None:
    # What SGLang and its processes print goes to standard error: only answers are read, and none of its processes may
    # keep that pipe open once this one has ended.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    (shape, _, num_ranks), acceptance, num_tokens = sys.argv[1].partition("@"), float(sys.argv[2]), int(sys.argv[3])
    cells = [Cell.parse(word) for word in sys.argv[4:]]
    k = cells[0].k
    os.environ.update(
        SGLANG_SIMULATE_ACC_LEN=str(acceptance if k else -1),  # read when its scheduler is imported
        SGLANG_SIMULATE_ACC_METHOD="match-expected",
        SGLANG_SIMULATE_ACC_TOKEN_MODE="fixed",
        SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK="0",  # other engines take memory of the cards meanwhile
    )
    import sglang

    fitting = [cell for cell in cells if cell.prompt + num_tokens < MAX_POSITION]
    missing = {str(cell): f"longer than {MAX_POSITION} tokens" for cell in cells if cell not in fitting}
    accepted: dict[str, float | None] = {}
    timers: dict[Cell, DecodeTimer] = {}
    if fitting:
        engine = sglang.Engine(**arguments(shape, k, int(num_ranks or 1), fitting, num_tokens))
    for cell in fitting:
        batches = Batches(engine, shape, cell)
        try:
            timers[cell] = DecodeTimer(batches.generate, cell.batch, num_tokens)
            accepted[str(cell)] = batches.accepted
        except Exception as error:  # SGLang refuses a request with errors of several libraries
            missing[str(cell)] = f"{type(error).__name__}: {error}"
    print(json.dumps(dict(ready=list(map(str, cells)), missing=missing, accepted=accepted)), file=answers)
    answer_turns([timers.get(cell) for cell in cells], answers)


if __name__ == "__main__":
    main()
