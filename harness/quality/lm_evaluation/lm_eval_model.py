"""The model class of lm-eval over a deployment of any engine. One that tells no token ids gets and gives texts.

Tokenisation, truncation and defaults follow lm-eval's `hf` model (lm_eval/models/huggingface.py, 0.4.13), so that equal
texts mean equal scores.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
from lm_eval.models.utils import handle_stop_sequences, normalize_gen_kwargs
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window, simple_parse_args_string
from tqdm import tqdm

from specbench.harness.engines.load import PromptRequest, cut_at_stop
from specbench.harness.quality.lm_evaluation.open_arm import arm_config, open_arm
from specbench.harness.quality.lm_evaluation.output_store import OutputStore, TqdmStore
from specbench.harness.quality.lm_evaluation.serving import Serving
from specbench.harness.quality.lm_evaluation.task_sources import DEFAULT_MAX_GEN_TOKENS
from specbench.harness.registry import BASELINE
from specbench.harness.spec.sampling import SamplingParams
from specbench.harness.store.facts import Fact
from specbench.harness.store.rows import RequestRow
from specbench.workloads.base import ChatTokenizer
from specbench.workloads.json_values import Json

_BLOCK_ROUNDS = 4  # prompts of a stored block, in batches: few enough to lose little, enough to keep batches full
_log = logging.getLogger(__name__)


class EngineLM(TemplateLM):
    """lm-eval's protocol over an idle deployment of any arm.

    `max_model_len`: tokens of prompt and output. `warm_up` is called with the requests that are about to be generated,
    where there are any.
    """

    def __init__(
        self,
        serving: Serving,
        max_model_len: int,
        *,
        seed: int = 42,
        store: OutputStore | None = None,
        warm_up: Callable[[Sequence[PromptRequest]], None] | None = None,
    ):
        super().__init__()
        self._model, self._deployment, self._seed = serving.model, serving.deployment, seed
        self._capabilities = serving.capabilities
        self._has_ids = serving.capabilities.knows(Fact.TOKEN_IDS)
        self._max_model_len = max_model_len
        self._store: OutputStore = store or TqdmStore()
        self._warm_up = warm_up
        self.num_cut = 0  # prompts that were too long

    @property
    def _tokens(self) -> ChatTokenizer:
        if self._model.tokenizer is None:
            raise ValueError("engine: this task needs a tokenizer, and the engine gives none")
        return self._model.tokenizer

    @property
    def max_length(self) -> int:
        return self._max_model_len

    @property
    def max_gen_toks(self) -> int:
        return DEFAULT_MAX_GEN_TOKENS

    @property
    def eot_token_id(self) -> int:
        return self._model.eos_token_ids[0]

    @property
    def prefix_token_id(self) -> int:
        bos = self._tokens.bos_id
        return self.eot_token_id if bos is None else bos

    @property
    def tokenizer_name(self) -> str:
        described = self._model.described
        return f"{described.name}-{(described.sha256 or '')[:12]}".replace("/", "__")

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **kwargs: object) -> list[int]:
        if add_special_tokens is False:
            return self._tokens.encode_raw(string)
        ids, bos = self._tokens.encode(string), self._tokens.bos_id
        # A chat template may write the BOS that the tokenizer then adds again.
        return ids[1:] if bos is not None and ids[:2] == [bos, bos] else ids

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        if not add_generation_prompt:
            raise ValueError("apply_chat_template: an answer begun for the model (gen_prefix) is not supported")
        return self._tokens.render_chat(chat_history)

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        """What stands in lm-eval's record for the template: its rendering of one made-up question."""
        if isinstance(chat_template, str):
            raise ValueError(f"apply_chat_template: {chat_template!r}: no templates by name; the model's own is used")
        return self._tokens.render_chat([{"role": "user", "content": "QUESTION"}]) if chat_template else None

    # -- generation --------------------------------------------------------------------------------------------------

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        seen: Counter[str] = Counter()
        asked = [self._text_request(r, seen) for r in requests]
        known = self._store.known()
        texts = {r.key: self._text(known[r.key], r.stop) for r in asked if r.key in known}
        missing = list({r.key: r for r in asked if r.key not in texts}.values())
        if missing and self._warm_up is not None:
            self._warm_up(missing)
        self._store.start(len(texts), len(missing))
        size = _BLOCK_ROUNDS * self._deployment.batch_size
        for start in range(0, len(missing), size):
            texts |= self._generate(missing[start : start + size])
        for request, one in zip(requests, asked, strict=True):
            self.cache_hook.add_partial("generate_until", request.args, texts[one.key])
        return [texts[r.key] for r in asked]

    def _generate(self, requests: Sequence[PromptRequest]) -> dict[str, str]:
        numbered = [replace(request, id=number) for number, request in enumerate(requests)]
        sink = self._store.begin(len(numbered))
        try:
            found = self._deployment.generate(numbered, sink)
        finally:
            self._store.put()
        texts = {request.key: found[request.id] for request in numbered}
        return {key: text for key, text in texts.items() if text is not None}

    def _text(self, row: RequestRow, stop: Sequence[str]) -> str:
        """Of an output that was stored."""
        if row.output_token_ids is None:
            assert row.output_text is not None, "an output without tokens and text"
            return row.output_text
        return cut_at_stop(self._tokens.decode(list(row.output_token_ids)), stop)

    def _text_request(self, request: Instance, seen: Counter[str]) -> PromptRequest:
        """`seen` counts keys: lm-eval asks again what a task repeats, and sampled answers must differ then."""
        context, gen_kwargs = request.args
        kwargs = dict(normalize_gen_kwargs(gen_kwargs, self.max_gen_toks))
        stop = handle_stop_sequences(kwargs.pop("until", None), eos=None)
        max_tokens = kwargs.pop("max_gen_toks")
        sampled = kwargs.pop("do_sample")
        temperature = kwargs.pop("temperature", 0.0)
        top_k, top_p = int(kwargs.pop("top_k", 0) or 0), float(kwargs.pop("top_p", 1.0))
        if kwargs:
            raise ValueError(
                f"gen_kwargs: {', '.join(kwargs)} not known; allowed: until, max_gen_toks, do_sample, temperature, "
                "top_k, top_p"
            )
        asked = [context, gen_kwargs]
        place = f"{request.task_name}/{request.doc_id}/{request.idx}-{_digest(asked).hex()[:12]}"
        if sampled and seen[place]:
            asked.append(seen[place])
        seen[place] += 1
        digest = _digest(asked)
        sampling = SamplingParams(
            max_tokens=max_tokens,
            stop_token_ids=self._model.eos_token_ids,
            temperature=float(temperature) if sampled else 0.0,
            # By text, not by place: every arm, and a resumed one, draws the same noise.
            seed=(self._seed + int.from_bytes(digest[:7], "big")) & 0x7FFF_FFFF_FFFF_FFFF,
            top_k=top_k,
            top_p=top_p,
        )
        key = f"{request.task_name}/{request.doc_id}/{request.idx}-{digest.hex()[:12]}"
        ids = self._prompt_ids(context, max_tokens) if self._has_ids else ()
        return PromptRequest(id=0, key=key, prompt_ids=ids, text=context, sampling=sampling, stop=tuple(stop))

    def _prompt_ids(self, context: str, max_tokens: int) -> tuple[int, ...]:
        """The end of a prompt that is too long, as lm-eval's `hf` does: its beginning is few-shot examples."""
        room = self.max_length - max_tokens
        if room < 1:
            raise ValueError(f"max_gen_toks: {max_tokens} is not allowed; max_model_len {self.max_length} must be more")
        ids = self.tok_encode(context) or [self.prefix_token_id]
        if len(ids) > room:
            self.num_cut += 1
            _log.warning("prompt of %d tokens cut to its last %d: raise max_model_len", len(ids), room)
        return tuple(ids[-room:])

    # -- log-likelihoods ---------------------------------------------------------------------------------------------

    def _loglikelihood_tokens(
        self, requests: list[tuple[tuple[str, str], list[int], list[int]]], disable_tqdm: bool = False, **kwargs: object
    ) -> list[tuple[float, bool]]:
        self._capabilities.require(Fact.SCORES, "a task of log-likelihoods")
        found = []
        for pair, context, continuation in tqdm(requests, desc="specbench: loglikelihood", disable=disable_tqdm):
            scored = self._score(context, continuation)
            if pair is not None:
                self.cache_hook.add_partial("loglikelihood", pair, scored)
            found.append(scored)
        return found

    def _score(self, context: list[int], continuation: list[int]) -> tuple[float, bool]:
        assert continuation, "nothing to score"
        if len(continuation) > self.max_length:
            raise ValueError(
                f"max_model_len: {self.max_length} is shorter than an answer of {len(continuation)} tokens"
            )
        ids = [*context, *continuation][-(self.max_length + 1) :]
        scored = self._deployment.score(ids, len(continuation))
        return scored.log_prob, scored.is_greedy

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> list[float]:
        totals = []
        for request in tqdm(requests, desc="specbench: loglikelihood_rolling", disable=disable_tqdm):
            (text,) = request.args
            windows = get_rolling_token_windows(self.tok_encode(text), self.prefix_token_id, self.max_length, 1)
            parts = [(None, *make_disjoint_window(window)) for window in windows]
            total = sum(score for score, _ in self._loglikelihood_tokens(parts, disable_tqdm=True))  # type: ignore[arg-type]
            self.cache_hook.add_partial("loglikelihood_rolling", (text,), total)
            totals.append(total)
        return totals


def _digest(asked: list[Json]) -> bytes:
    return hashlib.sha256(json.dumps(asked, sort_keys=True, default=str).encode()).digest()


class SpecbenchLM(EngineLM):
    """`lm_eval --model specbench --model_args strategy=naive-eagle,k=4,...`: keys as in `specbench run`."""

    def __init__(
        self,
        strategy: str = BASELINE,
        batch_size: int | str = 1,
        max_batch_size: int | None = None,
        device: str | None = None,
        pretrained: str | None = None,
        **options: Json,
    ):
        """`batch_size` is the number of requests in flight; `pretrained` another word for `model`. ValueError names a
        key that is not known."""
        if not str(batch_size).isdigit():
            raise ValueError(f"batch_size: {batch_size!r} is not allowed; give a number, requests in flight at once")
        options.setdefault("max_concurrency", batch_size)
        options.setdefault("model", pretrained)
        # lm-eval says cuda:0 where nobody asked for anything, and its `hf` falls back to the CPU in silence.
        if device is not None and not device.startswith("cuda"):
            options["device"] = device
        config = arm_config(strategy, options)
        super().__init__(open_arm(config), config.workload.max_model_len, seed=config.seed)

    @classmethod
    def create_from_arg_string(cls, arg_string: str, additional_config: dict[str, Any] | None = None) -> SpecbenchLM:
        return cls.create_from_arg_obj(simple_parse_args_string(arg_string), additional_config)

    @classmethod
    def create_from_arg_obj(
        cls, arg_dict: dict[str, Any], additional_config: dict[str, Any] | None = None
    ) -> SpecbenchLM:
        """As lm-eval's, which passes its own options beside `model_args`: ValueError for a key that stands in both."""
        own = {key: value for key, value in (additional_config or {}).items() if value is not None}
        for key in (key for key in arg_dict if key in own):
            raise ValueError(f"{key}: is no key of --model_args but lm-eval's own option; give --{key} {arg_dict[key]}")
        return cls(**arg_dict, **own)
