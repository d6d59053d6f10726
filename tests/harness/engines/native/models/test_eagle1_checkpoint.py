"""Conformance 60: EAGLE-1 heads in the published format come back from disk as written, or are refused by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from toy.checkpoints import (
    eagle1_config,
    eagle3_config,
    llama_config,
    write_eagle1,
    write_eagle3,
)

from specbench.harness.engines.native.models.eagle1 import Eagle1Head
from specbench.harness.engines.native.models.eagle1_loader import load_eagle1
from specbench.harness.engines.native.models.eagle3 import Eagle3Head
from specbench.harness.engines.native.models.features import Features
from specbench.harness.engines.native.models.forward import run_pieces
from specbench.harness.engines.native.models.heads import load_head, make_head

TARGET = llama_config()


def _config_without_bias_key(**changes) -> dict:
    config = eagle1_config(**changes)
    del config["bias"]
    return config


def _fingerprint(head: Eagle1Head) -> torch.Tensor:
    """What the head makes of fixed states and ids, with attention taken as zero."""
    pieces = head.pieces(torch.arange(3), torch.linspace(-1, 1, 3 * 64).view(3, 64))
    _, qkv_TX = next(pieces)
    with pytest.raises(StopIteration) as end:
        pieces.send(torch.zeros(3, 64))
    return torch.cat([qkv_TX.flatten(), end.value.value.flatten()])


@pytest.mark.parametrize("is_biased", [False, True])
def test_tensors_on_disk_are_those_in_use(target, tmp_path, is_biased):
    tensors = write_eagle1(tmp_path, _config_without_bias_key() if is_biased else eagle1_config())
    head = load_eagle1(tmp_path, target)
    w = head.weights
    assert ("fc.bias" in tensors) == is_biased
    assert head.config.num_layers == 1 and head.config.num_q_heads == 2 and head.config.rope_theta == 500.0
    assert w.embed_VH is target.embed_VH and w.lm_head is target.lm_head and head.d2t is None
    assert head.features is Features.FINAL
    assert torch.equal(w.post_norm_H, tensors["layers.0.post_attention_layernorm.weight"])
    x_T2H = torch.randn(3, 128)
    expected = x_T2H @ tensors["fc.weight"].T + (tensors["fc.bias"] if is_biased else 0)
    torch.testing.assert_close(w.fc(x_T2H), expected, atol=1e-5, rtol=1e-5)
    states_TH = torch.randn(2, 64)
    assert head.project(states_TH) is states_TH
    logits, state = head.logits_and_state(states_TH)
    assert state is states_TH and torch.equal(logits, target.logits(states_TH))


def test_the_embedding_comes_first_and_nothing_is_normed_before_attention(target, tmp_path):
    tensors = write_eagle1(tmp_path, eagle1_config())
    head = load_eagle1(tmp_path, target)
    ids, hidden_TH = torch.tensor([3, 9]), torch.randn(2, 64)
    before = hidden_TH.clone()
    _, qkv_TX = next(head.pieces(ids, hidden_TH))
    x_TH = torch.cat([target.embed_VH[ids], hidden_TH], -1) @ tensors["fc.weight"].T
    expected = torch.cat([x_TH @ tensors[f"layers.0.self_attn.{n}_proj.weight"].T for n in "qkv"], -1)
    torch.testing.assert_close(qkv_TX, expected, atol=1e-5, rtol=1e-5)
    assert torch.equal(hidden_TH, before), "the target's own states must not be overwritten"


def test_older_files_load_alike(target, tmp_path):
    tensors = write_eagle1(tmp_path / "a", _config_without_bias_key())
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "config.json").write_text(json.dumps(_config_without_bias_key()))
    torch.save(tensors, tmp_path / "b" / "pytorch_model.bin")
    a, b = (load_head(tmp_path / folder, target) for folder in "ab")
    assert isinstance(a, Eagle1Head) and isinstance(b, Eagle1Head) and torch.equal(_fingerprint(a), _fingerprint(b))


def test_the_two_formats_are_told_apart_by_their_tensors(target, tmp_path):
    write_eagle1(tmp_path / "one", eagle1_config())
    three = write_eagle3(tmp_path / "three", {**eagle3_config(), "architectures": ["LlamaForCausalLM"]}, TARGET)
    assert isinstance(load_head(tmp_path / "one", target), Eagle1Head)
    assert isinstance(load_head(tmp_path / "three", target), Eagle3Head)
    (tmp_path / "renamed").mkdir()
    (tmp_path / "renamed" / "config.json").write_text(json.dumps(eagle3_config()))
    renamed = {name.replace("midlayer.", "layers.0."): tensor for name, tensor in three.items()}
    save_file(renamed, tmp_path / "renamed" / "model.safetensors")
    assert isinstance(load_head(tmp_path / "renamed", target), Eagle3Head)


def test_biases_of_qwen2_heads_are_used(target, tmp_path):
    def add_biases(tensors):
        for name in "qkv":
            rows = tensors[f"layers.0.self_attn.{name}_proj.weight"].shape[0]
            tensors[f"layers.0.self_attn.{name}_proj.bias"] = torch.full((rows,), 0.5)

    write_eagle1(tmp_path / "a", eagle1_config())
    write_eagle1(tmp_path / "b", eagle1_config(), change=add_biases)
    x_TH = torch.randn(2, 64)
    plain, biased = (load_eagle1(tmp_path / folder, target).weights.qkv(x_TH) for folder in "ab")
    torch.testing.assert_close(biased, plain + 0.5)


def test_a_reduced_vocabulary_brings_its_own_rows_and_map(target, tmp_path):
    tensors = write_eagle1(tmp_path, eagle1_config(draft_vocab_size=48))
    head = load_eagle1(tmp_path, target)
    states_TH = torch.randn(2, 64)
    assert head.d2t is not None and torch.equal(head.d2t, tensors["d2t"])
    torch.testing.assert_close(
        head.logits_and_state(states_TH)[0], states_TH @ tensors["lm_head.weight"].T, atol=1e-5, rtol=1e-5
    )


def _without(name: str):
    return lambda tensors: tensors.pop(name)


def _with(name: str, *shape: int):
    return lambda tensors: tensors.update({name: torch.zeros(*shape)})


BAD = {
    "hidden": (eagle1_config(hidden_size=32), None, "hidden_size 32, the target has 64"),
    "vocab": (eagle1_config(vocab_size=200), None, "vocab_size 200, the target has 128"),
    "no-fc": (eagle1_config(), _without("fc.weight"), "has no tensor fc.weight"),
    "fc-shape": (eagle1_config(), _with("fc.weight", 64, 64), r"fc.weight in .* has shape \(64, 64\)"),
    "no-bias": (_config_without_bias_key(), _without("fc.bias"), "bias true .* fc.bias is missing; set bias to false"),
    "a-bias": (eagle1_config(), _with("fc.bias", 64), "bias false .* fc.bias is there; set bias to true"),
    "norm": (eagle1_config(), _with("layers.0.input_layernorm.weight", 64), "input_layernorm"),
    "no-d2t": (eagle1_config(draft_vocab_size=48), _without("d2t"), "draft_vocab_size 48 < vocab_size 128 but no"),
    "no-rows": (eagle1_config(draft_vocab_size=48), _without("lm_head.weight"), "no tensor 'lm_head.weight'"),
    "no-o": (eagle1_config(), _without("layers.0.self_attn.o_proj.weight"), "o_proj.weight"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_heads_that_do_not_fit_are_refused_by_name(target, tmp_path: Path, case):
    config, change, message = BAD[case]
    write_eagle1(tmp_path, config, change=change)
    with pytest.raises(ValueError, match=message) as refusal:
        load_eagle1(tmp_path, target)
    assert str(tmp_path) in str(refusal.value)


def test_random_heads_of_both_kinds(target):
    one = make_head("random-eagle1", target, "eagle")
    assert isinstance(one, Eagle1Head) and one.config.hidden_size == 64 and one.d2t is None
    assert isinstance(make_head("random", target, "eagle"), Eagle3Head)
    assert torch.equal(_fingerprint(one), _fingerprint(make_head("random-eagle1", target, "eagle")))


@pytest.mark.parametrize("name", ["random", "random-eagle1"])
def test_wanted_rows_are_those_rows_of_the_whole(target, name):
    """In any order and more than once. Attention gets every row, because every row leaves a key and a value."""
    head = make_head(name, target, "eagle")
    ids_T, hidden_TH, wanted_R = torch.arange(6), torch.randn(6, 64), torch.tensor([4, 1, 4])
    attended = []

    def attend(layer, qkv_TX):
        attended.append(qkv_TX.clone())
        return qkv_TX[:, :64] * 3

    whole_TH = run_pieces(head.pieces(ids_T, hidden_TH.clone()), attend)
    wanted_RH = run_pieces(head.pieces(ids_T, hidden_TH.clone(), wanted_R), attend)
    assert torch.equal(*attended) and len(attended[0]) == 6
    torch.testing.assert_close(wanted_RH, whole_TH[wanted_R], atol=1e-5, rtol=1e-5)
    assert not torch.allclose(whole_TH[4], whole_TH[1])
