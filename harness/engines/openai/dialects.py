"""What servers add to OpenAI's protocol: request fields that affect the output, and what they report.

Everything that affects an answer is sent with each request, since servers take omitted fields from the model's
generation_config, or have defaults of their own (llama.cpp: top_k 40, min_p 0.05, a prompt cache).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from specbench.harness.engines.load import PromptRequest

Fields = dict[str, object]
_OPENAI_EDITS = frozenset({"frequency_penalty", "presence_penalty", "logit_bias"})
_OFF = {"presence_penalty": 0.0, "frequency_penalty": 0.0}


@dataclass(frozen=True, kw_only=True, slots=True)
class Dialect:
    """`fixed`: sent with every request. `salt`: the field that makes a request's prefix unique, so that no prefix cache
    serves it. `reset`: the address that empties prefix caches. `metrics`: whether it has a page of counters. `no_ids`:
    why it does not return token ids; `no_scores`: why it does not score prompts. `keeps_connections`: whether a
    connection can be reused after a stream. `edits`: the LogitEdits that it supports under the same name with the same
    meaning."""

    name: str
    fixed: Mapping[str, object] = field(default_factory=dict)
    takes_ids: bool = True
    takes_stop_ids: bool = True
    takes_top_k: bool = True
    salt: str = ""
    cache: str = "not controlled"
    reset: str = ""
    most_seed: int = 2**63 - 1
    no_ids: str = ""
    no_scores: str = ""
    keeps_connections: bool = True
    edits: frozenset[str] = _OPENAI_EDITS

    def fields(self, prompt: PromptRequest, eos_ids: tuple[int, ...], *, ignore_eos: bool) -> Fields:
        """Fields for sampling and the end of a request. ValueError for what the server does not support."""
        sampling = prompt.sampling
        sampling.require_only(self.edits, self.name)
        fields: Fields = {
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "seed": sampling.seed & self.most_seed,
            **_OFF,
            **self.fixed,
            **sampling.spelled,
        }
        if self.takes_top_k or sampling.top_k:
            fields["top_k"] = sampling.top_k or -1
        stop_ids = sampling.stop_token_ids
        if self.takes_stop_ids and stop_ids:
            fields["stop_token_ids"] = list(stop_ids)
        elif further := [token for token in stop_ids if token not in eos_ids]:
            raise ValueError(f"stop_token_id: {further[0]} is not allowed; {self.name} takes no stop_token_ids")
        if ignore_eos or self.takes_stop_ids:
            fields["ignore_eos"] = ignore_eos
        if prompt.stop:
            fields["stop"] = list(prompt.stop)
        return fields


_COMMON = _OPENAI_EDITS | {"min_p", "min_tokens"}
_SALTED = "no hits (a cache_salt per request)"
_NEUTRAL = {"min_p": 0.0, "repetition_penalty": 1.0}
VLLM = Dialect(
    name="vLLM",
    fixed={**_NEUTRAL, "return_token_ids": True},
    salt="cache_salt",
    cache=_SALTED,
    reset="/reset_prefix_cache",
    edits=_COMMON | {"repetition_penalty", "allowed_token_ids"},
)
SGLANG = Dialect(
    name="SGLang",
    fixed={**_NEUTRAL, "return_token_ids": True, "return_spec_tokens_details": True},
    salt="cache_salt",
    cache=_SALTED,
    reset="/flush_cache",
    edits=_COMMON,  # its repetition penalty ignores the prompt
)
LLAMA_CPP = Dialect(
    name="llama.cpp",
    fixed={"min_p": 0.0, "repeat_penalty": 1.0, "cache_prompt": False, "timings_per_token": True},
    takes_stop_ids=False,
    cache="off (cache_prompt false)",
    most_seed=2**31 - 1,
    no_ids="llama.cpp streams text only",
    no_scores="llama.cpp gives no log-probabilities of prompts",
    edits=frozenset({"logit_bias"}),  # its penalties count the prompt too, and its min-p comes before the temperature
    keeps_connections=False,  # closed after a stream without notice: the next request on it would fail
)
PLAIN = Dialect(
    name="OpenAI-compatible server",
    takes_ids=False,
    takes_stop_ids=False,
    takes_top_k=False,
    no_ids="the protocol streams text only",
    no_scores="the protocol gives no log-probabilities of prompts",
)
OWNERS = {"vllm": VLLM, "sglang": SGLANG, "llamacpp": LLAMA_CPP}
"""The dialect, by the model's owner in /v1/models; PLAIN for any other."""
