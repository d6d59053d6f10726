"""Tiny models as GGUF files, written with gguf's own writer."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config

SHAPE = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "rope_theta": 5000.0,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "pad_token_id": 2,
}
CONFIGS = {"llama": LlamaConfig, "qwen2": Qwen2Config, "qwen3": Qwen3Config}
GGUF_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ["h e", "l l", "he ll", "hell o", "Ġ w", "Ċ Ċ", "1 2"]


def byte_letters() -> list[str]:
    """The 256 letters byte-level BPE writes bytes with (GPT-2)."""
    from tokenizers.pre_tokenizers import ByteLevel

    return sorted(ByteLevel.alphabet())


def vocabulary() -> tuple[list[str], list[int]]:
    merged = ["".join(merge.split()) for merge in MERGES]
    tokens = [*SPECIAL, *byte_letters(), *merged, "<tool>", "[PAD0]"]
    types = [3] * len(SPECIAL) + [1] * (256 + len(merged)) + [4, 5]
    return tokens, types


def llama_cpp_permute(weight: np.ndarray, heads: int) -> np.ndarray:
    """What llama.cpp's converter does to q and k rows: written out row by row, to check the undoing of it."""
    dim = weight.shape[0] // heads
    out = np.empty_like(weight)
    for head in range(heads):
        for row in range(dim // 2):
            out[head * dim + 2 * row] = weight[head * dim + row]
            out[head * dim + 2 * row + 1] = weight[head * dim + row + dim // 2]
    return out


def tiny_model(architecture: str, tied: bool) -> torch.nn.Module:
    torch.manual_seed(0)
    tokens, _ = vocabulary()
    config = CONFIGS[architecture](**SHAPE, vocab_size=len(tokens), tie_word_embeddings=tied)
    model = AutoModelForCausalLM.from_config(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
        parameter.data = parameter.data.to(torch.bfloat16).float()  # what the converted copy can hold exactly
    return model


def gguf_name(name: str) -> str:
    top = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
    if name in top or name == "lm_head.weight":
        return top.get(name, "output.weight")
    _, _, layer, module, kind = name.replace("self_attn.", "self_attn/").replace("mlp.", "mlp/").split(".")
    return f"blk.{layer}.{GGUF_NAMES[module.replace('/', '.')]}.{kind}"


def write_gguf(
    path: Path, architecture: str, model: torch.nn.Module, *, quantise=None, pre="smollm", named=gguf_name, **extra
) -> Path:
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(SHAPE["num_hidden_layers"])
    writer.add_context_length(SHAPE["max_position_embeddings"])
    writer.add_embedding_length(SHAPE["hidden_size"])
    writer.add_feed_forward_length(SHAPE["intermediate_size"])
    writer.add_head_count(SHAPE["num_attention_heads"])
    writer.add_head_count_kv(SHAPE["num_key_value_heads"])
    writer.add_key_length(SHAPE["head_dim"])
    writer.add_layer_norm_rms_eps(SHAPE["rms_norm_eps"])
    writer.add_rope_freq_base(SHAPE["rope_theta"])
    tokens, types = vocabulary()
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_chat_template(TEMPLATE)
    for key, value in extra.items():
        getattr(writer, key)(value)
    heads = {"q_proj": SHAPE["num_attention_heads"], "k_proj": SHAPE["num_key_value_heads"]}
    for name, parameter in model.named_parameters():
        values = parameter.detach().numpy()
        module = name.split(".")[-2]
        if architecture == "llama" and module in heads:
            values = llama_cpp_permute(values, heads[module])
        if quantise is not None and values.ndim == 2:
            writer.add_tensor(named(name), gguf.quants.quantize(values, quantise), raw_dtype=quantise)
        else:
            writer.add_tensor(named(name), values.copy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
