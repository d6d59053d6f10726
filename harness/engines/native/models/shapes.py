"""Published shapes for `--load-format dummy`: machine speed without any download.

Figures from the models' config.json on the hub; the draft vocabularies are those of published EAGLE-3 heads (32,000)
or, for SmolLM2, the size used for comparison with vLLM.
"""

from __future__ import annotations

from dataclasses import dataclass

from specbench.harness.engines.native.models.config import ModelConfig, RopeScaling

_LLAMA31_ROPE = RopeScaling(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position=8192)


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedShape:
    """A target's shape and the draft vocabulary of the EAGLE-3 head that goes with it."""

    config: ModelConfig
    draft_vocab_size: int
    hub_name: str


SHAPES: dict[str, PublishedShape] = {
    "llama-3.1-8b": PublishedShape(
        hub_name="meta-llama/Llama-3.1-8B-Instruct",
        draft_vocab_size=32000,
        config=ModelConfig(
            hidden_size=4096,
            intermediate_size=14336,
            num_layers=32,
            num_q_heads=32,
            num_kv_heads=8,
            head_dim=128,
            vocab_size=128256,
            rope_theta=5e5,
            rope_scaling=_LLAMA31_ROPE,
            max_position=131072,
        ),
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
