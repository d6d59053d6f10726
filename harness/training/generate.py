"""The target's own responses, through our engine in large batches, to disk as they come.

Slots are refilled in waves: a mixed step runs without graphs, so a new prompt at every step would cost more than a few
empty rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from specbench.harness.engines.native.core.engine import Engine
from specbench.harness.engines.native.core.request import Request, SamplingParams

from .config import GenerateConfig
from .conversations import Conversation
from .dialogue import ChatTokenizer, Dialogue, ResponseSequence, Sample, samples
from .shards import finished_samples, write_shard

_REFILL_SHARE = 0.2  # of the slots must be free before new prompts come in
_ROWS_PER_SHARD = 8192
_LOG_ROWS_KEPT = 1 << 16


@dataclass(slots=True)
class GenerateStats:
    """What a generation has done so far. `done` is false where the clock cut it short."""

    num_samples: int = 0
    num_sequences: int = 0
    num_response_tokens: int = 0
    num_looped: int = 0
    num_cut_tokens: int = 0
    seconds: float = 0.0
    done: bool = False


class Generation:
    """Holds conversations with the target until all samples are on disk or the time is over."""

    def __init__(
        self,
        engine: Engine,
        tokenizer: ChatTokenizer,
        stop_token_ids: tuple[int, ...],
        config: GenerateConfig,
        folder: Path,
    ):
        self._engine = engine
        self._tokenizer = tokenizer
        self._stops = stop_token_ids
        self._config = config
        self._folder = folder
        self._active: dict[int, Dialogue] = {}
        self._ready: list[tuple[Dialogue, list[int]]] = []  # later turns wait for the next wave
        self._unwritten: list[ResponseSequence] = []
        self._next_id = 0
        self.stats = GenerateStats()

    @torch.inference_mode()
    def run(
        self, conversations: list[Conversation], budget_s: float, report: Callable[[GenerateStats], None]
    ) -> GenerateStats:
        """Resumes where the shards of the folder end. Conversations in flight when time is over are dropped.

        `report` is called about once a second.
        """
        start, reported = time.perf_counter(), 0.0
        done = finished_samples(self._folder)
        todo = (s for s in samples(conversations, self._config) if s.id not in done)
        while time.perf_counter() - start < budget_s:
            self._refill(todo)
            if not self._active:
                self.stats.done = True
                break
            for request in self._engine.step():
                self._on_finish(request)
            if len(self._unwritten) >= _ROWS_PER_SHARD:
                self._write()
            if len(self._engine.log.rows) > _LOG_ROWS_KEPT:
                self._engine.log.rows.clear()
            self.stats.seconds = time.perf_counter() - start
            if self.stats.seconds - reported >= 1:
                reported = self.stats.seconds
                report(self.stats)
        if self._unwritten:
            self._write()
        self.stats.seconds = time.perf_counter() - start
        return self.stats

    def _write(self) -> None:
        write_shard(self._folder, self._unwritten)
        self._unwritten = []

    def _refill(self, todo: Iterator[Sample]) -> None:
        num_slots = self._config.generate_batch
        if len(self._active) > num_slots * (1 - _REFILL_SHARE):
            return
        while len(self._active) < num_slots:
            if self._ready:
                dialogue, prompt = self._ready.pop()
            else:
                sample = next(todo, None)
                if sample is None:
                    return
                dialogue = Dialogue(sample, self._tokenizer, self._config)
                first = dialogue.next_prompt()
                if first is None:
                    continue
                prompt = first
            self._start(dialogue, prompt)

    def _start(self, dialogue: Dialogue, prompt: list[int]) -> None:
        sampling = SamplingParams(
            temperature=dialogue.sample.temperature,
            max_tokens=self._config.max_response_tokens,
            stop_token_ids=self._stops,
            seed=dialogue.sample.seed + dialogue.num_turns,
        )
        self._engine.add(Request(self._next_id, tuple(prompt), sampling))
        self._active[self._next_id] = dialogue
        self._next_id += 1

    def _on_finish(self, request: Request) -> None:
        dialogue = self._active.pop(request.id)
        dialogue.answer(request.output_ids)
        self.stats.num_response_tokens += len(request.output_ids)
        prompt = dialogue.next_prompt()
        if prompt is not None:
            self._ready.append((dialogue, prompt))
            return
        self.stats.num_samples += 1
        self._unwritten += dialogue.finished
        self.stats.num_sequences += len(dialogue.finished)
        self.stats.num_looped += sum(sequence.looped for sequence in dialogue.finished)
        self.stats.num_cut_tokens += sum(sequence.num_cut_tokens for sequence in dialogue.finished)
