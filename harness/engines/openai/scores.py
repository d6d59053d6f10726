"""Log-probabilities of a prompt's own tokens, through `echo` in the completions API of vLLM and SGLang."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specbench.harness.engines.base import Scored


def score_fields(model: str, ids: Sequence[int]) -> dict[str, object]:
    """Fields of a request that echoes its prompt; the single generated token is ignored."""
    return {"model": model, "prompt": list(ids), "max_tokens": 1, "temperature": 0.0, "echo": True, "logprobs": 1}


def read_score(answer: Mapping[str, Any], num_ids: int, num_scored: int) -> Scored:
    """ValueError if the answer has no log-probabilities of these tokens."""
    try:
        logprobs = answer["choices"][0]["logprobs"]
        wanted = slice(num_ids - num_scored, num_ids)
        own = [float(value) for value in logprobs["token_logprobs"][wanted]]
        best = [max(map(float, one.values())) for one in logprobs["top_logprobs"][wanted]]
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError("no log-probabilities of the prompt in its answer") from error
    if len(own) != num_scored or len(best) != num_scored:
        raise ValueError(f"log-probabilities of {len(own)} tokens in its answer, {num_scored} were requested")
    return Scored.of(own, best)
