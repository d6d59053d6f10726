"""Model folders: config.json, weights and their index, tokenizer and chat template, GGUF."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import torch
from toy.byte_tokenizer import write_byte_tokenizer
from toy.checkpoints import eagle3_config, llama_config, write_eagle3, write_llama

from fuzz.mutate import Mutate, mutate_bytes, mutate_framed, mutate_json
from fuzz.targets import Reader, Target
from specbench.harness.engines.native.models.config import read_config
from specbench.harness.engines.native.models.heads import load_head
from specbench.harness.engines.native.models.loader import load_target
from specbench.harness.engines.native.models.rope import rope_frequencies
from specbench.workloads.assets.gguf import convert_gguf
from specbench.workloads.tokenizer import load_tokenizer

SIZES = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1)
LLAMA = llama_config(**SIZES, head_dim=8, vocab_size=260, eos_token_id=0)
SCALED = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
CONFIGS = [
    LLAMA,
    {**LLAMA, "rope_scaling": {**SCALED, "original_max_position_embeddings": 64}, "attention_bias": False},
    {
        **LLAMA, "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "use_sliding_window": False,
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "beta_fast": 32, "truncate": True},
    },
]  # fmt: skip
HEAD = eagle3_config(vocab_size=260, hidden_size=16, target_hidden_size=16, intermediate_size=16, head_dim=8)
TEMPLATES = [
    b"{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}",
    b"{% if messages[0].role != 'user' %}{{ raise_exception('roles must alternate') }}{% endif %}{{ 1 // 1 }}",
    b"{{ messages | tojson }}{% set x = namespace(n=1) %}{{ strftime_now('%Y') }}{{ bos_token }}",
]
_JINJA = (b"{{", b"}}", b"{%", b"%}", b"__class__", b" | ", b"range(9)", b"for", b"endfor", b"None", b" / 0", b".x.y")


def model(folder: Path) -> None:
    write_llama(folder, LLAMA)
    write_byte_tokenizer(folder)


def in_model(
    name: str, read: Callable[[Path], object], mutate: Mutate, seeds: Callable[[Path], list[bytes]] | None = None
) -> Target:
    """One file of a whole model folder is the input. `seeds`: by default that file as it is."""

    def prepare(folder: Path) -> Reader:
        model(folder)
        file = folder / name
        return Reader(file=file, seeds=seeds(folder) if seeds else [file.read_bytes()], read=lambda: read(folder))

    return Target(prepare=prepare, mutate=mutate)


def _load(folder: Path) -> object:
    return load_target(folder, torch.float32, torch.device("cpu"))


def _index(folder: Path) -> list[bytes]:
    from safetensors.torch import load_file

    shard = "model-00001-of-00001.safetensors"
    names = dict.fromkeys(load_file(folder / "model.safetensors"), shard)
    (folder / "model.safetensors").rename(folder / shard)
    return [json.dumps({"metadata": {}, "weight_map": names}).encode()]


def _pickle(folder: Path) -> list[bytes]:
    from safetensors.torch import load_file

    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    return [(folder / "pytorch_model.bin").read_bytes()]


def _head(folder: Path) -> Reader:
    (folder / "target").mkdir()
    model(folder / "target")
    target = load_target(folder / "target", torch.float32, torch.device("cpu"))
    write_eagle3(folder / "head", HEAD, LLAMA)
    file = folder / "head" / "config.json"
    return Reader(file=file, seeds=[file.read_bytes()], read=lambda: load_head(folder / "head", target))


def _speak(folder: Path) -> object:
    tokenizer = load_tokenizer(folder)
    return tokenizer.decode(tokenizer.encode("hello")), tokenizer.vocab_size


def _chat(folder: Path) -> object:
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    return load_tokenizer(folder).apply_chat_template(messages)


def _mutate_template(data: bytes, random: Random) -> bytes:
    at = random.randrange(len(data) + 1)
    return data[:at] + random.choice(_JINJA) + data[at:] if random.randrange(2) else mutate_bytes(data, random)


def _gguf(folder: Path) -> Reader:
    import gguf

    file, out = folder / "m.gguf", folder / "out"
    writer = gguf.GGUFWriter(file, "llama")
    numbers = {"context_length": 64, "embedding_length": 8, "feed_forward_length": 8, "block_count": 1}
    for key, value in {**numbers, "attention.head_count": 2, "attention.head_count_kv": 1}.items():
        writer.add_uint32(f"llama.{key}", value)
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(["<eos>", "a", "b", "ab"])
    writer.add_token_types([3, 1, 1, 1])
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(0)
    writer.add_chat_template("{{ messages }}")
    shapes: dict[str, tuple[int, ...]] = {"attn_q": (8, 8), "attn_k": (4, 8), "attn_v": (4, 8), "attn_output": (8, 8)}
    shapes |= {"ffn_gate": (8, 8), "ffn_up": (8, 8), "ffn_down": (8, 8), "attn_norm": (8,), "ffn_norm": (8,)}
    tensors = {f"blk.0.{name}.weight": shape for name, shape in shapes.items()}
    for name, shape in {**tensors, "token_embd.weight": (4, 8), "output_norm.weight": (8,)}.items():
        writer.add_tensor(name, torch.ones(shape).numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    def read() -> object:
        try:
            return read_config(convert_gguf(file, out))
        finally:
            shutil.rmtree(out, ignore_errors=True)

    return Reader(file=file, seeds=[file.read_bytes()], read=read)


def _config(folder: Path) -> Any:
    config, _ = read_config(folder)
    return rope_frequencies(config)


MODELS: Mapping[str, Target] = {
    "config": in_model("config.json", _config, mutate_json, lambda _: [json.dumps(c).encode() for c in CONFIGS]),
    "config-loaded": in_model("config.json", _load, mutate_json),
    "head-config": Target(prepare=_head, mutate=mutate_json),
    "generation-config": in_model(
        "generation_config.json",
        lambda f: (_config(f), _speak(f)),
        mutate_json,
        lambda _: [b'{"eos_token_id": [0, 2]}'],
    ),
    "safetensors": in_model("model.safetensors", _load, mutate_framed),
    "weights-index": in_model("model.safetensors.index.json", _load, mutate_json, _index),
    "pickle": in_model("pytorch_model.bin", _load, mutate_bytes, _pickle),
    "tokenizer": in_model("tokenizer.json", _speak, mutate_json),
    "tokenizer-config": in_model("tokenizer_config.json", _speak, mutate_json),
    "chat-template": in_model("chat_template.jinja", _chat, _mutate_template, lambda _: TEMPLATES),
    "gguf": Target(prepare=_gguf, mutate=mutate_bytes),
}
