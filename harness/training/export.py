"""A trained head in the published EAGLE-3 format: `config.json` and `model.safetensors`, as vLLM and SGLang read it."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from specbench.harness.store.files import write_atomically, write_json
from specbench.workloads.json_values import JsonObject

from .draft_vocab import DraftVocab
from .head_module import PLACEHOLDER_ID, HeadModule

# Keys that the head shares with the target's config. The aux layers are the default of the reference implementation
# (entering 2, N // 2 and N - 3); a list of ids is left out, as engines interpret it by different conventions.
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
    c = module.config
    q, kv = c.num_q_heads * c.head_dim, c.num_kv_heads * c.head_dim
    query, key, value = module.qkv.split([q, kv, kv])
    gate, up = module.gate_up.chunk(2)
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
    if module.placeholder is not None:
        tensors["mask_hidden"] = module.placeholder.unsqueeze(0)
    result = {name: t.detach().to("cpu", dtype).contiguous().clone() for name, t in tensors.items()}
    return result | {"d2t": vocab.d2t_Vd.clone(), "t2d": vocab.t2d_V.clone()}


def head_config(module: HeadModule, target: JsonObject, dtype: torch.dtype) -> JsonObject:
    """config.json of the head; `target` is the target's."""
    shared = {key: target[key] for key in _SHARED_KEYS if target.get(key) is not None}
    kind = {} if module.placeholder is None else {"ptd_token_id": PLACEHOLDER_ID}
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        **shared,
        **kind,
        "head_dim": module.config.head_dim,
        "num_key_value_heads": module.config.num_kv_heads,
        "intermediate_size": module.config.intermediate_size,
        "num_hidden_layers": 1,
        "draft_vocab_size": len(module.lm_head),
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
    write_json(folder / "config.json", head_config(module, target_config, dtype))
    write_atomically(folder / "model.safetensors", save)
