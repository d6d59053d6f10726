"""The model directory that another engine serves, and what a run must know about it; weights are not loaded here."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from specbench.harness.engines.base import Model, OpenProgress
from specbench.harness.engines.native.models.config import TARGET_ARCHITECTURES, ModelConfig
from specbench.harness.engines.native.models.quantization import BLOCK
from specbench.harness.engines.native.models.shapes import published_shape
from specbench.harness.spec.conditions import RunConfig
from specbench.harness.spec.devices import pick_device, pick_dtype
from specbench.harness.store.codec import read_object
from specbench.harness.store.inputs_record import ModelRecord
from specbench.workloads.assets.cache import atomic_file, cache_root
from specbench.workloads.assets.model_source import resolve_model
from specbench.workloads.tokenizer import load_tokenizer

_EAGLE3 = "LlamaForCausalLMEagle3"


@dataclass(frozen=True, slots=True)
class ServedModel:
    """`path`: a directory in Hugging Face format; for random weights it contains only a config.json."""

    model: Model
    path: Path


def open_model(config: RunConfig, progress: OpenProgress) -> ServedModel:
    """Fetches and converts the run's model. ValueError naming what does not fit."""
    dtype = pick_dtype(config.dtype, pick_device(config.device))
    described = ModelRecord(name=config.model, dtype=str(dtype).removeprefix("torch."), device=config.device)
    if config.load_format == "dummy":
        return _of_random_weights(config, described)
    progress.say(f"finding {config.model}")
    found = resolve_model(config.model, progress=progress.asset)
    raw = read_object(found.path / "config.json")
    tokenizer = load_tokenizer(found.path)
    vocab_size = raw.get("vocab_size")
    model = Model(
        described=replace(described, source=found.source, sha256=found.sha256, synthetic=False),
        vocab_size=vocab_size if isinstance(vocab_size, int) else tokenizer.vocab_size,
        tokenizer=tokenizer,
        eos_token_ids=tokenizer.eos_ids,
    )
    return ServedModel(model, found.path)


def random_head(head: str, config: RunConfig, eagle1: str) -> Path | None:
    """A directory that describes a head of the run's published shape, for random weights; None if `head` names another.

    `eagle1`: the engine's name of the architecture of EAGLE-1. That of EAGLE-3 is the same in all engines.
    """
    if head == "random":
        return _random_eagle3(config)
    return _random_eagle1(config, eagle1) if head == "random-eagle1" else None


def _random_eagle3(config: RunConfig) -> Path:
    shape = published_shape(config.model)
    of_head = {"draft_vocab_size": shape.draft_vocab_size, "tie_word_embeddings": False}
    return _written(f"{config.model}-eagle3", {**_hub_config(_one_layer(shape.config), _EAGLE3), **of_head})


def _random_eagle1(config: RunConfig, architecture: str) -> Path:
    """It drafts from the target's whole vocabulary."""
    shape = _one_layer(published_shape(config.model).config)
    return _written(f"{config.model}-{architecture}", _hub_config(shape, architecture))


def _one_layer(target: ModelConfig) -> ModelConfig:
    """The shape of a head, which has neither experts nor quantized weights."""
    return replace(target, num_layers=1, experts=None, fp8=None)


def _of_random_weights(config: RunConfig, described: ModelRecord) -> ServedModel:
    published = published_shape(config.model)
    shape = published.config if config.num_layers is None else published.config.with_layers(config.num_layers)
    described = replace(
        described,
        source=f"random weights of the shape of {published.hub_name}",
        sha256="",
        synthetic=True,
        num_layers=shape.num_layers,
    )
    model = Model(described=described, vocab_size=shape.vocab_size, tokenizer=None, eos_token_ids=())
    return ServedModel(model, _written(f"{config.model}-{shape.num_layers}", _hub_config(shape, _architecture(shape))))


def _architecture(shape: ModelConfig) -> str:
    """The class of transformers that computes this shape."""
    computed = shape.qkv_bias, shape.qk_norm, shape.experts is not None
    classes = TARGET_ARCHITECTURES.items()
    return next(name for name, a in classes if (bool(a.qkv_bias), a.qk_norm, bool(a.more_keys)) == computed)


def _hub_config(shape: ModelConfig, architecture: str) -> dict[str, object]:
    """The configuration as in a hub's config.json."""
    rope = shape.rope_scaling
    scaling = {"rope_type": rope.rope_type, **asdict(rope)} if rope else None
    return {
        "architectures": [architecture],
        "model_type": known.model_type if (known := TARGET_ARCHITECTURES.get(architecture)) else "llama",
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_hidden_layers": shape.num_layers,
        "num_attention_heads": shape.num_q_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "head_dim": shape.head_dim,
        "vocab_size": shape.vocab_size,
        "rms_norm_eps": shape.rms_norm_eps,
        "rope_theta": shape.rope_theta,
        "max_position_embeddings": shape.max_position,
        "tie_word_embeddings": shape.tie_word_embeddings,
        "hidden_act": "silu",
        "torch_dtype": "bfloat16",
        "bos_token_id": 1,
        "eos_token_id": 2,
        **({"rope_scaling": scaling} if scaling else {}),
        **_experts(shape),
        **_quantization(shape),
    }


def _experts(shape: ModelConfig) -> dict[str, object]:
    if (experts := shape.experts) is None:
        return {}
    return {
        "num_experts": experts.num_experts,
        "num_experts_per_tok": experts.per_token,
        "moe_intermediate_size": experts.intermediate_size,
        "norm_topk_prob": experts.normalised,
        "decoder_sparse_step": experts.step,
        "mlp_only_layers": list(experts.dense_layers),
    }


def _quantization(shape: ModelConfig) -> dict[str, object]:
    """In Qwen's form: no other published shape is quantized."""
    if (fp8 := shape.fp8) is None:
        return {}
    assert fp8.scales == "block" and fp8.activations == "dynamic", "no published shape has another form"
    kept = [
        f"model.layers.{layer}.{name}"
        for name in fp8.unquantized
        if name != "lm_head"
        for layer in range(shape.num_layers)
    ]
    return {
        "quantization_config": {
            "quant_method": "fp8",
            "fmt": "e4m3",
            "activation_scheme": "dynamic",
            "weight_block_size": [BLOCK, BLOCK],
            "modules_to_not_convert": ["lm_head", *kept],
        }
    }


def _written(name: str, config: dict[str, object]) -> Path:
    folder = cache_root() / "shapes" / name
    with atomic_file(folder / "config.json") as file:
        file.write(json.dumps(config, indent=1).encode())
    return folder
