"""Weights that the loader would leave out are refused by name: a model without them talks nonsense at full speed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from toy.checkpoints import (
    eagle1_config,
    eagle3_config,
    llama_config,
    load_written,
    write_eagle1,
    write_eagle3,
    write_llama,
)

from specbench.harness.engines.native.models.config import config_from_dict
from specbench.harness.engines.native.models.draft_models import make_draft_model
from specbench.harness.engines.native.models.heads import load_head
from specbench.harness.engines.native.models.weights import UNREAD, UNREAD_EAGLE1

TARGET = llama_config()
TIED = llama_config(tie_word_embeddings=True)
METHODS = ("awq", "gptq", "fbgemm_fp8", "bitsandbytes", "mxfp4", "modelopt")


def write(kind: str, folder: Path, change=None):
    """A target, a draft model or a head, changed."""
    if kind == "eagle3":
        return write_eagle3(folder, eagle3_config(), TARGET, change=change)
    if kind == "eagle1":
        return write_eagle1(folder, eagle1_config(), change=change)
    return write_llama(folder, TARGET, change=change)


def load(kind: str, folder: Path, target):
    if kind == "target":
        return load_written(folder)
    return make_draft_model(str(folder), target) if kind == "draft" else load_head(folder, target)


KINDS = ("target", "draft", "eagle3", "eagle1")
LAYER = {"target": "model.layers.0.", "draft": "model.layers.0.", "eagle3": "midlayer.", "eagle1": "layers.0."}


@pytest.mark.parametrize("method", METHODS)
def test_quantized_checkpoints_are_refused_by_their_method(tmp_path, method):
    raw = llama_config(quantization_config={"quant_method": method})
    message = rf"config.json: quantization_config with quant_method '{method}' is not supported; allowed: unquantized"
    with pytest.raises(ValueError, match=message) as refusal:
        config_from_dict(raw, tmp_path)
    assert str(tmp_path) in str(refusal.value)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"quantization_config": {}}, "quant_method None"),
        ({"quantization_config": "fp8"}, "quant_method 'fp8'"),
        ({"compression_config": {"quant_method": "sparseml"}}, "compression_config with quant_method 'sparseml'"),
    ],
)
def test_other_spellings_of_quantization(tmp_path, entry, message):
    with pytest.raises(ValueError, match=message):
        config_from_dict(llama_config(**entry), tmp_path)


def test_a_null_quantization_config_is_none(tmp_path):
    assert config_from_dict(llama_config(quantization_config=None), tmp_path) == config_from_dict(TARGET, tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_quantized_models_of_every_kind_are_refused(target, tmp_path, kind):
    write(kind, tmp_path)
    raw = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**raw, "quantization_config": {"quant_method": "awq"}}))
    with pytest.raises(ValueError, match="quant_method 'awq' is not supported"):
        load(kind, tmp_path, target)


@pytest.mark.parametrize("kind", KINDS)
def test_an_fp8_checkpoint_is_refused_though_its_config_is_silent(target, tmp_path, kind):
    name = f"{LAYER[kind]}mlp.down_proj.weight"

    def scales_only(tensors):
        tensors[f"{name}_scale"] = torch.ones(1)

    def fp8(tensors):
        tensors[name] = tensors[name].to(torch.float8_e4m3fn)

    write(kind, tmp_path / "a", scales_only)
    with pytest.raises(ValueError, match=rf"does not use \(1\): {name}_scale; allowed unused: rotary"):
        load(kind, tmp_path / "a", target)
    write(kind, tmp_path / "b", fp8)
    with pytest.raises(ValueError, match=f"{name} in .* is stored as torch.float8_e4m3fn, which needs scales"):
        load(kind, tmp_path / "b", target)


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_names_and_the_count(target, tmp_path, kind):
    extra = {f"extra.{n}.weight": torch.zeros(1) for n in range(7)}
    write(kind, tmp_path, lambda tensors: tensors.update(extra))
    names = ", ".join(list(extra)[:5])
    with pytest.raises(ValueError, match=rf"does not use \(7\): {names} and 2 more; allowed") as refusal:
        load(kind, tmp_path, target)
    assert str(tmp_path) in str(refusal.value)


@pytest.mark.parametrize("kind", KINDS)
def test_biases_that_the_config_does_not_announce(target, tmp_path, kind):
    name = f"{LAYER[kind]}self_attn.o_proj.bias"
    write(kind, tmp_path, lambda tensors: tensors.update({name: torch.ones(64)}))
    with pytest.raises(ValueError, match=rf"does not use \(1\): {name}"):
        load(kind, tmp_path, target)


def test_layers_that_the_config_does_not_count(tmp_path):
    write_llama(tmp_path, TARGET)
    (tmp_path / "config.json").write_text(json.dumps(llama_config(num_hidden_layers=5)))
    with pytest.raises(ValueError, match=r"does not use \(9\): model.layers.5.input_layernorm"):
        load_written(tmp_path)


def test_norms_that_the_head_would_skip(target, tmp_path):
    write_eagle3(tmp_path, eagle3_config(fc_norm=True), TARGET)
    (tmp_path / "config.json").write_text(json.dumps(eagle3_config()))
    with pytest.raises(ValueError, match=r"does not use \(3\): fc_norm.0.weight, fc_norm.1.weight, fc_norm.2.weight"):
        load_head(tmp_path, target)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("prefix", ["", "layer"])
def test_what_nothing_depends_on_may_stay_unread(target, tmp_path, kind, prefix):
    unread = UNREAD_EAGLE1 if kind == "eagle1" else UNREAD
    where = LAYER[kind] + "self_attn." if prefix else ""
    write(kind, tmp_path, lambda tensors: tensors.update({where + name: torch.zeros(8) for name in unread}))
    load(kind, tmp_path, target)


def test_a_name_that_only_ends_alike_is_another(tmp_path):
    write_llama(tmp_path, TARGET, change=lambda tensors: tensors.update({"not_t2d": torch.zeros(1)}))
    with pytest.raises(ValueError, match=r"does not use \(1\): not_t2d"):
        load_written(tmp_path)


def test_a_tied_model_may_bring_a_copy_of_its_embedding_and_nothing_else(tmp_path):
    def copy(tensors):
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()

    def another(tensors):
        copy(tensors)
        tensors["lm_head.weight"][3, 5] += 0.5

    write_llama(tmp_path / "a", TIED)
    write_llama(tmp_path / "b", TIED, change=copy)
    write_llama(tmp_path / "c", TIED, change=another)
    states = torch.linspace(-1, 1, 128).view(2, 64)
    a, b = (load_written(tmp_path / folder).logits(states) for folder in "ab")
    assert torch.equal(a, b)
    with pytest.raises(ValueError, match="lm_head.weight in .* is not model.embed_tokens.weight, although config.json"):
        load_written(tmp_path / "c")


@pytest.mark.parametrize("kind", KINDS)
def test_every_missing_tensor_is_named(target, tmp_path, kind):
    spare = ("t2d", "embed_tokens.weight") if kind.startswith("eagle") else ()
    names = [name for name in write(kind, tmp_path) if name not in spare]
    needed = [name for name in names if ".layers." not in name or ".layers.5." in name]
    assert len(needed) >= 9
    for name in needed:
        write(kind, tmp_path, lambda tensors, gone=name: tensors.pop(gone))
        with pytest.raises(ValueError, match=f"no tensor '?{re.escape(name)}"):
            load(kind, tmp_path, target)


def test_a_head_of_another_width_needs_its_own_embedding(target, tmp_path):
    config = eagle3_config(hidden_size=48, target_hidden_size=64)
    write_eagle3(tmp_path, config, TARGET, change=lambda tensors: tensors.pop("embed_tokens.weight"))
    with pytest.raises(ValueError, match="has no tensor 'embed_tokens.weight'"):
        load_head(tmp_path, target)


def test_a_map_over_the_whole_vocabulary_is_used_unless_it_changes_nothing(target, tmp_path):
    whole = eagle3_config(draft_vocab_size=None)
    write_eagle3(tmp_path / "a", whole, TARGET, change=lambda t: t.update(d2t=torch.zeros(128, dtype=torch.int64)))
    assert load_head(tmp_path / "a", target).d2t is None
    backwards = torch.arange(127, -1, -1) - torch.arange(128)
    write_eagle3(tmp_path / "b", whole, TARGET, change=lambda tensors: tensors.update(d2t=backwards))
    assert torch.equal(load_head(tmp_path / "b", target).d2t, backwards)


def shards(folder: Path, names: dict[str, object]) -> None:
    """The checkpoint of `folder` in two files with an index, which says `names` beside what is true."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    halves = {
        "model-00001-of-00002.safetensors": list(tensors)[::2],
        "model-00002-of-00002.safetensors": list(tensors)[1::2],
    }
    for file, keys in halves.items():
        save_file({key: tensors[key] for key in keys}, folder / file)
    weight_map = {key: file for file, keys in halves.items() for key in keys}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map | names}))


def test_other_copies_of_the_weights_are_not_read(target, tmp_path):
    """As Mistral's repositories have them."""
    folder = tmp_path
    write("target", folder)
    save_file({"layers.0.attention.wq.weight": torch.zeros(2, 2)}, folder / "consolidated.safetensors")
    load("target", folder, target)
    shards(folder, {})
    load("target", folder, target)


@pytest.mark.parametrize("name", ["../model.safetensors", "model-00003-of-00003.safetensors", 3])
def test_an_index_names_files_beside_it(target, tmp_path, name):
    folder = tmp_path
    write("target", folder)
    shards(folder, {"lm_head.weight": name})
    with pytest.raises(ValueError, match=f"index.json.*({name!r}|damaged)"):
        load("target", folder, target)
