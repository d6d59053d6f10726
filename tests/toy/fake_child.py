"""A child without an engine: counts on from a prompt's last token, a few tokens a step. Some first tokens break it."""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "harness" / "engines" / "child"))
from capture import Capture  # noqa: E402
from obey import run  # noqa: E402
from steady import Ranges, trace_steps  # noqa: E402
from wire import Ended, Serving, Step, StepRow, Traced  # noqa: E402

sys.path.pop(0)

OUT_OF_MEMORY, REFUSED, DIES, STALLS, FAILS = 901, 902, 903, 904, 905


class FakeChild:
    """Three tokens a step: two drafts, both accepted. Token `eos` ends an answer."""

    def open(self, engine: Mapping[str, Any]) -> Mapping[str, Any]:
        if engine.get("fails"):
            raise ValueError("no such\n   switch")
        if engine.get("hangs"):
            time.sleep(1000)
        print("loading weights")  # into the log, not into the line
        self._step = 0
        facts = {"version": "1.2", "graph_mode": "none", "backend": "fingers", "hardware": "cpu"}
        return {**facts, "config": {"pid": os.getpid()}, "notes": ["counts"]}

    def serve(self, serving: Serving) -> Mapping[str, float]:
        live: dict[int, tuple[dict[str, Any], list[int], list[int]]] = {}
        while not serving.is_over:
            for request in serving.due():
                self._break(request["prompt_ids"][0])
                if request["prompt_ids"][0] == FAILS:
                    serving.end(self._ended(request, [1], [1], "error")._replace(error="its context is full"))
                else:
                    live[request["id"]] = request, [], []
            if serving.is_cancelled:
                for request, ids, times in live.values():
                    serving.end(self._ended(request, ids, times, "abort"))
                live.clear()
                continue
            if not live:
                serving.wait()
                continue
            self._advance(live, serving)
        return {"engine.spec_decode_num_drafts": float(self._step), "collects": float(gc.isenabled())}

    def _advance(self, live: dict, serving: Serving) -> None:
        start_ns = time.monotonic_ns()
        time.sleep(0.001)
        now_ns, rows, reasons = time.monotonic_ns(), [], {}
        for number, (request, ids, times) in live.items():
            is_prefill = not ids
            last = ids[-1] if ids else request["prompt_ids"][-1]
            new = [(last + n) % 900 for n in range(1, 2 if is_prefill else 4)]
            kept = new[: request["max_tokens"] - len(ids)]
            stops = [place for place, token in enumerate(kept) if token in request["stop_token_ids"]]
            kept = kept[: stops[0] + 1] if stops else kept
            ids += kept
            times.append(now_ns)
            drafts = None if request["prompt_ids"][0] == STALLS else 0 if is_prefill else 2
            rows.append(StepRow(number, len(kept), drafts, drafts, is_prefill, 1 if is_prefill else 3))
            if stops or len(ids) == request["max_tokens"]:
                reasons[number] = "stop" if stops else "length"
        serving.step(Step(self._step, start_ns, now_ns, len(live), rows))
        self._step += 1
        for number, reason in reasons.items():
            request, ids, times = live.pop(number)
            serving.end(self._ended(request, ids, times, reason))

    def reset(self) -> str:
        return "off"

    def score(self, ids: list[int], num_scored: int) -> tuple[list[float], list[float]]:
        return [-0.5] * num_scored, [-0.5 if ids[-1] else -0.25] * num_scored

    def trace(self, requests: list[dict[str, Any]], num_rounds: int, capture: Capture) -> Traced:
        """A round is a target and two passes. Where the first prompt begins with STALLS, its request soon ends."""
        ranges, done = Ranges(), 0

        def step() -> list[Step]:
            nonlocal done
            for name in ("specbench:verify", "specbench:draft_first", "specbench:draft_next"):
                with ranges(name):
                    time.sleep(0.0002)
            done += 1
            live = requests[1:] if requests[0]["prompt_ids"][0] == STALLS and done > 5 else requests
            rows = [StepRow(each["id"], 3, 2, 2, done == 1, 3) for each in live]
            return [Step(done, 0, 1, len(live), rows)]

        return trace_steps(step, len(requests), num_rounds, ranges, capture)

    def kind_of(self, error: BaseException) -> str | None:
        return None

    def _break(self, token: int) -> None:
        if token == OUT_OF_MEMORY:
            raise MemoryError("2 GiB wanted")
        if token == REFUSED:
            raise ValueError("a prompt of that kind")
        if token == DIES:
            print("fingers: broken")
            sys.stdout.flush()
            os._exit(3)
        if token == STALLS:
            time.sleep(0.01)

    def _ended(self, request: dict, ids: list[int], times: list[int], reason: str) -> Ended:
        first, last = (times[0], times[-1]) if times else (0, 0)
        return Ended(request["id"], len(request["prompt_ids"]), ids, reason, first, last)


if __name__ == "__main__":
    run(FakeChild())
