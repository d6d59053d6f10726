"""The tokenizer inside a GGUF file, written as tokenizer.json and tokenizer_config.json.

Byte-level BPE only (``tokenizer.ggml.model = gpt2``). GGUF names the splitting of text into words
(``tokenizer.ggml.pre``) but does not carry it; the ones here are those of the models' own tokenizer.json files.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

CONTROL, USER_DEFINED, UNUSED = 3, 4, 5  # gguf.TokenType
SPECIAL_TOKENS = ("bos", "eos", "padding", "unknown", "eot", "eom")

QWEN2_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def smollm_words() -> tuple[Any, Any]:
    """SmolLM: every digit alone, then GPT-2's words; no normaliser."""
    from tokenizers import pre_tokenizers

    digits = pre_tokenizers.Digits(individual_digits=True)
    return None, pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])


def qwen2_words() -> tuple[Any, Any]:
    """Qwen2 and 2.5: one expression, text in NFC."""
    from tokenizers import Regex, normalizers, pre_tokenizers

    split = pre_tokenizers.Split(Regex(QWEN2_WORDS), behavior="isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return normalizers.NFC(), pre_tokenizers.Sequence([split, byte_level])


WORD_SPLITTERS = {"smollm": smollm_words, "qwen2": qwen2_words}


def check_tokenizer(fields: dict[str, Any], source: Path) -> None:
    """Raises ValueError for a tokenizer that cannot be written, or one of whose keys is missing or odd."""
    model, words = fields.get("tokenizer.ggml.model"), fields.get("tokenizer.ggml.pre")
    if model != "gpt2" or words not in WORD_SPLITTERS:
        raise ValueError(
            f"{source}: GGUF tokenizer is model={model!r}, pre={words!r}; allowed: model='gpt2' with pre in "
            f"{', '.join(WORD_SPLITTERS)}; use the Hugging Face directory of this model"
        )
    if fields.get("tokenizer.ggml.add_bos_token", False):
        raise ValueError(
            f"{source}: tokenizer.ggml.add_bos_token is true; allowed: false; use the Hugging Face directory"
        )
    for key, kind in (("tokens", str), ("token_type", int), ("merges", str)):
        entries = fields.get(f"tokenizer.ggml.{key}")
        if not isinstance(entries, list) or not all(isinstance(entry, kind) for entry in entries):
            raise ValueError(f"{source}: GGUF key tokenizer.ggml.{key} is missing or not a list of {kind.__name__}")
    tokens, types = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
    if len(tokens) != len(types):
        raise ValueError(f"{source}: tokenizer.ggml.token_type has {len(types)} entries; allowed: {len(tokens)}")
    if odd := [merge for merge in fields["tokenizer.ggml.merges"] if merge.count(" ") != 1]:
        raise ValueError(f"{source}: tokenizer.ggml.merges has {odd[0][:80]!r}; allowed: two parts and a space")
    for name in SPECIAL_TOKENS:
        index = fields.get(f"tokenizer.ggml.{name}_token_id", 0)
        if not isinstance(index, int) or not 0 <= index < len(tokens):
            raise ValueError(
                f"{source}: tokenizer.ggml.{name}_token_id is {index!r}; allowed: an id below {len(tokens)}"
            )


def write_tokenizer(directory: Path, fields: dict[str, Any], source: Path) -> None:
    """Write tokenizer.json and tokenizer_config.json from GGUF key-values that `check_tokenizer` has passed."""
    try:
        tokenizer = build_tokenizer(fields, WORD_SPLITTERS[fields["tokenizer.ggml.pre"]])
    except Exception as error:  # tokenizers raises nothing more special
        raise ValueError(f"{source}: the GGUF tokenizer cannot be built: {error}") from error
    tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(json.dumps(tokenizer_config(fields), indent=2) + "\n")


def build_tokenizer(fields: dict[str, Any], make_words: Any) -> Any:
    """The ``tokenizers.Tokenizer``; control tokens become special tokens, unused padding rows stay out."""
    from tokenizers import AddedToken, Tokenizer, decoders, models

    tokens, types = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
    vocab = {token: index for index, token in enumerate(tokens) if types[index] != UNUSED}
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, fuse_unk=False))
    normalizer, words = make_words()
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = words
    tokenizer.decoder = decoders.ByteLevel()
    added = [(tokens[i], kind == CONTROL) for i, kind in enumerate(types) if kind in (CONTROL, USER_DEFINED)]
    tokenizer.add_tokens([AddedToken(text, special=special, normalized=False) for text, special in added])
    return tokenizer


def tokenizer_config(fields: dict[str, Any]) -> dict[str, Any]:
    """tokenizer_config.json: special tokens by name, chat template, and the class that reads tokenizer.json as is."""
    tokens = fields["tokenizer.ggml.tokens"]
    names = {"bos_token": "bos", "eos_token": "eos", "pad_token": "padding", "unk_token": "unknown"}
    ids = {name: fields.get(f"tokenizer.ggml.{key}_token_id") for name, key in names.items()}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": fields[f"{fields['general.architecture']}.context_length"],
        **{name: tokens[index] for name, index in ids.items() if index is not None},
        **({"chat_template": fields["tokenizer.chat_template"]} if "tokenizer.chat_template" in fields else {}),
    }
