"""The scheduler's process: one message a batch, with counters so far, as SGLang 0.5.16 sends them."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

OUT_OF_MEMORY, DIES, REFUSED, CUT, MERGED, MISCOUNTED = 901, 902, 903, 904, 905, 906
TOO_LARGE = "too-large"  # a model_path that does not fit
STEP_S = 0.002


@dataclass
class Request:
    rid: str
    prompt: list[int]
    sampling: dict[str, Any]
    asked: dict[str, Any]
    ids: list[int] = field(default_factory=list)
    verified: int = 0
    correct: int = 0
    histogram: list[int] = field(default_factory=list)
    reason: dict[str, Any] | None = None

    def accept(self, tokens: list[int], num_drafts: int | None) -> list[int]:
        """What is kept of these."""
        if num_drafts is not None:
            right = len(tokens) - 1
            self.verified, self.correct = self.verified + 1, self.correct + right
            self.histogram += [0] * (right + 1 - len(self.histogram))
            self.histogram[right] += 1
        for place, token in enumerate(tokens):
            self.ids.append(token)
            stops = not self.sampling["ignore_eos"] and token in {2, *(self.sampling.get("stop_token_ids") or ())}
            limit = 3 if self.prompt[0] == CUT else self.sampling["max_new_tokens"]
            if stops or len(self.ids) == limit:
                self.reason = {"type": "stop" if stops else "length"}
                return tokens[: place + 1]
        return tokens

    def meta(self) -> dict[str, Any]:
        told = {
            "prompt_tokens": len(self.prompt),
            "completion_tokens": len(self.ids) + (self.prompt[0] == MISCOUNTED),
            "cached_tokens": 0,
            "num_retractions": 0,
        }
        if self.verified:
            told |= {"spec_verify_ct": self.verified, "spec_num_correct_drafts": self.correct}
            told |= {"spec_correct_drafts_histogram": self.histogram, "spec_accept_length": 9.9}
        if self.asked.get("return_logprob"):
            scored = self.prompt[self.asked["logprob_start_len"] :]
            told["input_token_logprobs"] = [
                (None, scored[0], None),
                *((-token / 10, token, None) for token in scored[1:]),
            ]
            told["input_top_logprobs"] = [None, *([(-0.1, 1, None)] for _ in scored[1:])]
        return told


def run_scheduler(server_args: Any, line: Any) -> None:
    if os.environ.get("SGLANG_FORCE_STREAM_INTERVAL") != "1":
        raise AssertionError("outputs would wait for 50 tokens")
    if server_args.model_path.endswith(TOO_LARGE):
        _out_of_memory()
    line.send({"status": "ready", "max_total_num_tokens": 1000, "max_req_input_len": 100})
    num_drafts = server_args.speculative_num_draft_tokens - 1 if server_args.speculative_algorithm else None
    live: list[Request] = []
    number = 0
    while True:
        while line.poll(0 if live else None):
            kind, asked = line.recv()
            if kind == "flush":
                line.send(("flushed", {"success": not live}))
            elif kind == "abort":
                for request in live:
                    request.reason = {"type": "abort", "message": "aborted"}
            else:
                live.append(Request(asked.get("rid"), asked["input_ids"], asked["sampling_params"], asked))
        if live:
            line.send(("outputs", _step(live, num_drafts, number)))
            number += 1
            live = [request for request in live if request.reason is None]
            time.sleep(STEP_S)


def _step(live: list[Request], num_drafts: int | None, number: int) -> SimpleNamespace:
    """Prompts alone where there are new ones, as SGLang does, else a round of all others."""
    new = [request for request in live if not request.ids]
    batch = new or live
    kept = []
    for request in batch:
        first = request.prompt[0]
        if first == OUT_OF_MEMORY and request.ids:
            _out_of_memory()
        if first == DIES and request.ids:
            os._exit(3)
        last = request.ids[-1] if request.ids else request.prompt[-1]
        num_tokens = 1 + (0 if new or num_drafts is None else number % (num_drafts + 1))
        num_tokens += 4 * (first == MERGED and not new)
        tokens = [(last + n) % 900 for n in range(1, num_tokens + 1)]
        kept.append([] if request.reason else request.accept(tokens, None if new else num_drafts))
    return SimpleNamespace(
        rids=[request.rid for request in batch],
        output_ids=kept,
        prompt_tokens=[len(request.prompt) for request in batch],
        cached_tokens=[0] * len(batch),
        finished_reasons=[request.reason for request in batch],
        spec_verify_ct=[request.verified for request in batch] if num_drafts is not None else [],
        spec_num_correct_drafts=[request.correct for request in batch] if num_drafts is not None else [],
        meta=[request.meta() for request in batch],
    )


def _out_of_memory() -> None:
    print("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", file=sys.stderr)
    print("see above", file=sys.stderr)
    sys.stderr.flush()
    os._exit(0)
