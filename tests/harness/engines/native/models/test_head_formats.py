"""Heads as vLLM, SGLang and speculators write them, heads of other aux layers, and heads by a hub name.

The layout of speculators is written here after the source of its version 0.9 (models/eagle3); heads that the package
itself saves: test_speculators_package.py.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from toy.checkpoints import eagle1_config, eagle3_config, llama_config, write_eagle1, write_eagle3
from toy.compare import assert_same_output, dense_pass
from toy.engines import generate, make_engine, named_strategy, request
from toy.plans import CPU_PLANS
from toy.prompts import text_prompt
from transformers import Qwen3Config
from transformers.models.qwen3.modeling_qwen3 import Qwen3DecoderLayer, Qwen3RotaryEmbedding

from specbench.harness.engines.native.models.eagle1 import Eagle1Head
from specbench.harness.engines.native.models.forward import ForwardBatch, KVCache, run_pieces
from specbench.harness.engines.native.models.heads import check_head_files, load_head, make_head
from specbench.harness.engines.native.models.rope import rope_table
from specbench.harness.training.check import check_head
from specbench.harness.training.frozen_target import DenseAttention
from specbench.kernels.attention.torch_attention import TorchAttention
from specbench.workloads.assets import resolve as resolving
from specbench.workloads.assets.cache import AssetError

OWN = ("draft_vocab_size", "norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")


def speculators_config(kind: str = "llama", **own) -> dict:
    layer = eagle3_config(model_type=kind)
    layer = {key: value for key, value in layer.items() if key not in ("architectures", "draft_vocab_size")}
    return {
        "architectures": ["Eagle3DraftModel"], "auto_map": {"": "eagle3.Eagle3SpeculatorConfig"},
        "draft_vocab_size": 48, "eagle_aux_hidden_state_layer_ids": None, "embed_requires_grad": False,
        "fc_norm": False, "has_no_defaults_at_init": False, "norm_before_fc": False, "norm_before_residual": False,
        "norm_output": False, "speculators_config": {"algorithm": "eagle3", "default_proposal_method": "greedy"},
        "speculators_model_type": "eagle3", "speculators_version": "0.9.0", "target_hidden_size": None,
        "transformer_layer_config": layer, "torch_dtype": "float32", "transformers_version": "5.5.0", **own,
    }  # fmt: skip


def write_speculators(folder: Path, raw: dict, target_config: dict | None = None) -> dict[str, torch.Tensor]:
    """The tensors that `eagle3_config` calls for, under the names of speculators, with embedding and q/k norms."""
    own = {key: raw[key] for key in OWN}
    qwen3 = raw["transformer_layer_config"]["model_type"] == "qwen3"

    def change(tensors: dict[str, torch.Tensor]) -> None:
        for name in [name for name in tensors if name.startswith("midlayer.")]:
            tensors[f"layers.0.{name.removeprefix('midlayer.')}"] = tensors.pop(name)
        generator = torch.Generator().manual_seed(8)
        tensors["embed_tokens.weight"] = torch.randn(128, 64, generator=generator)
        for name in "qk" if qwen3 else "":
            tensors[f"layers.0.self_attn.{name}_norm.weight"] = 1 + torch.randn(32, generator=generator) / 3

    tensors = write_eagle3(folder, eagle3_config(**own), target_config or llama_config(), change=change)
    (folder / "config.json").write_text(json.dumps(raw))
    return tensors


def outputs(head, ids_T, features_TF):
    """The layer's output of a whole sequence."""
    table = rope_table(head.config, len(ids_T), torch.device("cpu"))
    attend = DenseAttention(head.config, table, [head.weights.head_norm_2D], 1)
    return run_pieces(head.pieces(ids_T, head.project(features_TF)), attend)


@pytest.mark.parametrize("option", [None, "norm_before_residual", "norm_before_fc", "fc_norm", "norm_output"])
def test_speculators_and_the_published_format_are_one_head(target, tmp_path, option):
    own = {option: True} if option else {}
    tensors = write_speculators(tmp_path / "a", speculators_config(**own))

    def same(other: dict[str, torch.Tensor]) -> None:
        other["embed_tokens.weight"] = tensors["embed_tokens.weight"]

    write_eagle3(tmp_path / "b", eagle3_config(**own), llama_config(), change=same)
    ids_T, features_TF = torch.arange(9), torch.randn(9, 192, generator=torch.Generator().manual_seed(1))
    a, b = (load_head(tmp_path / folder, target) for folder in "ab")
    assert torch.equal(outputs(a, ids_T, features_TF), outputs(b, ids_T, features_TF))
    assert a.options == b.options and torch.equal(a.d2t, b.d2t)


def test_a_layer_of_qwen3_is_transformers(target, tmp_path):
    """speculators' first layer: transformers' own, with projections over [embedding, hidden] and a norm for each."""
    tensors = write_speculators(tmp_path, speculators_config("qwen3"))
    raw = speculators_config("qwen3")["transformer_layer_config"]
    config = Qwen3Config(**{k: v for k, v in raw.items() if k != "rope_theta"}, rope_parameters={
        "rope_type": "default", "rope_theta": raw["rope_theta"]})  # fmt: skip
    config._attn_implementation = "eager"
    layer, prefix = Qwen3DecoderLayer(config, 0), "layers.0."
    weights = {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
    embed_norm, hidden_norm = weights.pop("input_layernorm.weight"), weights.pop("hidden_norm.weight")
    attention = layer.self_attn
    for name in ("q_proj", "k_proj", "v_proj"):
        weight = weights[f"self_attn.{name}.weight"]
        setattr(attention, name, torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False))
    layer.load_state_dict({**weights, "input_layernorm.weight": embed_norm})
    ids_T, features_TF = torch.arange(9), torch.randn(9, 192, generator=torch.Generator().manual_seed(1))
    hidden = features_TF @ tensors["fc.weight"].T
    embed = F.embedding(ids_T, tensors["embed_tokens.weight"])
    x = torch.cat([F.rms_norm(embed, (64,), embed_norm, 1e-5), F.rms_norm(hidden, (64,), hidden_norm, 1e-5)], -1)
    cos_sin = Qwen3RotaryEmbedding(config)(x, ids_T.unsqueeze(0))
    mask = torch.full((9, 9), float("-inf")).triu(1).view(1, 1, 9, 9)
    hidden = hidden + attention(x.unsqueeze(0), position_embeddings=cos_sin, attention_mask=mask)[0][0]
    wanted = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
    torch.testing.assert_close(outputs(load_head(tmp_path, target), ids_T, features_TF), wanted, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("layers", [[1, 4, 5], [0, 6], [3], [0, 1, 2, 3, 6]], ids=str)
def test_heads_of_other_aux_layers_get_their_states(target, tmp_path, layers):
    chosen = target.with_aux_layers(tuple(layers))
    hidden = len(layers) * 64
    batch_ids = list(text_prompt(2, 30))
    every = [_entering(target, batch_ids, layer) for layer in layers]
    assert torch.equal(_features(chosen, batch_ids, hidden), torch.cat(every, -1))

    def wider(tensors: dict[str, torch.Tensor]) -> None:
        tensors["fc.weight"] = torch.randn(64, hidden, generator=torch.Generator().manual_seed(2)) / hidden**0.5

    write_eagle3(tmp_path, eagle3_config(eagle_aux_hidden_state_layer_ids=layers), llama_config(), change=wider)
    strategy = named_strategy("eagle", k=3, head=str(tmp_path))
    drafted = generate(make_engine(CPU_PLANS[0], strategy, target=target), _requests())
    alone = generate(make_engine(CPU_PLANS[0], target=target), _requests())
    for number, done in drafted.items():
        assert_same_output(target, done.prompt_ids, done.sampling, done.output_ids, alone[number].output_ids)


def _requests() -> list:
    return [request(i, text_prompt(i, 10), max_tokens=12) for i in range(2)]


def _features(target, ids, size):
    c = target.config
    shape = (1, len(ids), c.num_kv_heads, c.head_dim)
    caches = [KVCache(torch.zeros(shape), torch.zeros(shape)) for _ in target.layers]
    out = torch.empty(len(ids), size)
    batch = ForwardBatch.of_one_request(ids, 0, torch.device("cpu"))
    hidden = target.forward(batch, target.attention(TorchAttention(), len(ids)), caches, out)
    if target.aux_layers[-1] == c.num_layers:  # the last state before its norm
        torch.testing.assert_close(F.rms_norm(out[:, -64:], (64,), target.norm_H, c.rms_norm_eps), hidden)
    return out


def _entering(target, ids, layer):
    """The state entering a layer, alone."""
    return _features(target.with_aux_layers((layer,)), ids, 64)


@pytest.mark.parametrize(("kind", "names"), [
    ("eagle3", ["LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM", "LlamaForCausalLM"]),
    ("eagle1", ["LlamaForCausalLMEagle", "EagleLlamaForCausalLM", "LlamaForCausalLM"]),
])  # fmt: skip
def test_every_name_of_a_head_is_read_and_checked(target, tmp_path, kind, names):
    for name in names:
        folder = tmp_path / name
        if kind == "eagle3":
            write_eagle3(folder, eagle3_config(architectures=[name]), llama_config())
        else:
            write_eagle1(folder, eagle1_config(architectures=[name]))
        assert isinstance(load_head(folder, target), Eagle1Head) == (kind == "eagle1")
    report = check_head(folder, target, [tuple(text_prompt(1, 8))], (), max_tokens=6, k=2)
    assert report.tensors and bool(report.agreement) == (kind == "eagle3") and report.acceptance is not None


def _layer(**changes) -> dict:
    return {"transformer_layer_config": {**speculators_config()["transformer_layer_config"], **changes}}


REFUSED = [
    ({"speculators_model_type": "dflash"}, "speculators_model_type 'dflash' is not supported; allowed: eagle3"),
    ({"speculators_model_type": None}, "speculators_model_type is missing"),
    ({"transformer_layer_config": None}, "transformer_layer_config is missing"),
    ({"norm_before_residual": None}, "norm_before_residual is missing"),
    ({"architectures": ["DFlashDraftModel"]}, 'architecture ["DFlashDraftModel"] is not supported; allowed with'),
    ({"mask_token_id": 5}, "key 'mask_token_id' with 5 is not known"),
    ({"eagle_aux_hidden_state_layer_ids": [1, 2, 9]}, "the target has 6 layers"),
    ({"eagle_aux_hidden_state_layer_ids": [1, 2]}, "fc.weight in"),
    (_layer(num_hidden_layers=2), "num_hidden_layers 2 is not supported; allowed: 1"),
    (_layer(model_type="gemma"), "model_type 'gemma' is not supported; allowed: llama, qwen3"),
    (_layer(quirk=2), "transformer_layer_config: key 'quirk' with 2 is not known"),
    (_layer(model_type="qwen3"), "has no tensor 'layers.0.self_attn.q_norm.weight'"),
]


@pytest.mark.parametrize(("change", "words"), REFUSED, ids=[words[:40] for _, words in REFUSED])
def test_odd_heads_of_speculators_are_refused_by_name(target, tmp_path, change, words):
    write_speculators(tmp_path, speculators_config())
    (tmp_path / "config.json").write_text(json.dumps(speculators_config(**change)))
    with pytest.raises(ValueError, match=re.escape(words)):
        load_head(tmp_path, target)


def test_a_head_by_its_hub_name(target, tmp_path, monkeypatch):
    write_eagle3(tmp_path / "head", eagle3_config(), llama_config())
    found = resolving.from_path(tmp_path / "head")
    monkeypatch.setattr(resolving, "resolve", lambda name, progress=None: {"org/head": found}[name])
    check_head_files("org/head", "eagle")
    head = make_head("org/head", target, "eagle")
    assert dense_pass(target, [1, 2])[0].shape == (2, 128) and head.config.head_dim == 32
    (tmp_path / "head" / "config.json").write_text(json.dumps(eagle3_config(quirk=1)))
    with pytest.raises(ValueError, match="key 'quirk' with 1 is not known"):
        check_head_files("org/head", "eagle")


def test_a_hub_name_that_nobody_knows(monkeypatch):
    def fail(name, progress=None):
        raise AssetError(f"{name}: not found; tried: the hub")

    monkeypatch.setattr(resolving, "resolve", fail)
    with pytest.raises(ValueError, match="eagle: org/head: not found; tried: the hub"):
        check_head_files("org/head", "eagle")
