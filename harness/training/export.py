"""A trained head in the published EAGLE-3 format: `config.json` and `model.safetensors`, as vLLM and SGLang read it."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from specbench.harness.store.files import write_atomically, write_json
from specbench.workloads.json_values import JsonObject

from .draft_vocab import DraftVocab
from .head_module import HeadModule, HeadShape

# Of the target's config: what the head shares with it. The aux layers are the default of the reference implementation
# (entering 2, N // 2 and N - 3), so no list of ids is written, which engines would read by different conventions.
_SHARED_KEYS = (
    "hidden_size",
    "num_attention_heads",
    "num_key_value_heads",
    "vocab_size",
    "rms_norm_eps",
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "max_position_embeddings",
    "bos_token_id",
    "eos_token_id",
)


def published_tensors(module: HeadModule, vocab: DraftVocab, dtype: torch.dtype) -> dict[str, Tensor]:
    """Tensors by their published names; fused products are split again."""
    s = module.shape
    q, kv = s.num_q_heads * s.head_dim, s.num_kv_heads * s.head_dim
    query, key, value = module.qkv.split([q, kv, kv])
    gate, up = module.gate_up.split(s.intermediate_size)
    layer = {
        "input_layernorm": module.embed_norm,
        "hidden_norm": module.hidden_norm,
        "self_attn.q_proj": query,
        "self_attn.k_proj": key,
        "self_attn.v_proj": value,
        "self_attn.o_proj": module.o,
        "post_attention_layernorm": module.post_norm,
        "mlp.gate_proj": gate,
        "mlp.up_proj": up,
        "mlp.down_proj": module.down,
    }
    tensors = {f"midlayer.{name}.weight": tensor for name, tensor in layer.items()}
    tensors |= {"fc.weight": module.fc, "norm.weight": module.norm, "lm_head.weight": module.lm_head}
    result = {name: t.detach().to("cpu", dtype).contiguous().clone() for name, t in tensors.items()}
    return result | {"d2t": vocab.d2t_Vd.clone(), "t2d": vocab.t2d_V.clone()}


def head_config(shape: HeadShape, target: JsonObject, dtype: torch.dtype) -> JsonObject:
    """config.json of the head; `target` is the target's own."""
    shared = {key: target[key] for key in _SHARED_KEYS if target.get(key) is not None}
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        **shared,
        "head_dim": shape.head_dim,
        "num_key_value_heads": shape.num_kv_heads,
        "intermediate_size": shape.intermediate_size,
        "num_hidden_layers": 1,
        "draft_vocab_size": shape.draft_vocab_size,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "torch_dtype": str(dtype).removeprefix("torch."),
    }


def write_head(
    folder: Path, module: HeadModule, vocab: DraftVocab, target_config: JsonObject, dtype: torch.dtype
) -> None:
    def save(file: Path) -> None:
        save_file(published_tensors(module, vocab, dtype), file, metadata={"format": "pt"})
        file.chmod(0o644)

    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", head_config(module.shape, target_config, dtype))
    write_atomically(folder / "model.safetensors", save)
