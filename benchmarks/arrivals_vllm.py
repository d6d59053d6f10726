"""vLLM's side of benchmarks/arrivals_race.py: random weights, forced acceptance, one process.

    PYTHONPATH=/tmp/vllm python3 benchmarks/arrivals_vllm.py SHAPE ACCEPTANCE_LENGTH REQUESTS K/LOAD ...

All cells have the same K, 0 for no speculation. The engine core runs in this process, and `LLMEngine.step` is called as
`LLM.generate` does. Everything is vLLM's default but the sizes that both engines have: graphs, chunks (16,384 tokens a
step for `LLM` on an H100 or H200, 8,192 where vLLM serves: --max-num-batched-tokens) and asynchronous scheduling, which
vLLM 0.26 turns on for this executor with and without EAGLE-3: a step launches the next batch, then returns the tokens
of the one before. The resolved settings are in the line that says that the engine is ready.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arrivals import MAX_MODEL_LEN, MAX_NUM_SEQS, PAGE, Requests, answer, warm_up, worker_arguments
from decode_vllm import make_llm
from peer_shapes import kv_bytes_of_pages
from race_workers import say

if TYPE_CHECKING:
    from vllm.entrypoints.llm import LLM

FACTS = Path(__file__).parents[1] / "harness" / "engines" / "vllm" / "facts.py"  # it needs nothing of ours


class Vllm:
    """One engine as the shared loop drives it."""

    def __init__(self, llm: LLM):
        self._engine = llm.llm_engine
        self._core = self._engine.engine_core.engine_core
        self._num_submitted = 0
        self._index_of: dict[str, int] = {}

    def submit(self, index: int, prompt_ids: list[int], max_tokens: int) -> None:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        params = SamplingParams(
            temperature=0, max_tokens=max_tokens, ignore_eos=True, detokenize=False, output_kind=RequestOutputKind.DELTA
        )
        self._num_submitted += 1  # a name of its own for each: the engine may still hold those of the turn before
        name = str(self._num_submitted)
        self._index_of[name] = index
        self._engine.add_request(name, {"prompt_token_ids": prompt_ids}, params)

    def step(self) -> list[tuple[int, int, bool]]:
        return [
            (self._index_of[output.request_id], len(output.outputs[0].token_ids), output.finished)
            for output in self._engine.step()
        ]

    def settle(self) -> None:
        while self._core.scheduler.has_requests() or getattr(self._core, "batch_queue", None):
            self._engine.step()
        self._index_of.clear()


def settings_of(llm: LLM) -> dict[str, Any]:
    """What vLLM resolved its configuration to, with its version and attention backend."""
    spec = importlib.util.spec_from_file_location("vllm_facts", FACTS)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.facts(llm.llm_engine)


def run(args: argparse.Namespace, lines: Iterable[str], **own: Any) -> None:
    """`own`: arguments of vLLM's beside the sizes that both engines have."""
    (k,) = {cell.k for cell in args.cells}
    requests = Requests.read(args.requests)
    say(f"vLLM: K = {k} is loaded")
    llm = make_llm(
        args.shape,
        k,
        args.acceptance,
        max_model_len=MAX_MODEL_LEN,
        max_num_seqs=MAX_NUM_SEQS,
        kv_cache_memory_bytes=kv_bytes_of_pages(args.shape, k, requests.num_pages, PAGE),
        **own,
    )
    engine = Vllm(llm)
    say(f"vLLM: K = {k} is warmed up")
    warm_up(engine, requests)
    answer(dict(settings=settings_of(llm)), {k: engine}, requests, lines)


def main() -> None:
    parser = worker_arguments(__doc__)
    parser.add_argument("--max-num-batched-tokens", type=int, help="vLLM's default unless given")
    parser.add_argument("--capture-size", type=int, help="most rows of a graph; vLLM's default, 512, unless given")
    args = parser.parse_args()
    own: dict[str, Any] = {}
    if args.max_num_batched_tokens:
        own["max_num_batched_tokens"] = args.max_num_batched_tokens
    if args.capture_size:
        own["compilation_config"] = dict(max_cudagraph_capture_size=args.capture_size)
    run(args, sys.stdin, **own)


if __name__ == "__main__":
    main()
