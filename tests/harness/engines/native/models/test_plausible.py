"""A model that knows plain English no better than a guess is marked; one that knows its letters is not."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
from toy.checkpoints import Tensors, llama_config, load_written, write_llama

from specbench.harness.engines.native import plausible
from specbench.harness.engines.native.plausible import NOT_PLAUSIBLE, implausible

BYTES = 257  # ids are bytes + 1
CONFIG = llama_config(num_hidden_layers=1, vocab_size=BYTES)


class Bytes:
    def encode(self, text: str) -> list[int]:
        return [byte + 1 for byte in text.encode()]


def knows_letters(tensors: Tensors) -> None:
    """Whatever came before, the next letter is as likely as it is in the text."""
    counts = Counter(Bytes().encode(plausible._TEXT))
    for name, tensor in tensors.items():
        if name.endswith(("o_proj.weight", "down_proj.weight", "embed_tokens.weight", "lm_head.weight")):
            tensor.zero_()
    tensors["model.norm.weight"].fill_(1)
    tensors["model.embed_tokens.weight"][:, 0] = 1  # 8 behind the norm over 64
    for token in range(BYTES):
        tensors["lm_head.weight"][token, 0] = math.log((counts[token] + 0.01) / sum(counts.values())) / 8


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_model_of_letters_is_plausible_and_its_mirror_image_is_not(tmp_path, dtype):
    write_llama(tmp_path / "a", CONFIG, change=knows_letters)
    assert implausible(load_written(tmp_path / "a", dtype=dtype), Bytes()) == ""

    def rolled(tensors: Tensors) -> None:
        knows_letters(tensors)
        tensors["lm_head.weight"] = tensors["lm_head.weight"].roll(100, 0)  # every letter in the wrong row

    write_llama(tmp_path / "b", CONFIG, change=rolled)
    mark = implausible(load_written(tmp_path / "b", dtype=dtype), Bytes())
    assert mark.startswith(f"{NOT_PLAUSIBLE}: -") and mark.endswith("a uniform guess has -5.55")


def test_random_weights_are_not_plausible(tmp_path):
    write_llama(tmp_path, CONFIG)
    assert implausible(load_written(tmp_path), Bytes()).startswith(NOT_PLAUSIBLE)


def test_a_tokenizer_of_another_model(tmp_path):
    write_llama(tmp_path, llama_config(num_hidden_layers=1, vocab_size=100))
    mark = implausible(load_written(tmp_path), Bytes())
    most = max(Bytes().encode(plausible._TEXT)[:128])
    assert mark == f"{NOT_PLAUSIBLE}: the tokenizer has id {most}, the model ids below 100"
