"""Checkpoints as quantizers and damaged copies store them: each is refused by the name of a tensor or a file."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from toy.checkpoints import (
    Tensors,
    eagle1_config,
    eagle3_config,
    llama_config,
    load_written,
    write_eagle1,
    write_eagle3,
    write_llama,
)

from specbench.harness.engines.native.models.heads import load_head

TARGET = llama_config(num_hidden_layers=2)
KINDS = ("target", "eagle3", "eagle1")
LAYER = {"target": "model.layers.0.", "eagle3": "midlayer.", "eagle1": "layers.0."}


def write(kind: str, folder: Path, change=None, **config) -> None:
    if kind == "target":
        write_llama(folder, {**TARGET, **config}, change=change)
    elif kind == "eagle3":
        write_eagle3(folder, eagle3_config(**config), TARGET, change=change)
    else:
        write_eagle1(folder, eagle1_config(**config), change=change)


def load(kind: str, folder: Path, target):
    return load_written(folder) if kind == "target" else load_head(folder, target)


def quantized(parts):
    """Changes the matrices of attention and MLP: `parts` of a weight [O, I], by the last part of their names."""

    def change(tensors: Tensors) -> None:
        for name in [n for n in tensors if n.endswith("_proj.weight")]:
            weight, module = tensors.pop(name), name.removesuffix(".weight")
            tensors.update({f"{module}.{part}": tensor for part, tensor in parts(*weight.shape).items()})

    return change


def ints(*shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    return torch.ones(*shape, dtype=dtype)


E4M3 = torch.float8_e4m3fn
FORMATS = {
    # name: (tensors of one matrix, quantization_config, what the refusal without that config names)
    "fp8, scale of a tensor": (
        lambda o, i: {"weight": torch.ones(o, i).to(E4M3), "weight_scale": torch.ones(1), "input_scale": torch.ones(1)},
        {"quant_method": "fp8", "activation_scheme": "static"},
        "is stored as torch.float8_e4m3fn, which needs scales",
    ),
    "fp8, scales of blocks": (
        lambda o, i: {"weight": torch.ones(o, i).to(E4M3), "weight_scale_inv": torch.ones(1, 1)},
        {"quant_method": "fp8", "weight_block_size": [128, 128]},
        "is stored as torch.float8_e4m3fn, which needs scales",
    ),
    "awq": (
        lambda o, i: {"qweight": ints(i, o // 8), "qzeros": ints(1, o // 8), "scales": torch.ones(1, o).half()},
        {"quant_method": "awq", "bits": 4, "group_size": 128},
        "q_proj.weight' but {layer}self_attn.q_proj.qweight, {layer}self_attn.q_proj.qzeros",
    ),
    "gptq": (
        lambda o, i: {
            "qweight": ints(i // 8, o), "qzeros": ints(1, o // 8), "scales": torch.ones(1, o).half(), "g_idx": ints(i),
        },
        {"quant_method": "gptq", "bits": 4, "desc_act": False},
        "q_proj.weight' but {layer}self_attn.q_proj.g_idx, {layer}self_attn.q_proj.qweight",
    ),
    "nvfp4, compressed-tensors": (
        lambda o, i: {
            "weight_packed": ints(o, i // 2, dtype=torch.uint8), "weight_scale": torch.ones(o, i // 16).to(E4M3),
            "weight_global_scale": torch.ones(1), "input_global_scale": torch.ones(1),
        },
        {"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"},
        "q_proj.weight' but {layer}self_attn.q_proj.input_global_scale",
    ),
    "nvfp4, modelopt": (
        lambda o, i: {
            "weight": ints(o, i // 2, dtype=torch.uint8), "weight_scale": torch.ones(o, i // 16).to(E4M3),
            "weight_scale_2": torch.ones(1), "input_scale": torch.ones(1),
        },
        {"quant_method": "modelopt", "quant_algo": "NVFP4"},
        "is stored as torch.uint8, which needs scales",
    ),
    "int8, compressed-tensors": (
        lambda o, i: {"weight": ints(o, i, dtype=torch.int8), "weight_scale": torch.ones(o, 1)},
        {"quant_method": "compressed-tensors", "format": "int-quantized"},
        "is stored as torch.int8, which needs scales",
    ),
    "int8, bitsandbytes": (
        lambda o, i: {"weight": ints(o, i, dtype=torch.int8), "SCB": torch.ones(o)},
        {"quant_method": "bitsandbytes", "load_in_8bit": True},
        "is stored as torch.int8, which needs scales",
    ),
    "nf4, bitsandbytes": (
        lambda o, i: {"weight": ints(o * i // 2, 1, dtype=torch.uint8), "weight.absmax": torch.ones(o * i // 64)},
        {"quant_method": "bitsandbytes", "load_in_4bit": True},
        "is stored as torch.uint8, which needs scales",
    ),
    "int8 without scales": (
        lambda o, i: {"weight": ints(o, i, dtype=torch.int8)},
        {"quant_method": "quanto"},
        "is stored as torch.int8, which needs scales",
    ),
    "fp8 without scales": (
        lambda o, i: {"weight": torch.ones(o, i).to(torch.float8_e5m2)},
        {"quant_method": "fbgemm_fp8"},
        "is stored as torch.float8_e5m2, which needs scales",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FORMATS)
def test_quantized_checkpoints_are_refused_with_and_without_their_config(target, tmp_path, kind, name):
    parts, config, words = FORMATS[name]
    write(kind, tmp_path, quantized(parts))
    with pytest.raises(ValueError, match=re.escape(words.format(layer=LAYER[kind]))) as refusal:
        load(kind, tmp_path, target)
    line = str(refusal.value)
    assert "\n" not in line and str(tmp_path) in line and line.endswith("allowed: float16, bfloat16, float32, float64")
    if kind == "target" and config["quant_method"] == "fp8":
        return  # see test_fp8_checkpoints.py
    raw = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**raw, "quantization_config": config}))
    key = "format" if kind == "target" and config["quant_method"] == "compressed-tensors" else "quant_method"
    with pytest.raises(ValueError, match=f"{key} '{config[key]}' is not supported"):
        load(kind, tmp_path, target)


def one_tensor_missing(tensors: Tensors) -> None:
    del tensors[min(name for name in tensors if name.endswith("up_proj.weight"))]


def one_extra(tensors: Tensors) -> None:
    tensors["adapter.weight"] = torch.ones(2, 2)


NAMED = {
    "FP8": (quantized(FORMATS["fp8, scale of a tensor"][0]), "q_proj.weight in .* is stored as torch.float8_e4m3fn"),
    "AWQ": (quantized(FORMATS["awq"][0]), "has no tensor .*q_proj.weight' but .*q_proj.qweight"),
    "GPTQ": (quantized(FORMATS["gptq"][0]), "has no tensor .*q_proj.weight' but .*q_proj.g_idx"),
    "NVFP4": (quantized(FORMATS["nvfp4, modelopt"][0]), "q_proj.weight in .* is stored as torch.uint8"),
    "int8": (quantized(FORMATS["int8, bitsandbytes"][0]), "q_proj.weight in .* is stored as torch.int8"),
    "one tensor missing": (one_tensor_missing, "has no tensor .*mlp.up_proj.weight'"),
    "one extra": (one_extra, r"holds tensors that this model does not use \(1\): adapter.weight"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMED)
def test_each_is_refused_by_the_name_of_a_tensor(target, tmp_path, kind, name):
    change, words = NAMED[name]
    write(kind, tmp_path / "whole")
    load(kind, tmp_path / "whole", target)
    write(kind, tmp_path / "changed", change)
    with pytest.raises(ValueError, match=words):
        load(kind, tmp_path / "changed", target)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_that_are_not_finite_are_refused_by_the_tensors_name(target, tmp_path, kind, value, dtype):
    name = f"{LAYER[kind]}mlp.up_proj.weight"

    def spoil(tensors: Tensors) -> None:
        tensors.update({n: t.to(dtype) for n, t in tensors.items() if t.is_floating_point()})
        tensors[name][5, 7] = value

    write(kind, tmp_path, spoil)
    with pytest.raises(ValueError, match=f"{name} in .* has values that are not finite in torch.float32"):
        load(kind, tmp_path, target)


@pytest.mark.gpu
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 3e38])
def test_on_a_gpu_weights_are_looked_at_where_they_are(tmp_path, value):
    write_llama(tmp_path, TARGET, change=lambda tensors: tensors["model.norm.weight"][3:].fill_(value))
    if value == 3e38:  # finite; the sum is not
        assert load_written(tmp_path, device="cuda").norm_H.isfinite().all()
    else:
        with pytest.raises(ValueError, match="model.norm.weight in .* not finite in torch.float32"):
            load_written(tmp_path, device="cuda")


def test_large_finite_weights_are_loaded_though_their_sum_is_not_finite(tmp_path):
    def large(tensors: Tensors) -> None:
        tensors["model.norm.weight"][:] = 3e38

    write_llama(tmp_path, TARGET, change=large)
    assert load_written(tmp_path).norm_H.isfinite().all()


def test_weights_too_large_for_the_runs_dtype_are_refused(tmp_path):
    write_llama(tmp_path, TARGET, change=lambda tensors: tensors["model.norm.weight"].fill_(1e6))
    load_written(tmp_path)
    with pytest.raises(ValueError, match="model.norm.weight in .* not finite in torch.float16"):
        load_written(tmp_path, dtype=torch.float16)


@pytest.mark.parametrize("kind", ["eagle3", "eagle1"])
@pytest.mark.parametrize(
    "change", [lambda d2t: d2t.float(), lambda d2t: d2t[:, None], lambda d2t: d2t.bool()], ids=["float", "2d", "bool"]
)
def test_a_map_of_draft_ids_is_a_list_of_whole_numbers(target, tmp_path, kind, change):
    write(kind, tmp_path, lambda tensors: tensors.update(d2t=change(tensors["d2t"])), draft_vocab_size=48)
    with pytest.raises(ValueError, match="head: d2t of .* allowed: a list of int64 or int32"):
        load(kind, tmp_path, target)


def test_a_tensor_in_two_files_is_refused_by_name(tmp_path):
    write_llama(tmp_path, TARGET)
    tensors = load_file(tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors").rename(tmp_path / "a.safetensors")
    save_file({"model.norm.weight": tensors["model.norm.weight"] + 1}, tmp_path / "b.safetensors")
    with pytest.raises(ValueError, match="model.norm.weight is in .*b.safetensors and in another file"):
        load_written(tmp_path)


PICKLES = {
    "list": ([torch.ones(2)], "'the file' is list"),
    "tensor": (torch.ones(2), "'the file' is Tensor"),
    "ints": ({"a": 1, "b": 2}, "'a' is int"),
    "int keys": ({1: torch.ones(2)}, "'1' is Tensor"),
    "nested": ({"state_dict": {"a": torch.ones(1)}}, "'state_dict' is dict"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", PICKLES)
def test_a_pickle_that_is_no_state_dict_is_refused_by_what_it_holds(target, tmp_path, kind, name):
    state, words = PICKLES[name]
    write(kind, tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save(state, tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match=f"pytorch_model.bin is not a state dict: {words}; allowed: tensors by name"):
        load(kind, tmp_path, target)


def test_a_sparse_tensor_is_refused_by_name(tmp_path):
    tensors = write_llama(tmp_path, TARGET)
    (tmp_path / "model.safetensors").unlink()
    tensors["lm_head.weight"] = tensors["lm_head.weight"].to_sparse()
    torch.save(tensors, tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match="lm_head.weight in .* is stored as torch.float32, torch.sparse_coo"):
        load_written(tmp_path)


def directory(path: Path) -> None:
    path.mkdir()


def dangling(path: Path) -> None:
    path.symlink_to(path.parent / "gone")


def looping(path: Path) -> None:
    path.symlink_to(path)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin", "model.safetensors.index.json"])
@pytest.mark.parametrize(
    ("make", "words"),
    [(directory, "a directory"), (dangling, "a broken symbolic link"), (looping, "a broken symbolic link")],
)
def test_a_weight_file_that_is_no_file(target, tmp_path, kind, name, make, words):
    write(kind, tmp_path)
    (tmp_path / "model.safetensors").unlink()
    make(tmp_path / name)
    with pytest.raises(ValueError, match=f"checkpoint: .*{name} is {words}; allowed: a file"):
        load(kind, tmp_path, target)


INDEXES = ["[]", "5", "{", "{}", '{"weight_map": []}', '{"weight_map": {}}', '{"weight_map": "model.safetensors"}',
           '{"weight_map": {"a": 3}}', '{"weight_map": {"a": ["model.safetensors"]}}', '{"weight_map": {"a": ""}}',
           '{"weight_map": {"a": "../model.safetensors"}}', '{"weight_map": {"a": null}}', "[" * 100_000]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", INDEXES, ids=[text[:30] for text in INDEXES])
def test_an_odd_index_is_refused_by_its_name(target, tmp_path, kind, text):
    write(kind, tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text(text)
    with pytest.raises(ValueError, match=r"checkpoint: .*model.safetensors.index.json (is damaged|names)"):
        load(kind, tmp_path, target)
