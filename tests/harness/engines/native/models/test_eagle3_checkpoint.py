"""Conformance 61: EAGLE-3 heads in the published format come back from disk as written, or are refused by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from toy.checkpoints import eagle3_config, llama_config, write_eagle3

from specbench.harness.engines.native.models.eagle3 import Eagle3Head
from specbench.harness.engines.native.models.eagle3_loader import load_eagle3
from specbench.harness.engines.native.models.heads import make_head

TARGET = llama_config()


def _state(head: Eagle3Head) -> torch.Tensor:
    """What the head makes of fixed features and ids: a fingerprint of all its tensors but the attention's."""
    features = torch.linspace(-1, 1, 3 * 192).view(3, 192)
    logits, state = head.logits_and_state(head.project(features))
    return torch.cat([logits.flatten(), state.flatten(), head.weights.embed_VH[:4].flatten()])


def test_tensors_on_disk_are_those_in_use(target, tmp_path):
    tensors = write_eagle3(tmp_path, eagle3_config(), TARGET)
    head = load_eagle3(tmp_path, target)
    w = head.weights
    assert head.config.num_layers == 1 and head.config.num_q_heads == 2 and head.config.rope_theta == 500.0
    assert torch.equal(w.d2t_Vd, tensors["d2t"]) and w.d2t_Vd.dtype == torch.int64
    assert w.embed_VH is target.embed_VH, "an absent embedding is the target's"
    assert torch.equal(w.embed_norm_H, tensors["midlayer.input_layernorm.weight"])
    assert torch.equal(w.hidden_norm_H, tensors["midlayer.hidden_norm.weight"])
    assert torch.equal(w.norm_H, tensors["norm.weight"]) and w.fc_norms == ()
    x = torch.randn(2, 128)
    qkv = torch.cat([x @ tensors[f"midlayer.self_attn.{n}_proj.weight"].T for n in "qkv"], -1)
    torch.testing.assert_close(w.qkv(x), qkv, atol=1e-5, rtol=1e-5)


def test_layer_name_of_converters_and_older_files_load_alike(target, tmp_path):
    tensors = write_eagle3(tmp_path / "a", eagle3_config(), TARGET)
    renamed = {name.replace("midlayer.", "layers.0."): t for name, t in tensors.items()}
    for folder in ("b", "c"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "config.json").write_text(json.dumps(eagle3_config()))
    save_file(renamed, tmp_path / "b" / "model.safetensors")
    torch.save(tensors, tmp_path / "c" / "pytorch_model.bin")
    a, b, c = (_state(load_eagle3(tmp_path / folder, target)) for folder in "abc")
    assert torch.equal(a, b) and torch.equal(a, c)


def test_t2d_is_not_needed_and_a_whole_vocabulary_has_no_map(target, tmp_path):
    write_eagle3(tmp_path / "a", eagle3_config(), TARGET)
    write_eagle3(tmp_path / "b", eagle3_config(), TARGET, change=lambda tensors: tensors.pop("t2d"))
    assert torch.equal(_state(load_eagle3(tmp_path / "a", target)), _state(load_eagle3(tmp_path / "b", target)))
    write_eagle3(tmp_path / "c", eagle3_config(draft_vocab_size=None), TARGET)
    assert load_eagle3(tmp_path / "c", target).d2t is None
    write_eagle3(tmp_path / "d", eagle3_config(draft_vocab_size=None), TARGET, change=lambda t: t.pop("lm_head.weight"))
    assert load_eagle3(tmp_path / "d", target).weights.lm_head is target.lm_head


def test_own_embedding_and_other_width(target, tmp_path):
    tensors = write_eagle3(tmp_path, eagle3_config(hidden_size=48, target_hidden_size=64), TARGET)
    head = load_eagle3(tmp_path, target)
    assert torch.equal(head.weights.embed_VH, tensors["embed_tokens.weight"])
    assert head.project(torch.randn(2, 192)).shape == (2, 48) and head.feature_size == 192


@pytest.mark.parametrize("norm", ["fc_norm", "norm_before_fc"])
def test_norms_before_fc_are_applied_per_chunk_or_over_all(target, tmp_path, norm):
    tensors = write_eagle3(tmp_path, eagle3_config(**{norm: True}), TARGET)
    head = load_eagle3(tmp_path, target)
    features = torch.randn(5, 192)

    def rms(x: torch.Tensor) -> torch.Tensor:
        return x / (x.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt()

    if norm == "fc_norm":
        normed = torch.cat([rms(x) * tensors[f"fc_norm.{i}.weight"] for i, x in enumerate(features.chunk(3, -1))], -1)
    else:
        normed = rms(features) * tensors["input_norm.weight"]
    torch.testing.assert_close(head.project(features), normed @ tensors["fc.weight"].T, atol=1e-5, rtol=1e-5)


def test_fed_back_state_with_and_without_norm_output(target, tmp_path):
    write_eagle3(tmp_path / "a", eagle3_config(), TARGET)
    write_eagle3(tmp_path / "b", eagle3_config(norm_output=True), TARGET)
    x = torch.randn(3, 64)
    (logits_a, state_a), (logits_b, state_b) = (
        load_eagle3(tmp_path / folder, target).logits_and_state(x.clone()) for folder in "ab"
    )
    assert torch.equal(state_a, x) and torch.equal(logits_a, logits_b) and not torch.allclose(state_b, x)


def _spoil(name: str, value: torch.Tensor | None):
    def change(tensors: dict[str, torch.Tensor]) -> None:
        if value is None:
            del tensors[name]
        else:
            tensors[name] = value

    return change


BAD_CONFIGS = [
    (dict(hidden_size=32), "hidden_size 32, the target has 64"),
    (dict(hidden_size=48, target_hidden_size=32), "hidden_size 32, the target has 64"),
    (dict(vocab_size=200), "vocab_size 200, the target has 128"),
    (dict(num_aux_hidden_states=4), "num_aux_hidden_states 4 is not supported; allowed: 3"),
    (dict(eagle_config={"eagle_aux_hidden_state_layer_ids": [1, 2, 3]}), r"layers \(1, 2, 3\).*\(2, 3, 3\)"),
]


@pytest.mark.parametrize(("config", "message"), BAD_CONFIGS)
def test_heads_for_another_target_are_refused(target, tmp_path, config, message):
    wanted = {k: v for k, v in config.items() if k != "num_aux_hidden_states"}
    write_eagle3(tmp_path, eagle3_config(**wanted), TARGET)
    (tmp_path / "config.json").write_text(json.dumps(eagle3_config(**config)))
    with pytest.raises(ValueError, match=f"head: .*{message}") as refusal:
        load_eagle3(tmp_path, target)
    assert str(tmp_path) in str(refusal.value)


def test_aux_layers_that_are_the_targets_are_accepted(target, tmp_path):
    layers = list(target.config.aux_layers)
    write_eagle3(tmp_path, eagle3_config(eagle_config={"eagle_aux_hidden_state_layer_ids": layers}), TARGET)
    assert load_eagle3(tmp_path, target).config.hidden_size == 64


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_spoil("fc.weight", None), "has no tensor fc.weight"),
        (
            _spoil("fc.weight", torch.zeros(64, 128)),
            r"fc.weight in .* has shape \(64, 128\), the config needs \(64, 192\)",
        ),
        (_spoil("midlayer.hidden_norm.weight", None), "hidden_norm.weight"),
        (_spoil("norm.weight", None), "has no tensor 'norm.weight'"),
        (_spoil("d2t", None), "draft_vocab_size 48 < vocab_size 128 but no tensor d2t"),
        (_spoil("d2t", torch.arange(48) * 3), r"d2t of .* must map 48 draft ids into 0..127"),
        (_spoil("d2t", torch.zeros(47, dtype=torch.int64)), "d2t of .* must map 48 draft ids"),
    ],
    ids=["no-fc", "fc-shape", "no-hidden-norm", "no-norm", "no-d2t", "d2t-range", "d2t-length"],
)
def test_damaged_heads_are_refused_by_name(target, tmp_path, change, message):
    write_eagle3(tmp_path, eagle3_config(), TARGET, change=change)
    with pytest.raises(ValueError, match=message) as refusal:
        load_eagle3(tmp_path, target)
    assert str(tmp_path) in str(refusal.value)


def test_a_head_is_a_folder_or_random(target, tmp_path):
    with pytest.raises(ValueError, match="eagle: no head for this model; give eagle:head=DIR"):
        make_head("", target, "eagle")
    with pytest.raises(ValueError, match="head='/nowhere' is not a directory"):
        make_head("/nowhere", target, "eagle")
    with pytest.raises(ValueError, match="has no config.json"):
        make_head(str(tmp_path), target, "eagle")
    assert make_head("random", target, "eagle").d2t is not None


def test_a_rewritten_head_is_the_same_head(target, tmp_path):
    """Round trip: what safetensors reads back, written again, gives the same head bit for bit."""
    write_eagle3(tmp_path / "a", eagle3_config(fc_norm=True), TARGET)
    copy = Path(tmp_path / "b")
    copy.mkdir()
    (copy / "config.json").write_text((tmp_path / "a" / "config.json").read_text())
    save_file(load_file(tmp_path / "a" / "model.safetensors"), copy / "model.safetensors")
    assert torch.equal(_state(load_eagle3(tmp_path / "a", target)), _state(load_eagle3(copy, target)))
