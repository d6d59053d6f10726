"""The target's tokenizer and chat template."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from specbench.workloads.guarded import read_json_object

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class ModelTokenizer:
    """A thin object over transformers' tokenizer; it satisfies ``workloads.base.Tokenizer``."""

    def __init__(self, inner: PreTrainedTokenizerBase, eos_ids: tuple[int, ...], source: Path) -> None:
        self._inner = inner
        self._source = source
        self.eos_ids = eos_ids

    @property
    def vocab_size(self) -> int:
        """Number of ids the tokenizer knows; a model may have more rows (padding of the embedding)."""
        return len(self._inner)

    @property
    def bos_id(self) -> int | None:
        """The id that begins a text, where the tokenizer has one."""
        return self._inner.bos_token_id

    @property
    def has_chat_template(self) -> bool:
        return bool(self._inner.chat_template)

    def encode(self, text: str) -> list[int]:
        """Ids of plain text, with the special tokens the model's own tokenizer adds (a BOS for some models)."""
        return list(self._inner.encode(text, verbose=False))

    def encode_raw(self, text: str) -> list[int]:
        """Ids of plain text with nothing added: the length of an answer, for example."""
        return list(self._inner.encode(text, add_special_tokens=False, verbose=False))

    def decode(self, ids: list[int] | tuple[int, ...]) -> str:
        return str(self._inner.decode(list(ids), skip_special_tokens=True))

    def render_chat(self, messages: list[dict[str, str]]) -> str:
        """The chat template's text, up to and including the header of the assistant's turn.

        Raises ValueError where the model has no template (a base model), and where the template fails or refuses the
        conversation.
        """
        if not self.has_chat_template:
            raise ValueError(
                f"{self._source} has no chat template (a base model?); use an instruct model, "
                "or a JSONL workload with 'prompt' or 'prompt_token_ids'"
            )
        try:
            return str(self._inner.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))
        except Exception as error:  # the template is a program that comes with the model and may fail in any way
            raise ValueError(f"the chat template of {self._source} failed: {_one_line(error)}") from error

    def apply_chat_template(self, messages: list[dict[str, str]]) -> list[int]:
        """Ids of a conversation, ready for the assistant's turn."""
        return self.encode_raw(self.render_chat(messages))


def load_tokenizer(model_dir: str | Path) -> ModelTokenizer:
    """The tokenizer of a Hugging Face model directory. Raises ValueError where the files are missing or broken."""
    from transformers import AutoTokenizer  # seconds to import, so not at the top

    path = Path(model_dir)
    if not path.is_dir():
        raise ValueError(f"tokenizer directory {path} does not exist; allowed: a Hugging Face model directory")
    try:
        inner = AutoTokenizer.from_pretrained(str(path), local_files_only=True, trust_remote_code=False)
    except Exception as error:  # broken files make the libraries raise anything, a bare Exception too
        code = "it is Python code that comes with the model, which is never run"
        reason = code if "trust_remote_code" in str(error) else _one_line(error)
        raise ValueError(f"no usable tokenizer in {path} (expected tokenizer.json): {reason}") from error
    return ModelTokenizer(inner, read_eos_ids(path, inner.eos_token_id), path)


def read_eos_ids(model_dir: Path, tokenizer_eos_id: int | None) -> tuple[int, ...]:
    """Ids that end a generation: generation_config.json's, else config.json's, else the tokenizer's."""
    for file in ("generation_config.json", "config.json"):
        path = model_dir / file
        value = read_json_object(path).get("eos_token_id") if path.is_file() else None
        ids = value if isinstance(value, list) else [] if value is None else [value]
        if wrong := [token for token in ids if type(token) is not int or token < 0]:
            raise ValueError(f"{path}: eos_token_id holds {wrong[0]!r}; allowed: a token id, or a list of them")
        if value is not None:
            return tuple(ids)
    return () if tokenizer_eos_id is None else (int(tokenizer_eos_id),)


def _one_line(error: Exception) -> str:
    """The error's text, with its type if the text alone would say little."""
    text = " ".join(str(error).split())
    return text if isinstance(error, (OSError, ValueError)) and text else f"{type(error).__name__}: {text}"
