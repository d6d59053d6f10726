"""Conformance 62, 63: logits, features and decoded text equal transformers' for every architecture the engine loads.

fp32 with TF32 off (torch's default for matrix products). Checkpoints are written by transformers itself, random in
every tensor: norms and biases too, which it would initialise to ones and zeros.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from toy.compare import assert_same_output, dense_pass
from toy.engines import generate, make_engine, named_strategy, request
from toy.plans import Plan
from toy.prompts import text_prompt
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from specbench.harness.engines.native.models.config import config_from_dict, read_config
from specbench.harness.engines.native.models.loader import load_target

SIZES = dict(
    hidden_size=64, intermediate_size=160, num_attention_heads=4, num_key_value_heads=2, vocab_size=128,
    max_position_embeddings=512, pad_token_id=None, bos_token_id=None, eos_token_id=None,
)  # fmt: skip
LLAMA3_ROPE = dict(
    rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
    original_max_position_embeddings=64,
)  # fmt: skip
YARN_ROPE = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=128)
QWEN3 = dict(SIZES, head_dim=32, num_key_value_heads=1)  # heads are wider than hidden_size / num_attention_heads
MODELS = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(num_hidden_layers=8, **SIZES)),
    "llama3-rope": lambda: LlamaForCausalLM(LlamaConfig(num_hidden_layers=5, rope_parameters=LLAMA3_ROPE, **SIZES)),
    "llama-tied": lambda: LlamaForCausalLM(LlamaConfig(num_hidden_layers=3, tie_word_embeddings=True, **SIZES)),
    "llama-wide-heads": lambda: LlamaForCausalLM(LlamaConfig(num_hidden_layers=2, head_dim=32, **SIZES)),
    "llama-attention-bias": lambda: LlamaForCausalLM(LlamaConfig(num_hidden_layers=2, attention_bias=True, **SIZES)),
    "qwen2": lambda: Qwen2ForCausalLM(
        Qwen2Config(num_hidden_layers=6, rope_parameters=dict(rope_type="default", rope_theta=1e6), **SIZES)
    ),
    "qwen2-tied": lambda: Qwen2ForCausalLM(Qwen2Config(num_hidden_layers=2, tie_word_embeddings=True, **SIZES)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(num_hidden_layers=7, **QWEN3)),
    "qwen3-tied": lambda: Qwen3ForCausalLM(Qwen3Config(num_hidden_layers=2, tie_word_embeddings=True, **QWEN3)),
    "qwen3-attention-bias": lambda: Qwen3ForCausalLM(Qwen3Config(num_hidden_layers=2, attention_bias=True, **QWEN3)),
    "qwen3-yarn": lambda: Qwen3ForCausalLM(Qwen3Config(num_hidden_layers=3, rope_parameters=YARN_ROPE, **QWEN3)),
    "mistral": lambda: MistralForCausalLM(MistralConfig(num_hidden_layers=5, sliding_window=None, **SIZES)),
    "mistral-yarn": lambda: MistralForCausalLM(
        MistralConfig(
            num_hidden_layers=2, sliding_window=None, rope_parameters=YARN_ROPE | dict(truncate=False), **SIZES
        )
    ),
}


def _randomise(model: torch.nn.Module) -> None:
    generator = torch.Generator().manual_seed(1)
    for name, p in model.named_parameters():
        if p.dim() == 1:
            p.data.normal_(1.0 if "norm" in name else 0.0, 0.3, generator=generator)
        else:
            p.data.normal_(0.0, 1.5 / math.sqrt(p.shape[-1]), generator=generator)


@pytest.fixture(scope="module", params=MODELS)
def folder(request, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    model = MODELS[request.param]()
    _randomise(model)
    model.save_pretrained(folder)
    return folder


def _their_model(folder: Path, dtype: torch.dtype = torch.float32) -> torch.nn.Module:
    return AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, attn_implementation="eager", trust_remote_code=False
    ).eval()


def _states(model: torch.nn.Module, ids: list[int]) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
    out = model(torch.tensor([ids]), output_hidden_states=True)
    return out.logits[0], out.hidden_states


def _theirs(folder: Path, ids: list[int]) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
    return _states(_their_model(folder), ids)


IDS = list(text_prompt(5, 150))


@pytest.mark.parametrize(
    "chunks", [[150], [149, 1], [100, 1, 1, 5, 1, 42], [1] * 20 + [130]], ids=["whole", "last", "some", "ones"]
)
def test_c63_logits_equal_transformers(folder, chunks):
    """In one pass, and decoding row by row (or in verify-sized chunks) after a prefill."""
    ours, _ = dense_pass(load_target(folder, torch.float32, torch.device("cpu")), IDS, chunks)
    theirs, _ = _theirs(folder, IDS)
    torch.testing.assert_close(ours, theirs, atol=2e-4, rtol=1e-4)


def test_c62_features_are_the_states_entering_the_aux_layers(folder):
    target = load_target(folder, torch.float32, torch.device("cpu"))
    _, ours = dense_pass(target, IDS, features=True)
    _, states = _theirs(folder, IDS)
    num_layers = target.config.num_layers
    wanted = (2, num_layers // 2, num_layers - 3) if num_layers >= 5 else target.config.aux_layers
    assert target.config.aux_layers == wanted
    torch.testing.assert_close(ours, _joined(states, wanted), atol=1e-4, rtol=1e-4)
    # The neighbouring states are something else entirely: an off-by-one cannot pass.
    assert (ours - _joined(states, tuple(i + 1 for i in wanted))).abs().max() > 0.1


def test_c62_c63_in_bfloat16_no_further_from_fp32_than_transformers(folder):
    """Of the same rounded weights, multiplied in fp32: one more or one less rounding is all that may differ."""
    rounded = _their_model(folder, torch.bfloat16)
    theirs, their_states = _states(rounded, IDS)
    exact, exact_states = _states(rounded.float(), IDS)
    target = load_target(folder, torch.bfloat16, torch.device("cpu"))
    ours, our_features = dense_pass(target, IDS, features=True)
    layers = target.config.aux_layers
    for mine, other, true in (
        (ours, theirs, exact),
        (our_features, _joined(their_states, layers), _joined(exact_states, layers)),
    ):
        error, allowed = ((x.float() - true).square().mean().sqrt() for x in (mine, other))
        assert error < 1.25 * allowed, (error, allowed)


def _joined(states: tuple[torch.Tensor, ...], layers: tuple[int, ...]) -> torch.Tensor:
    return torch.cat([states[i][0] for i in layers], -1)


STRATEGIES = {
    "no-spec": {},
    "ngram": dict(k=3, min_n=1),
    "eagle": dict(k=3, head="random"),
    "naive-eagle": dict(k=2, head="random-eagle1"),
    "eagle-topk": dict(topk=2, num_steps=2, num_draft_tokens=5, head="random"),
    "draft-model": dict(k=2, draft="self:1"),
}


@pytest.fixture(scope="module")
def texts(folder) -> dict[int, list[int]]:
    """Prompt and what transformers say after it."""
    model, said = _their_model(folder), {}
    for number in range(3):
        ids = torch.tensor([text_prompt(number, 10 + 30 * number)])
        said[number] = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=20, do_sample=False)
    return {number: ids[0].tolist() for number, ids in said.items()}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_c63_the_engine_says_what_transformers_generate(folder, texts, main_plan: Plan, strategy):
    target = load_target(folder, torch.float32, main_plan.torch_device)
    engine = make_engine(main_plan, named_strategy(strategy, **STRATEGIES[strategy]), target=target, page_size=16)
    requests = [request(i, text_prompt(i, 10 + 30 * i), max_tokens=20) for i in range(3)]
    for number, done in generate(engine, requests).items():
        wanted = texts[number][len(done.prompt_ids) :]
        assert_same_output(target, done.prompt_ids, done.sampling, done.output_ids, wanted, f"request {number}")


@pytest.mark.gpu
def test_c63_on_a_gpu_logits_equal_the_cpus(folder):
    assert not torch.backends.cuda.matmul.allow_tf32
    cpu, cuda = (dense_pass(load_target(folder, torch.float32, torch.device(d)), IDS)[0].cpu() for d in ("cpu", "cuda"))
    torch.testing.assert_close(cuda, cpu, atol=2e-4, rtol=1e-4)


# -- config.json -------------------------------------------------------------------------------------------------------


def test_both_spellings_of_rope_are_read(folder):
    config, raw = read_config(folder)
    params = raw.pop("rope_parameters")
    raw["rope_theta"] = params["rope_theta"]
    if params["rope_type"] != "default":
        raw["rope_scaling"] = {k: v for k, v in params.items() if k != "rope_theta"}
    assert config_from_dict(raw, folder) == config


def _raw(**changes) -> dict:
    raw = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, vocab_size=5)
    return raw | changes


def test_config_defaults_and_refusals(tmp_path):
    config = config_from_dict(_raw(), tmp_path)
    assert (config.num_kv_heads, config.head_dim, config.rope_theta, config.tie_word_embeddings) == (
        2,
        4,
        10000.0,
        False,
    )
    with pytest.raises(ValueError, match="'GPT2LMHeadModel' is not supported; allowed: LlamaForCausalLM"):
        config_from_dict(_raw(architectures=["GPT2LMHeadModel"]), tmp_path)
    with pytest.raises(ValueError, match="'linear' is not supported; allowed: default, llama3, yarn"):
        config_from_dict(_raw(rope_scaling={"rope_type": "linear", "factor": 4.0}), tmp_path)
    with pytest.raises(ValueError, match="mlp_bias true is not supported"):
        config_from_dict(_raw(mlp_bias=True), tmp_path)
    with pytest.raises(ValueError, match="has no config.json"):
        read_config(tmp_path)


def test_checkpoints_that_do_not_fit_are_named(folder, tmp_path):
    device = torch.device("cpu")
    config = json.loads((folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="neither .*safetensors nor"):
        load_target(tmp_path, torch.float32, device)
    (tmp_path / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    (tmp_path / "config.json").write_text(json.dumps({**config, "intermediate_size": 100}))
    with pytest.raises(ValueError, match="mlp.gate_proj.weight in .* has shape .* the config needs"):
        load_target(tmp_path, torch.float32, device)
    (tmp_path / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 9}))
    with pytest.raises(ValueError, match="has no tensor 'model.layers"):
        load_target(tmp_path, torch.float32, device)
    (tmp_path / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:1000])
    with pytest.raises(ValueError, match="not a complete safetensors file"):
        load_target(tmp_path, torch.float32, device)
