"""What the metadata of a GGUF file says about the model, checked as it is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

# What config.json says beyond the file's own values, by GGUF architecture; its name is the model_type too.
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "llama": {"architectures": ["LlamaForCausalLM"], "attention_bias": False, "mlp_bias": False},
    "qwen2": {"architectures": ["Qwen2ForCausalLM"], "use_sliding_window": False},
    "qwen3": {"architectures": ["Qwen3ForCausalLM"], "attention_bias": False, "use_sliding_window": False},
}
PERMUTED_QK = "llama"
# Behind the architecture's name. The vocabulary is counted, and the layout of the file is the reader's.
KNOWN_KEYS = (
    "block_count", "context_length", "embedding_length", "feed_forward_length", "vocab_size", "tensor_data_layout",
    "attention.head_count", "attention.head_count_kv", "attention.key_length", "attention.value_length",
    "attention.layer_norm_rms_epsilon", "rope.freq_base", "rope.dimension_count", "rope.scaling.type",
)  # fmt: skip


class GgufMetadata:
    """The key-value part of a GGUF file, with errors that name the missing key."""

    def __init__(self, reader: Any, source: Path) -> None:
        self.source = source
        self.fields = {key: field.contents() for key, field in reader.fields.items()}
        self.architecture = str(self.fields.get("general.architecture"))
        if self.architecture not in ARCHITECTURES:
            raise ValueError(
                f"{source}: GGUF architecture is {self.architecture!r}; allowed: {', '.join(ARCHITECTURES)}"
            )
        if any(tensor.name == "rope_freqs.weight" for tensor in reader.tensors):
            raise ValueError(
                f"{source}: scaled rotary embeddings (rope_freqs) in GGUF are not read; use the HF directory"
            )

    def arch(self, key: str, default: Any = None) -> Any:
        """The architecture's own value, for example ``arch("block_count")`` for ``llama.block_count``."""
        value = self.fields.get(f"{self.architecture}.{key}", default)
        if value is None:
            raise ValueError(f"{self.source}: GGUF key {self.architecture}.{key} is missing")
        return value

    def whole(self, key: str, default: int | None = None) -> int:
        """The architecture's own size. Raises ValueError if it is not a positive whole number."""
        value = self.arch(key, default)
        if not isinstance(value, int) or value < 1:
            raise ValueError(
                f"{self.source}: GGUF key {self.architecture}.{key} is {value!r}; allowed: a whole number above 0"
            )
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self.arch(key, default)
        if not isinstance(value, (int, float)):
            raise ValueError(f"{self.source}: GGUF key {self.architecture}.{key} is {value!r}; allowed: a number")
        return float(value)

    def check_known(self) -> None:
        """Raises ValueError for a key of the architecture that may change the model and that nothing here reads."""
        for key, value in self.fields.items():
            name = key.removeprefix(f"{self.architecture}.")
            if name != key and name not in KNOWN_KEYS and value not in (0, ""):
                raise ValueError(
                    f"{self.source}: GGUF key {key} with {str(value)[:80]!r} is not read and may change the model; "
                    f"allowed: {', '.join(KNOWN_KEYS)}; use the Hugging Face directory"
                )
        for name in ("rope.dimension_count", "attention.value_length"):
            if self.whole(name, self.head_dim) != self.head_dim:
                raise ValueError(
                    f"{self.source}: GGUF key {self.architecture}.{name} is {self.arch(name)}; allowed: that of a "
                    f"whole head ({self.head_dim})"
                )

    @property
    def num_heads(self) -> int:
        return self.whole("attention.head_count")

    @property
    def num_kv_heads(self) -> int:
        return self.whole("attention.head_count_kv", self.num_heads)

    @property
    def head_dim(self) -> int:
        return self.whole("attention.key_length", self.whole("embedding_length") // self.num_heads)
