"""GGUF to Hugging Face, on tiny models written with gguf's own writer and compared with transformers."""

from __future__ import annotations

import json

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM
from workloads.gguf.files import SHAPE, tiny_model, vocabulary, write_gguf

from specbench.workloads.assets import gguf as converter
from specbench.workloads.assets.cache import AssetError
from specbench.workloads.assets.gguf import convert_gguf
from specbench.workloads.assets.model_source import resolve_model
from specbench.workloads.tokenizer import load_tokenizer, read_eos_ids


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_converted_model_is_the_written_model(tmp_path, architecture, tied):
    model = tiny_model(architecture, tied)
    out = convert_gguf(write_gguf(tmp_path / "m.gguf", architecture, model), tmp_path / "out")
    loaded = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32, trust_remote_code=False)
    assert type(loaded) is type(model)
    assert loaded.config.tie_word_embeddings is tied
    assert {tensor.dtype for tensor in load_file(out / "model.safetensors").values()} == {torch.bfloat16}
    ids_T = torch.arange(3, 40)[None]
    with torch.no_grad():
        torch.testing.assert_close(loaded(ids_T).logits, model(ids_T).logits, rtol=0, atol=0)


@pytest.mark.parametrize("kind", ["Q4_1", "Q8_0"])
def test_quantised_weights_are_dequantised(tmp_path, kind):
    quantise = gguf.GGMLQuantizationType[kind]
    model = tiny_model("llama", tied=True)
    out = convert_gguf(write_gguf(tmp_path / "m.gguf", "llama", model, quantise=quantise), tmp_path / "out")
    name = "model.layers.1.self_attn.q_proj.weight"
    original = dict(model.named_parameters())[name].detach().numpy()
    # quantisation works within rows, so permuting rows does not change it
    expected = gguf.quants.dequantize(gguf.quants.quantize(original, quantise), quantise)
    found = load_file(out / "model.safetensors")[name]
    assert torch.equal(found, torch.from_numpy(expected).to(torch.bfloat16))
    assert not np.array_equal(expected, original)


def test_config_says_what_the_gguf_says(llama, tmp_path):
    out = convert_gguf(llama, tmp_path / "out")
    config = json.loads((out / "config.json").read_text())
    assert {key: config[key] for key in SHAPE} == SHAPE
    assert config["architectures"] == ["LlamaForCausalLM"] and config["torch_dtype"] == "bfloat16"
    assert read_eos_ids(out, None) == (2, 0), "end of turn, then end of document"


def test_tokenizer_splits_text_as_the_model_was_trained(llama, tmp_path):
    tokenizer = load_tokenizer(convert_gguf(llama, tmp_path / "out"))
    tokens, _ = vocabulary()
    pieces = [tokens[index] for index in tokenizer.encode("hello  w12<tool>\n\n3<|im_end|>é")]
    # each digit alone; spaces and line ends before a digit stay together
    assert pieces == ["hello", "Ġ", "Ġw", "1", "2", "<tool>", "ĊĊ", "3", "<|im_end|>", "Ã", "©"]
    text = "hello 123\n\n4 wörld 你好 😀  \t\r\n x"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.encode("") == []
    assert tokenizer.vocab_size == len(tokens) - 1, "padding rows are not tokens"


def test_chat_template_comes_along(llama, tmp_path):
    tokenizer = load_tokenizer(convert_gguf(llama, tmp_path / "out"))
    messages = [{"role": "user", "content": "hello"}]
    assert tokenizer.render_chat(messages) == "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    ids = tokenizer.apply_chat_template(messages)
    assert (ids[0], ids.count(1), ids.count(2)) == (1, 2, 1)


def test_qwen2_tokenizer_normalises_and_splits(tmp_path):
    path = write_gguf(tmp_path / "m.gguf", "qwen2", tiny_model("qwen2", tied=True), pre="qwen2")
    tokenizer = load_tokenizer(convert_gguf(path, tmp_path / "out"))
    assert tokenizer.encode("e\u0301") == tokenizer.encode("é")
    tokens, _ = vocabulary()
    assert [tokens[i] for i in tokenizer.encode("\n\nhello 12")] == ["ĊĊ", "hello", "Ġ", "1", "2"]


def test_second_call_does_nothing(llama, tmp_path, monkeypatch):
    out = convert_gguf(llama, tmp_path / "out")
    monkeypatch.setattr(converter, "open_gguf", lambda path: pytest.fail("read again"))
    assert convert_gguf(llama, tmp_path / "out") == out


def test_an_interrupted_conversion_leaves_nothing(llama, tmp_path, monkeypatch):
    real = converter.write_weights
    monkeypatch.setattr(converter, "write_weights", lambda *args: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        convert_gguf(llama, tmp_path / "deep" / "out")
    assert list((tmp_path / "deep").iterdir()) == []
    monkeypatch.setattr(converter, "write_weights", real)
    assert (convert_gguf(llama, tmp_path / "deep" / "out") / "model.safetensors").is_file()


def test_an_unfinished_directory_is_replaced(llama, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "model.safetensors").write_bytes(b"half")
    assert (convert_gguf(llama, tmp_path / "out") / "model.safetensors").stat().st_size > 4
    assert converter.is_converted(tmp_path / "out")


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json"])
def test_a_converted_file_that_was_altered_is_named(llama, tmp_path, name):
    file = convert_gguf(llama, tmp_path / "out") / name
    whole = bytearray(file.read_bytes())
    whole[-20] ^= 1
    file.write_bytes(whole)
    with pytest.raises(AssetError, match=rf"{name} was altered: .*; delete {tmp_path}/out, and it is converted again"):
        convert_gguf(llama, tmp_path / "out")
    file.unlink()
    with pytest.raises(AssetError, match=f"{name} is missing; delete"):
        convert_gguf(llama, tmp_path / "out")


def test_a_copy_without_seals_gets_them(llama, tmp_path):
    seals = convert_gguf(llama, tmp_path / "out") / converter.SEALS
    said = seals.read_bytes()
    seals.unlink()
    convert_gguf(llama, tmp_path / "out")
    assert seals.read_bytes() == said
    (tmp_path / "out" / "config.json").write_text("{}")
    with pytest.raises(AssetError, match="config.json was altered"):
        convert_gguf(llama, tmp_path / "out")


def test_resolve_model_takes_files_and_directories(llama, tmp_path):
    from_file = resolve_model(llama)
    assert from_file == resolve_model(str(llama))
    assert from_file.source == f"file:{llama}" and (from_file.path / "config.json").is_file()
    from_directory = resolve_model(from_file.path)
    assert from_directory.path == from_file.path
    (tmp_path / "x.jsonl").write_text("{}\n")
    with pytest.raises(ValueError, match="is a file; allowed: a .gguf file"):
        resolve_model(tmp_path / "x.jsonl")


def test_python_code_of_a_model_is_never_run(tmp_path, monkeypatch):
    """transformers would ask on stdin, where a script may answer `y`."""
    code = f"open({str(tmp_path / 'was_run')!r}, 'w')\nclass EvilTok: pass\n"
    (tmp_path / "evil.py").write_text(code)
    (tmp_path / "config.json").write_text("{}")
    tokenizer = {"tokenizer_class": "EvilTok", "auto_map": {"AutoTokenizer": ["evil.EvilTok", None]}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    monkeypatch.setattr("builtins.input", lambda *words: "y")
    with pytest.raises(ValueError, match="Python code that comes with the model, which is never run"):
        load_tokenizer(tmp_path)
    assert not (tmp_path / "was_run").exists()


def test_a_model_without_template_says_so(llama, tmp_path):
    out = convert_gguf(llama, tmp_path / "out")
    config = json.loads((out / "tokenizer_config.json").read_text())
    del config["chat_template"]
    (out / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="no chat template"):
        load_tokenizer(out).apply_chat_template([{"role": "user", "content": "x"}])


def test_a_directory_without_tokenizer_says_so(tmp_path):
    with pytest.raises(ValueError, match="no usable tokenizer"):
        load_tokenizer(tmp_path)
    with pytest.raises(ValueError, match="does not exist"):
        load_tokenizer(tmp_path / "gone")
