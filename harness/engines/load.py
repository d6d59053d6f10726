"""The load of an engine: prompts, how they are sent, and how tokens are sampled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from specbench.harness.spec.logit_edits import NO_EDITS, LogitEdits
from specbench.harness.spec.sampling import SamplingParams
from specbench.workloads.base import Prompt

_OPEN = "\ufffd"  # what a decoder makes of a character whose last bytes are still to come
_SEED_STRIDE = 1_000_003  # keeps the seeds of neighbouring runs apart


@dataclass(frozen=True, kw_only=True, slots=True)
class PromptRequest:
    """One prompt with its sampling parameters. `id` is unique among those sent together; `key` names the prompt in the
    rows. An engine uses `prompt_ids` if it can, otherwise `messages`, or `text` where there are none. `stop`: strings
    that end the text and are not part of it."""

    id: int
    key: str
    prompt_ids: tuple[int, ...]
    text: str
    sampling: SamplingParams
    stop: tuple[str, ...] = ()
    messages: tuple[Mapping[str, str], ...] = ()


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
    edits: LogitEdits = NO_EDITS
    stop: tuple[str, ...] = ()
    logprobs: int | None = None
    prompt_logprobs: int | None = None

    def plain_at(self, temperature: float) -> Load:
        """The same load at one temperature, without logit edits, stop strings and log-probabilities."""
        prompts = [replace(prompt, temperature=None) for prompt in self.prompts]
        plain = replace(self, edits=NO_EDITS, stop=(), logprobs=None, prompt_logprobs=None)
        return replace(plain, prompts=prompts, temperature=temperature, top_k=0, top_p=1.0)

    def __len__(self) -> int:
        return len(self.prompts)

    def request(self, index: int) -> PromptRequest:
        prompt = self.prompts[index]
        edits = replace(self.edits, min_tokens=min(self.edits.min_tokens, prompt.max_tokens))
        sampling = SamplingParams(
            temperature=self.temperature if prompt.temperature is None else prompt.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            max_tokens=prompt.max_tokens,
            stop_token_ids=self.stop_token_ids,
            # By prompt, not by arm or repeat, so that every arm uses the same noise.
            seed=(self.seed * _SEED_STRIDE + index) & 0x7FFF_FFFF_FFFF_FFFF,
            logprobs=self.logprobs,
            prompt_logprobs=self.prompt_logprobs,
            **edits.named,  # type: ignore[arg-type]
        )
        return PromptRequest(
            id=index,
            key=prompt.id,
            prompt_ids=prompt.token_ids,
            text=prompt.text,
            sampling=sampling,
            stop=self.stop,
            messages=prompt.messages,
        )


def cut_at_stop(text: str, stop: Sequence[str], num_before: int = 0) -> str:
    """`text` up to the first stop string that ends after the first `num_before` characters."""
    ends = [end for s in stop if (end := find_stop(text, s, num_before)) >= 0]
    return text[: min(ends)] if ends else text


def find_stop(text: str, stop: str, num_before: int) -> int:
    """Where the string begins that ends after the first `num_before` characters; -1: not found, or it is empty."""
    return text.find(stop, max(0, num_before - len(stop) + 1)) if stop else -1


def num_settled(output_ids: Sequence[int], min_tokens: int, text: str, decode: Callable[[list[int]], str]) -> int:
    """How many characters of `text`, which is that of all tokens, are complete after the first `min_tokens`. One that a
    later token completes is not: alone, its first bytes are decoded to one or more replacement characters."""
    first = decode(list(output_ids[:min_tokens])) if min_tokens > 0 else ""
    count = len(first)
    while count and first[count - 1] == _OPEN != text[count - 1 : count]:
        count -= 1
    return count


def cut_tokens(
    output_ids: Sequence[int], stop: Sequence[str], decode: Callable[[list[int]], str], min_tokens: int = 0
) -> list[int]:
    """The shortest prefix of `output_ids` whose text contains a stop string; all of them if none does. Strings that end
    within the first `min_tokens` tokens do not count.

    Once complete, a stop string remains in every longer text, so the length is found by bisection.
    """
    num_before = num_settled(output_ids, min_tokens, decode(list(output_ids)), decode) if min_tokens else 0

    def has_stop(count: int) -> bool:
        text = decode(list(output_ids[:count]))
        return any(find_stop(text, s, num_before) >= 0 for s in stop)

    if len(output_ids) <= min_tokens or not has_stop(len(output_ids)):
        return list(output_ids)
    low, high = min_tokens, len(output_ids)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if has_stop(middle) else (middle, high)
    return list(output_ids[:high])
