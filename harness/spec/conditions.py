"""The configuration of a run: conditions common to all arms, and the arms. Stored whole in the run's record."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

from specbench.workloads.base import WorkloadRequest

from .arm import ArmConfig
from .fields import Options, option
from .logit_edits import LogitEdits, parse_bias, parse_words
from .sampling import MAX_LOGPROBS, SamplingParams

_model = partial(option, group="Model")
_prompts = partial(option, group="Prompts")
_load = partial(option, group="Load")
_sampling = partial(option, group="Sampling")
_measurement = partial(option, group="Measurement")
_switch = partial(option, group="Switches of all arms")
_engine = partial(option, group="Other engines")
MAX_TOKENS = 1 << 24  # limit for all counts of tokens or pages: far beyond any model, and fits in an int32
MAX_PAGE_SIZE = 128  # what the kernels' tests cover


@dataclass(frozen=True, kw_only=True)
class Conditions(Options):
    """Model, prompts, load, sampling, measurement.

    Raises ValueError naming the field, its value and what is allowed, before anything is loaded.
    """

    model: str = _model(
        "smollm2-135m-instruct",
        "Asset name, hub name, Hugging Face directory or .gguf; a shape's name with dummy weights; openai: the served "
        "name, by default the first.",
    )
    load_format: str = _model(
        "auto", "auto: real weights; dummy: random weights of a published shape.", choices=("auto", "dummy")
    )
    num_layers: int | None = _model(None, "Keep the first layers only (dummy weights).", unit="layers", least=1)
    dtype: str = _model("auto", "auto, bfloat16 or float32.", choices=("auto", "bfloat16", "float32"))
    device: str = _model("auto", "auto, cpu or cuda.", choices=("auto", "cpu", "cuda"))
    tensor_parallel_size: int = _model(
        1, "GPUs that share the model, one process each: 1, 2 or 4.", unit="GPUs", least=1, most=4
    )
    draft_tensor_parallel_size: int = _model(
        0, "GPUs that share the drafter: 1, or as many as the model's (0).", unit="GPUs", least=0, most=4
    )
    all_reduce: str = _model(
        "auto",
        "How GPUs sum their parts: nccl, or one-shot, two-shot, fused (with the norm) in shared memory; auto: by size.",
        choices=("auto", "nccl", "one-shot", "two-shot", "fused"),
    )
    engine: str = _engine("specbench", "Engine of arms that name none (ENGINE/STRATEGY).")
    tokenizer: str | None = _engine(
        None, "openai: tokenizer of the served model: asset name, hub name or directory; default: texts are sent."
    )
    api_key_env: str = _engine(
        "OPENAI_API_KEY", "openai: environment variable with the server's bearer token, which is never stored."
    )
    dataset_name: str = _prompts(
        "sharegpt-held-out",
        "sharegpt-held-out (shipped heads never saw it), sharegpt, gsm8k, mt-bench, humaneval, jsonl, hf, random, ...; "
        "several separated by commas: the prompts are divided among them, and there is a table by data set.",
    )
    dataset_path: str | None = _prompts(
        None, "File in the format of --dataset-name (own prompts: jsonl); hf: ORG/NAME, a file or a directory."
    )
    hf_split: str | None = _prompts(None, "hf: split; default: test, validation or train.")
    hf_subset: str | None = _prompts(None, "hf: configuration of the data set, if it has several.")
    hf_column: str | None = _prompts(
        None, "hf: column of prompts; default: prompt, question, text, messages or similar."
    )
    num_prompts: int = _prompts(
        20, "Prompts in the workload, of all its data sets.", unit="prompts", least=1, most=1_000_000
    )
    output_len: int | None = _prompts(
        None, "Most output tokens per prompt; default: the data set's.", unit="tokens", least=1, most=MAX_TOKENS
    )
    random_input_len: int = _prompts(1024, "random: prompt tokens.", unit="tokens", least=1, most=MAX_TOKENS)
    random_output_len: int = _prompts(128, "random: output tokens.", unit="tokens", least=1, most=MAX_TOKENS)
    random_range_ratio: float = _prompts(
        0.0, "random: lengths vary by up to this fraction either way.", unit="fraction"
    )
    max_model_len: int = _prompts(
        2048, "Most tokens of a request, prompt plus output.", unit="tokens", least=2, most=MAX_TOKENS
    )
    max_concurrency: int = _load(
        1, "Concurrency: most requests in flight, also the largest batch.", unit="requests", least=1, most=65_536
    )
    request_rate: float = _load(
        math.inf, "Arrivals per second (Poisson); inf: a new request as soon as one ends.", unit="requests/s"
    )
    burstiness: float = _load(1.0, "Gamma shape of the arrival gaps; 1 is Poisson.")
    temperature: float = _sampling(0.0, "0 is greedy.", least=0, most=1000)
    temperature_grid: tuple[float, ...] = _sampling(
        (), "Send every prompt at this temperature; repeat for a grid. Default: once, at --temperature.", metavar="T"
    )
    top_k: int = _sampling(0, "0 is off.", least=0, most=MAX_TOKENS)
    top_p: float = _sampling(1.0, "1 is off.")
    min_p: float = _sampling(0.0, "Drop tokens below this fraction of the likeliest token's probability; 0 is off.")
    repetition_penalty: float = _sampling(
        1.0, "Divide (if positive) or multiply logits of tokens of prompt and output; 1 is off."
    )
    frequency_penalty: float = _sampling(0.0, "Subtracted from a token's logit for each time it was output, -2 to 2.")
    presence_penalty: float = _sampling(0.0, "Subtracted from a token's logit once it was output, -2 to 2.")
    logit_bias: tuple[str, ...] = _sampling((), "Added to a token's logit, -100 to 100. Repeatable.", metavar="ID:BIAS")
    allowed_token_ids: tuple[int, ...] = _sampling(
        (), "Only these token ids can be sampled. Repeatable. Default: all.", flags="--allowed-token-id"
    )
    banned_token_ids: tuple[int, ...] = _sampling(
        (), "A token id that is never sampled. Repeatable.", flags="--banned-token-id"
    )
    bad_words: tuple[str, ...] = _sampling(
        (), "Token ids that never follow one another in an output. Repeatable.", flags="--bad-word", metavar="ID,ID,.."
    )
    min_tokens: int = _sampling(
        0, "No stop id is sampled before this many output tokens.", unit="tokens", least=0, most=MAX_TOKENS
    )
    ignore_eos: bool = _sampling(False, "Ignore end-of-sequence tokens: always generate to the length limit.")
    stop_token_ids: tuple[int, ...] = _sampling(
        (), "Another token id that ends an output. Repeatable.", flags="--stop-token-id"
    )
    stop: tuple[str, ...] = _sampling((), "A string that ends an output. Repeatable.", metavar="TEXT")
    logprobs: int | None = _sampling(
        None,
        "Store log-probabilities of the output tokens and of this many likeliest tokens.",
        least=0,
        most=MAX_LOGPROBS,
    )
    prompt_logprobs: int | None = _sampling(
        None, "The same for prompt tokens, by a pass before the first step.", least=0, most=MAX_LOGPROBS
    )
    seed: int = _sampling(42, "Seed of prompts, arrivals and sampling.", least=0, most=(1 << 63) - 1)
    num_repeats: int = _measurement(3, "Blocks per arm, interleaved.", unit="blocks", least=1, most=100_000)
    warmup_max_s: float = _measurement(
        8.0, "Longest warm-up of an arm after every shape has run; it ends earlier once stable.", unit="seconds"
    )
    engine_startup_timeout: float = _engine(
        600.0, "Time limit for another engine, as a child or a server, to become ready.", unit="seconds"
    )
    deploy: str = _engine(
        "side-by-side",
        "side-by-side: every arm stays up; alternate: an arm of another engine is restarted for each of its blocks.",
        choices=("side-by-side", "alternate"),
    )
    num_clients: int = _engine(
        1, "Client processes that send the load to a server, an equal share each.", unit="processes", least=1, most=64
    )
    ranges: str = _measurement(
        "off", "nvtx: mark phases for nsys and the torch profiler; or off.", choices=("off", "nvtx")
    )
    page_size: int = _switch(0, f"Tokens per KV page, 1-{MAX_PAGE_SIZE}; 0: 16 on a GPU, 128 on a CPU.", unit="tokens")
    num_pages: int | None = _switch(
        None,
        "KV pages, one of them a dummy; default: enough to avoid preemption.",
        unit="pages",
        least=2,
        most=MAX_TOKENS,
    )
    max_num_batched_tokens: int = _switch(
        2048, "Most rows of a prefill step; longer prompts are chunked.", unit="tokens", least=1, most=MAX_TOKENS
    )
    mixed_chunk_size: int = _switch(
        0,
        "Our own engine: most prompt tokens of a step that also decodes; 0: by the model's size (8B on one GPU: 429, "
        "with drafts 573). Fewer: shorter P99 ITL, longer P99 TTFT. As many as a step's rows: no limit.",
        unit="tokens",
        least=0,
        most=MAX_TOKENS,
    )

    @property
    def workload(self) -> WorkloadRequest:
        named = [each.name for each in fields(WorkloadRequest) if hasattr(self, each.name)]
        own = {name: getattr(self, name) for name in named}
        return WorkloadRequest(name=self.dataset_name, path=self.dataset_path, **own)

    @property
    def num_requests(self) -> int:
        """Of a block: every prompt at each temperature of the grid."""
        return self.num_prompts * max(1, len(self.temperature_grid))

    @property
    def edits(self) -> LogitEdits:
        named: dict[str, Any] = {each.name: getattr(self, each.name) for each in fields(LogitEdits)}
        parsed = {"logit_bias": parse_bias(self.logit_bias), "bad_words": parse_words(self.bad_words)}
        return LogitEdits(**{**named, **parsed})

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.model:
            raise ValueError("model: is empty; give an asset name, a hub name, a directory or a .gguf file")
        if self.num_layers is not None and self.load_format != "dummy":
            raise ValueError("num_layers: needs --load-format dummy (a checkpoint keeps all its layers)")
        self._check_ranks()
        assert self.workload  # raises for an invalid workload
        if not self.request_rate > 0:
            raise ValueError(f"request_rate: {self.request_rate} is not allowed; allowed: above 0 (inf: no limit)")
        for name in ("burstiness", "warmup_max_s", "engine_startup_timeout"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name}: {getattr(self, name)} is not allowed; allowed: above 0, finite")
        if not math.isfinite(self.temperature):
            raise ValueError(f"temperature: {self.temperature} is not allowed; allowed: 0 to 1000 (0 is greedy)")
        SamplingParams(temperature=self.temperature, top_k=self.top_k, top_p=self.top_p)
        grid = self.temperature_grid
        if len({f"{heat:g}" for heat in grid}) < len(grid) or not all(0 <= heat <= 1000 for heat in grid):
            raise ValueError(f"temperature_grid: {list(grid)} is not allowed; give different values from 0 to 1000")
        assert self.edits  # raises for invalid edits
        if "" in self.stop:
            raise ValueError("stop: is empty; give a string")
        if any(token < 0 for token in self.stop_token_ids):
            raise ValueError(f"stop_token_id: {min(self.stop_token_ids)} is not allowed; allowed: 0 or more")
        if not 0 <= self.page_size <= MAX_PAGE_SIZE:
            raise ValueError(
                f"page_size: {self.page_size} is not allowed; allowed: 1 to {MAX_PAGE_SIZE}, or 0 for the device's "
                "default"
            )

    def _check_ranks(self) -> None:
        size, draft_size = self.tensor_parallel_size, self.draft_tensor_parallel_size
        if size == 3:
            raise ValueError("tensor_parallel_size: 3 is not allowed; allowed: 1, 2, 4")
        if draft_size not in (0, 1, size):
            allowed = "1" if size == 1 else f"1, or {size} as the model has"
            raise ValueError(
                f"draft_tensor_parallel_size: {draft_size} is not allowed; allowed: {allowed} (0: as the model)"
            )
        if size == 1 and self.all_reduce != "auto":
            raise ValueError(f"all_reduce: {self.all_reduce!r} has no effect on one GPU; drop it")


@dataclass(frozen=True, kw_only=True)
class RunConfig(Conditions):
    """Everything that decides what is measured. `arms` run interleaved over `num_repeats`."""

    arms: tuple[ArmConfig, ...]
    warmup_window_s: float = 0.5

    @staticmethod
    def of_arms(conditions: Conditions, arms: Sequence[ArmConfig], **changes: Any) -> RunConfig:
        """These arms under the conditions, of which `changes` replace some."""
        values = {each.name: getattr(conditions, each.name) for each in fields(Conditions)}
        return RunConfig(arms=tuple(arms), **{**values, **changes})

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.warmup_window_s < math.inf:
            raise ValueError(f"warmup_window_s: {self.warmup_window_s} is not allowed; allowed: above 0, finite")
        labels = [arm.label for arm in self.arms]
        if not labels:
            raise ValueError("strategy: none is given; allowed: one or more")
        twice = [label for label in labels if labels.count(label) > 1]
        if twice:
            raise ValueError(f"label: {twice[0]!r} is given to two arms; every label must differ")
