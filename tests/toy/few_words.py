"""A target that says four words and an EAGLE-3 head that guesses among them: about a third of the drafts are accepted.

No rejection can be foreseen, so rounds of every length occur and a wrong key or feature shows in what is drafted next.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from specbench.harness.engines.native.core.engine import Engine
from specbench.harness.engines.native.core.request import Request, SamplingParams
from specbench.harness.engines.native.models.llama import LlamaModel

from .checkpoints import Change, Tensors, eagle3_config, llama_config, load_written, write_eagle3, write_llama
from .engines import generate, make_engine, named_strategy
from .plans import Plan

WORDS = (7, 23, 61, 90)


def says_four_words(tensors: Tensors) -> None:
    """Rows in pairs of opposite sign: the best of them is never below the others' zero logits."""
    rows_WH = tensors["lm_head.weight"][list(WORDS[:2])] * 12
    tensors["lm_head.weight"] = torch.zeros_like(tensors["lm_head.weight"])
    tensors["lm_head.weight"][list(WORDS)] = torch.cat([rows_WH, -rows_WH])


def drafting(words: tuple[int, ...]) -> Change:
    """A head that knows these words alone."""

    def change(tensors: Tensors) -> None:
        tensors["d2t"] = torch.tensor(words) - torch.arange(len(words))
        tensors["t2d"] = torch.zeros_like(tensors["t2d"])
        tensors["t2d"][list(words)] = True

    return change


class FewWords:
    """Target and head on disk; `head` is an option of a strategy."""

    def __init__(self, folder: Path, dtype: torch.dtype = torch.float32, **shape: int):
        """`shape`: keys of config.json, of the target and the head alike."""
        self.head = folder / "head"
        self._dtype = dtype
        self._target = folder / "target"
        self._loaded: dict[str, LlamaModel] = {}
        self._said: dict[tuple[str, tuple[int, ...], SamplingParams], list[int]] = {}
        target, head = llama_config(**shape), eagle3_config(draft_vocab_size=len(WORDS), **shape)
        write_llama(self._target, target, change=says_four_words)
        write_eagle3(self.head, head, target, change=drafting(WORDS))

    def target(self, device: str) -> LlamaModel:
        if device not in self._loaded:
            self._loaded[device] = load_written(self._target, device, self._dtype)
        return self._loaded[device]

    def engine(self, plan: Plan, k: int, **config: Any) -> Engine:
        """An engine whose EAGLE drafter uses the head."""
        strategy = named_strategy("eagle", k=k, head=self.head)
        return make_engine(plan, strategy, target=self.target(plan.device), **config)

    def continuations(self, plan: Plan, requests: Iterable[Request]) -> dict[int, list[int]]:
        """Each request alone, without speculation; what was asked before is known."""
        alone = make_engine(Plan(plan.device), target=self.target(plan.device), max_num_seqs=1)
        found = {}
        for r in requests:
            key = (plan.device, r.prompt_ids, r.sampling)
            if key not in self._said:
                self._said[key] = generate(alone, [Request(0, r.prompt_ids, r.sampling)])[0].output_ids
            found[r.id] = list(self._said[key])
        return found
