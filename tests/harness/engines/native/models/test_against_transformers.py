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
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

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


def _theirs(folder: Path, ids: list[int]) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", trust_remote_code=False
    ).eval()
    out = model(torch.tensor([ids]), output_hidden_states=True)
    return out.logits[0], out.hidden_states


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
    theirs = torch.cat([states[i][0] for i in wanted], -1)
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)
    # The neighbouring states are something else entirely: an off-by-one cannot pass.
    assert (ours - torch.cat([states[i + 1][0] for i in wanted], -1)).abs().max() > 0.1


@pytest.mark.parametrize("strategy", ["no-spec", "ngram", "eagle"])
def test_c63_the_engine_says_what_transformers_generate(folder, main_plan: Plan, strategy):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, trust_remote_code=False).eval()
    target = load_target(folder, torch.float32, main_plan.torch_device)
    options = {"no-spec": {}, "ngram": dict(k=3, min_n=1), "eagle": dict(k=3, head="random")}[strategy]
    engine = make_engine(main_plan, named_strategy(strategy, **options), target=target, page_size=16)
    requests = [request(i, text_prompt(i, 10 + 30 * i), max_tokens=20) for i in range(3)]
    for number, done in generate(engine, requests).items():
        ids = torch.tensor([done.prompt_ids])
        theirs = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=20, do_sample=False)
        wanted = theirs[0, len(done.prompt_ids) :].tolist()
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
    with pytest.raises(ValueError, match="'yarn' is not supported; allowed: default, llama3"):
        config_from_dict(_raw(rope_scaling={"rope_type": "yarn", "factor": 4.0}), tmp_path)
    with pytest.raises(ValueError, match="mlp_bias true is not supported"):
        config_from_dict(_raw(mlp_bias=True), tmp_path)
    with pytest.raises(ValueError, match="has no config.json"):
        read_config(tmp_path)


def test_eos_ids_of_both_files(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(_raw(eos_token_id=2)))
    assert read_config(tmp_path)[0].eos_token_ids == (2,)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [4, 2]}))
    assert read_config(tmp_path)[0].eos_token_ids == (4, 2)


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
