"""Published shapes for `--load-format dummy`: machine speed without any download.

Figures from the models' config.json on the hub; the draft vocabularies are those of published EAGLE-3 heads (32,000),
whose layer has the target's width, or, for SmolLM2, the size used for comparison with vLLM.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from specbench.harness.engines.native.models.config import ModelConfig
from specbench.harness.engines.native.models.experts_config import ExpertsConfig
from specbench.harness.engines.native.models.quantization import Fp8Format
from specbench.harness.engines.native.models.rope_scaling import Llama3Scaling

_LLAMA31_8B = ModelConfig(
    hidden_size=4096,
    intermediate_size=14336,
    num_layers=32,
    num_q_heads=32,
    num_kv_heads=8,
    head_dim=128,
    vocab_size=128256,
    rope_theta=5e5,
    rope_scaling=Llama3Scaling(
        factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192
    ),
    max_position=131072,
)
_QWEN3_8B = ModelConfig(
    hidden_size=4096,
    intermediate_size=12288,
    num_layers=36,
    num_q_heads=32,
    num_kv_heads=8,
    head_dim=128,
    vocab_size=151936,
    rms_norm_eps=1e-6,
    rope_theta=1e6,
    max_position=40960,
    qk_norm=True,
)
_QWEN3_30B_A3B = replace(
    _QWEN3_8B,
    hidden_size=2048,
    intermediate_size=6144,
    num_layers=48,
    num_kv_heads=4,
    experts=ExpertsConfig(num_experts=128, per_token=8, intermediate_size=768, normalised=True),
)
_QWEN_FP8 = Fp8Format(scales="block", unquantized=("lm_head", "mlp.gate"))


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedShape:
    """A target's shape and the draft vocabulary of the EAGLE-3 head that goes with it."""

    config: ModelConfig
    draft_vocab_size: int
    hub_name: str


SHAPES: dict[str, PublishedShape] = {
    "llama-3.1-8b": PublishedShape(
        hub_name="meta-llama/Llama-3.1-8B-Instruct", draft_vocab_size=32000, config=_LLAMA31_8B
    ),
    "llama-3.3-70b": PublishedShape(
        hub_name="meta-llama/Llama-3.3-70B-Instruct",
        draft_vocab_size=32000,
        config=replace(_LLAMA31_8B, hidden_size=8192, intermediate_size=28672, num_layers=80, num_q_heads=64),
    ),
    "llama-2-70b": PublishedShape(
        hub_name="meta-llama/Llama-2-70b-chat-hf",
        draft_vocab_size=32000,
        config=ModelConfig(
            hidden_size=8192,
            intermediate_size=28672,
            num_layers=80,
            num_q_heads=64,
            num_kv_heads=8,
            head_dim=128,
            vocab_size=32000,
            max_position=4096,
        ),
    ),
    "mistral-7b": PublishedShape(
        hub_name="mistralai/Mistral-7B-Instruct-v0.3",
        draft_vocab_size=32000,
        config=ModelConfig(
            hidden_size=4096,
            intermediate_size=14336,
            num_layers=32,
            num_q_heads=32,
            num_kv_heads=8,
            head_dim=128,
            vocab_size=32768,
            rope_theta=1e6,
            max_position=32768,
        ),
    ),
    "qwen2.5-1.5b": PublishedShape(
        hub_name="Qwen/Qwen2.5-1.5B-Instruct",
        draft_vocab_size=32000,
        config=ModelConfig(
            hidden_size=1536,
            intermediate_size=8960,
            num_layers=28,
            num_q_heads=12,
            num_kv_heads=2,
            head_dim=128,
            vocab_size=151936,
            rms_norm_eps=1e-6,
            rope_theta=1e6,
            max_position=32768,
            tie_word_embeddings=True,
            qkv_bias=True,
        ),
    ),
    "qwen3-0.6b": PublishedShape(
        hub_name="Qwen/Qwen3-0.6B",
        draft_vocab_size=32000,
        config=replace(
            _QWEN3_8B,
            hidden_size=1024,
            intermediate_size=3072,
            num_layers=28,
            num_q_heads=16,
            tie_word_embeddings=True,
        ),
    ),
    "qwen3-4b": PublishedShape(
        hub_name="Qwen/Qwen3-4B",
        draft_vocab_size=32000,
        config=replace(_QWEN3_8B, hidden_size=2560, intermediate_size=9728, tie_word_embeddings=True),
    ),
    "qwen3-8b": PublishedShape(hub_name="Qwen/Qwen3-8B", draft_vocab_size=32000, config=_QWEN3_8B),
    "qwen3-32b": PublishedShape(
        hub_name="Qwen/Qwen3-32B",
        draft_vocab_size=32000,
        config=replace(_QWEN3_8B, hidden_size=5120, intermediate_size=25600, num_layers=64, num_q_heads=64),
    ),
    "qwen3-30b-a3b": PublishedShape(hub_name="Qwen/Qwen3-30B-A3B", draft_vocab_size=32000, config=_QWEN3_30B_A3B),
    "qwen3-30b-a3b-fp8": PublishedShape(
        hub_name="Qwen/Qwen3-30B-A3B-FP8", draft_vocab_size=32000, config=replace(_QWEN3_30B_A3B, fp8=_QWEN_FP8)
    ),
    "smollm2-135m": PublishedShape(
        hub_name="HuggingFaceTB/SmolLM2-135M-Instruct",
        draft_vocab_size=16384,
        config=ModelConfig(
            hidden_size=576,
            intermediate_size=1536,
            num_layers=30,
            num_q_heads=9,
            num_kv_heads=3,
            head_dim=64,
            vocab_size=49152,
            rope_theta=1e5,
            max_position=8192,
            tie_word_embeddings=True,
        ),
    ),
    "toy": PublishedShape(
        hub_name="(none: two small layers for tests)",
        draft_vocab_size=96,
        config=ModelConfig(
            hidden_size=64,
            intermediate_size=128,
            num_layers=2,
            num_q_heads=4,
            num_kv_heads=2,
            head_dim=16,
            vocab_size=128,
            max_position=4096,
            tie_word_embeddings=True,
        ),
    ),
}


def published_shape(name: str) -> PublishedShape:
    """Raises ValueError with the known names."""
    if name not in SHAPES:
        raise ValueError(f"model: no published shape {name!r} for --load-format dummy; allowed: {', '.join(SHAPES)}")
    return SHAPES[name]
