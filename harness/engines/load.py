"""What is asked of an engine: prompts, how they are sent, how tokens are drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specbench.harness.spec.sampling import SamplingParams
from specbench.workloads.base import Prompt

_SEED_STRIDE = 1_000_003  # keeps the seeds of neighbouring runs apart


@dataclass(frozen=True, kw_only=True, slots=True)
class PromptRequest:
    """One prompt and what is wanted for it. `id` is unique among those sent together; `key` names the prompt in the
    rows. An engine takes `prompt_ids` where it can and `text` otherwise. `stop`: strings that end the text and do not
    belong to it."""

    id: int
    key: str
    prompt_ids: tuple[int, ...]
    text: str
    sampling: SamplingParams
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """How requests are sent: `arrival_s` after the start at the earliest, at most `max_concurrency` at a time."""

    prompts: Sequence[Prompt]
    arrival_s: Sequence[float]
    max_concurrency: int
    temperature: float
    top_k: int
    top_p: float
    stop_token_ids: tuple[int, ...]
    seed: int

    def __len__(self) -> int:
        return len(self.prompts)

    def request(self, index: int) -> PromptRequest:
        prompt = self.prompts[index]
        sampling = SamplingParams(
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            max_tokens=prompt.max_tokens,
            stop_token_ids=self.stop_token_ids,
            # By prompt, not by arm or repeat: every arm draws the same noise.
            seed=(self.seed * _SEED_STRIDE + index) & 0x7FFF_FFFF_FFFF_FFFF,
        )
        return PromptRequest(id=index, key=prompt.id, prompt_ids=prompt.token_ids, text=prompt.text, sampling=sampling)


def cut_at_stop(text: str, stop: Sequence[str]) -> str:
    """`text` up to the first of the stop strings, empty ones ignored."""
    ends = [end for s in stop if s and (end := text.find(s)) >= 0]
    return text[: min(ends)] if ends else text


def cut_tokens(output_ids: Sequence[int], stop: Sequence[str], decode: Callable[[list[int]], str]) -> list[int]:
    """The shortest beginning of `output_ids` whose text holds a stop string; all of them where none does.

    A stop string that is once complete stays in every longer text, so the length is found by bisection.
    """

    def has_stop(count: int) -> bool:
        text = decode(list(output_ids[:count]))
        return any(s and s in text for s in stop)

    if not has_stop(len(output_ids)):
        return list(output_ids)
    low, high = 0, len(output_ids)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if has_stop(middle) else (middle, high)
    return list(output_ids[:high])
