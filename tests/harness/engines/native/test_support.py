"""The support matrix is true: what it says yes to runs together and says what no-spec says; the rest is refused."""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path

import pytest
import torch
from toy.compare import assert_same_output
from toy.engines import generate, make_engine, named_strategy, request
from toy.fp8_checkpoints import FORMS, write_fp8
from toy.plans import CPU
from toy.prompts import text_prompt
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config, Qwen3MoeConfig

from specbench.harness.engines.native import support
from specbench.harness.engines.native.arms import resolve_arm, unasked
from specbench.harness.engines.native.models.loader import load_target
from specbench.harness.registry import ATTENTION_BACKENDS, STRATEGIES, strategy_class
from specbench.harness.spec import legality
from specbench.harness.spec.arm import parse_arm
from specbench.harness.spec.plans import PLANS

SIZES = dict(
    hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    head_dim=16, vocab_size=128, max_position_embeddings=128, pad_token_id=None, bos_token_id=None, eos_token_id=None,
)  # fmt: skip
EXPERTS = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=48)
CONFIGS = {
    "LlamaForCausalLM": LlamaConfig(**SIZES),
    "MistralForCausalLM": MistralConfig(**SIZES, sliding_window=None),
    "Qwen2ForCausalLM": Qwen2Config(**{k: v for k, v in SIZES.items() if k != "head_dim"}),
    "Qwen3ForCausalLM": Qwen3Config(**SIZES),
    "Qwen3MoeForCausalLM": Qwen3MoeConfig(**SIZES, **EXPERTS),
}
STORED = {
    "bf16, fp16, fp32": None,
    "FP8 per tensor": "fp8-tensor",
    "FP8 per channel": "compressed-channel",
    "FP8 128x128": "qwen-block",
}
# The rows of strategies and what drafts for them, on random weights.
DRAFTED = [
    ("no-spec", {}),
    ("ngram", dict(k=3, min_n=1)),
    ("draft-model", dict(k=2, draft="self:1")),
    ("draft-model", dict(k=2, draft="shape:toy")),
    ("parallel-eagle", dict(k=3, head="random")),
    *(("eagle", dict(k=3, head=head)) for head in ("random", "random-eagle1")),
    *(("naive-eagle", dict(k=1, head=head)) for head in ("random", "random-eagle1")),
    *(("eagle-topk", dict(topk=2, num_steps=2, num_draft_tokens=5, head=head)) for head in ("random", "random-eagle1")),
]


@pytest.fixture(scope="module", params=CONFIGS)
def checkpoints(request, tmp_path_factory) -> tuple[str, dict[str, Path]]:
    """Of an architecture, by form."""
    folder = tmp_path_factory.mktemp(request.param)
    model, generator = AutoModelForCausalLM.from_config(CONFIGS[request.param]), torch.Generator().manual_seed(1)
    for name, p in model.named_parameters():
        mean, std = (1.0 if "norm" in name else 0.0, 0.3) if p.dim() == 1 else (0.0, 1.5 / math.sqrt(p.shape[-1]))
        p.data.normal_(mean, std, generator=generator)
    model.save_pretrained(folder / "source")
    written = {form: write_fp8(folder / "source", folder / key, FORMS[key], ("mlp.gate",)) / "fp8"
               for form, key in STORED.items() if key}  # fmt: skip
    return request.param, {"bf16, fp16, fp32": folder / "source", **written}


def test_every_row_is_tried_here():
    listed = support.models()
    assert [name for name, forms in listed.items() if support.YES in forms.values()] == list(CONFIGS)
    read = {form for forms in listed.values() for form, said in forms.items() if said == support.YES}
    assert read == {*STORED, "GGUF"}  # of GGUF: tests/workloads/gguf
    assert {name for name, _ in DRAFTED} == set(STRATEGIES.built_in)


@torch.inference_mode()
def test_models_precisions_heads_and_strategies_go_together(checkpoints):
    name, folders = checkpoints
    for form, folder in folders.items():
        assert support.models()[name][form] == support.YES
        target = load_target(folder, torch.float32, torch.device("cpu"))
        assert target.arithmetic.startswith("fp8 e4m3") == (STORED[form] is not None)
        alone = {n: done.output_ids for n, done in generate(make_engine(CPU, target=target), fresh()).items()}
        for strategy, options in DRAFTED:
            drafted = generate(make_engine(CPU, named_strategy(strategy, **options), target=target), fresh())
            for n, done in drafted.items():
                assert_same_output(target, done.prompt_ids, done.sampling, done.output_ids, alone[n])


def fresh() -> list:
    return [request(n, text_prompt(n, 6 + n), max_tokens=8) for n in range(2)]


def offered(said: str) -> set[str]:
    """The plans that a cell names."""
    said = said.partition(";")[0]
    if found := re.fullmatch("all but (.*)", said):
        return set(PLANS) - set(found[1].split(", "))
    if found := re.fullmatch("graph=(.*) alone", said):
        return set(found[1].split(", "))
    return {"all plans": set(PLANS), "no": set()}[said]


@pytest.mark.parametrize("strategy", STRATEGIES.built_in)
def test_each_cell_names_the_plans_that_an_arm_may_ask_for(monkeypatch, strategy):
    monkeypatch.setattr(legality, "_has", lambda package: True)
    cells = support.backends(unasked(strategy_class(strategy).of({}), "cuda"))
    assert list(cells) == list(ATTENTION_BACKENDS.built_in)
    for backend, plan in itertools.product(cells, PLANS):
        drafter = ",attention_drafter=triton" * ("attention_drafter=triton" in cells[backend])
        arm = parse_arm(f"{strategy}:graph={plan},attention={backend}{drafter}")
        try:
            resolve_arm(arm, "cuda", synthetic_weights=True)
        except legality.Refused:
            assert plan not in offered(cells[backend])
        else:
            assert plan in offered(cells[backend])


def test_what_the_machine_lacks_is_no_part_of_it(monkeypatch):
    here = support.backends(support.DRAFTS["a chain"])
    monkeypatch.setattr(legality, "_has", lambda package: False)
    assert support.backends(support.DRAFTS["a chain"]) == here


def test_backends_of_drafts_are_those_of_the_strategies():
    """`specbench list` has a column for each kind of drafts, the documentation a row for each strategy."""
    by_kind = [support.backends(choices) for choices in support.DRAFTS.values()]
    rows = {name: support.backends(unasked(strategy_class(name).of({}), "cuda")) for name in STRATEGIES.built_in}
    assert all(row in by_kind for row in rows.values()) and all(kind in rows.values() for kind in by_kind)
