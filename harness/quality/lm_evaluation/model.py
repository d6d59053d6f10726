"""lm-eval's model class over a deployment of any engine. An engine without token ids gets and returns texts.

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

from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
from lm_eval.models.utils import handle_stop_sequences, normalize_gen_kwargs
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
from tqdm import tqdm

from specbench.harness.engines.base import Deployment, RowSink
from specbench.harness.engines.load import PromptRequest
from specbench.harness.quality.lm_evaluation.tasks import DEFAULT_MAX_GEN_TOKENS, check_generation_keys, sampling_of
from specbench.harness.run.block_sink import NullSink
from specbench.harness.run.prepare import Served
from specbench.harness.store.arm_record import Fact
from specbench.harness.store.rows import RequestRow
from specbench.workloads.base import ChatTokenizer
from specbench.workloads.json_values import Json

Answer = Callable[[Sequence[PromptRequest]], dict[str, str]]  # texts by the requests' keys
_log = logging.getLogger(__name__)


class EngineLM(TemplateLM):
    """lm-eval's protocol over an idle deployment of an arm. `answer` generates the texts of distinct requests; by
    default the deployment does, and nothing is stored."""

    def __init__(self, served: Served, deployment: Deployment, answer: Answer | None = None):
        super().__init__()
        self._model, self._deployment, self._seed = served.model, deployment, served.config.seed
        self._capabilities = deployment.capabilities
        self._max_model_len = served.config.workload.max_model_len
        self._answer = answer or self._generate
        self.num_cut = 0  # prompts that were too long

    @property
    def _tokens(self) -> ChatTokenizer:
        if self._model.tokenizer is None:
            raise ValueError("engine: this task needs a tokenizer, but the engine provides none")
        return self._model.tokenizer

    @property
    def max_length(self) -> int:
        """Tokens of prompt and output."""
        return self._max_model_len

    @property
    def max_gen_toks(self) -> int:
        return DEFAULT_MAX_GEN_TOKENS

    @property
    def eot_token_id(self) -> int:
        if not self._model.eos_token_ids:
            raise ValueError("engine: this task needs an end-of-text token, but the served model reports none")
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
        """What lm-eval records as the template: its rendering of a placeholder question."""
        if isinstance(chat_template, str):
            raise ValueError(f"apply_chat_template: {chat_template!r}: no templates by name; the model's own is used")
        return self._tokens.render_chat([{"role": "user", "content": "QUESTION"}]) if chat_template else None

    # -- generation --------------------------------------------------------------------------------------------------

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        seen: Counter[str] = Counter()
        prompts = [self._prompt_request(request, seen) for request in requests]
        texts = self._answer(list({prompt.key: prompt for prompt in prompts}.values()))
        for request, prompt in zip(requests, prompts, strict=True):
            self.cache_hook.add_partial("generate_until", request.args, texts[prompt.key])
        return [texts[prompt.key] for prompt in prompts]

    def _generate(self, requests: Sequence[PromptRequest]) -> dict[str, str]:
        with tqdm(total=len(requests), desc="specbench: generate_until") as bar:
            return generate_texts(self._deployment, requests, _BarSink(bar))

    def _prompt_request(self, request: Instance, seen: Counter[str]) -> PromptRequest:
        """`seen` counts keys: lm-eval repeats requests that a task repeats, and sampled answers must differ then."""
        context, gen_kwargs = request.args
        kwargs = dict(normalize_gen_kwargs(gen_kwargs, self.max_gen_toks))
        check_generation_keys(kwargs)
        sampling = sampling_of(kwargs)
        place, content = f"{request.task_name}/{request.doc_id}/{request.idx}", [context, gen_kwargs]
        first_key = f"{place}-{_digest(content).hex()[:12]}"
        if kwargs["do_sample"] and seen[first_key]:
            content.append(seen[first_key])
        seen[first_key] += 1
        digest = _digest(content)
        return PromptRequest(
            id=0,
            key=f"{place}-{digest.hex()[:12]}",
            prompt_ids=self._prompt_ids(context, sampling.max_tokens),
            text=context,
            sampling=replace(
                sampling,
                stop_token_ids=self._model.eos_token_ids,
                # By text, not by place: every arm, and a resumed one, draws the same noise.
                seed=(self._seed + int.from_bytes(digest[:7], "big")) & 0x7FFF_FFFF_FFFF_FFFF,
            ),
            stop=tuple(handle_stop_sequences(kwargs.get("until"), eos=None)),
        )

    def _prompt_ids(self, context: str, max_tokens: int) -> tuple[int, ...]:
        """The end of a prompt that is too long, as in lm-eval's `hf`: its beginning is few-shot examples. None if the
        engine may count differently than our tokenizer: it gets the whole text, and may refuse it."""
        room = self.max_length - max_tokens
        if room < 1:
            raise ValueError(f"max_gen_toks: {max_tokens} is not allowed; allowed: 1 to {self.max_length - 1}")
        if self._model.tokenizer is None:
            return ()
        ids = self.tok_encode(context)
        if not ids and self._capabilities.knows(Fact.TOKEN_IDS):
            ids = [self.prefix_token_id]
        if len(ids) > room:
            if not self._capabilities.knows(Fact.TOKEN_IDS):
                return ()
            self.num_cut += 1
            _log.warning("prompt of %d tokens cut to its last %d: raise max_model_len", len(ids), room)
        return tuple(ids[-room:])

    # -- log-likelihoods ---------------------------------------------------------------------------------------------

    def _loglikelihood_tokens(
        self, requests: list[tuple[tuple[str, str], list[int], list[int]]], disable_tqdm: bool = False, **kwargs: object
    ) -> list[tuple[float, bool]]:
        self._capabilities.require(Fact.SCORES, "a task of log-likelihoods")
        scores = []
        for pair, context, continuation in tqdm(requests, desc="specbench: loglikelihood", disable=disable_tqdm):
            scores.append(self._score(context, continuation))
            if pair is not None:
                self.cache_hook.add_partial("loglikelihood", pair, scores[-1])
        return scores

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


class _BarSink(NullSink):
    def __init__(self, bar: tqdm):
        self._bar = bar

    def request(self, row: RequestRow) -> None:
        self._bar.update()


def generate_texts(deployment: Deployment, requests: Sequence[PromptRequest], sink: RowSink) -> dict[str, str]:
    """Texts by the requests' keys, generated in one batch."""
    numbered = [replace(request, id=number) for number, request in enumerate(requests)]
    texts = deployment.generate(numbered, sink)
    return {request.key: text for request in numbered if (text := texts[request.id]) is not None}


def _digest(content: list[Json]) -> bytes:
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).digest()
