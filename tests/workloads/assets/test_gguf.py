"""GGUF to Hugging Face, on tiny models written with gguf's own writer and compared with transformers."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config

from specbench.harness.engines.native.models.loader import load_target
from specbench.workloads.assets import gguf as converter
from specbench.workloads.assets.cache import AssetError
from specbench.workloads.assets.gguf import convert_gguf
from specbench.workloads.assets.model_source import resolve_model
from specbench.workloads.tokenizer import load_tokenizer, read_eos_ids

SHAPE = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "rope_theta": 5000.0,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "pad_token_id": 2,
}
CONFIGS = {"llama": LlamaConfig, "qwen2": Qwen2Config, "qwen3": Qwen3Config}
GGUF_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ["h e", "l l", "he ll", "hell o", "Ġ w", "Ċ Ċ", "1 2"]


def byte_letters() -> list[str]:
    """The 256 letters byte-level BPE writes bytes with (GPT-2)."""
    from tokenizers.pre_tokenizers import ByteLevel

    return sorted(ByteLevel.alphabet())


def vocabulary() -> tuple[list[str], list[int]]:
    merged = ["".join(merge.split()) for merge in MERGES]
    tokens = [*SPECIAL, *byte_letters(), *merged, "<tool>", "[PAD0]"]
    types = [3] * len(SPECIAL) + [1] * (256 + len(merged)) + [4, 5]
    return tokens, types


def llama_cpp_permute(weight: np.ndarray, heads: int) -> np.ndarray:
    """What llama.cpp's converter does to q and k rows: written out row by row, to check the undoing of it."""
    dim = weight.shape[0] // heads
    out = np.empty_like(weight)
    for head in range(heads):
        for row in range(dim // 2):
            out[head * dim + 2 * row] = weight[head * dim + row]
            out[head * dim + 2 * row + 1] = weight[head * dim + row + dim // 2]
    return out


def tiny_model(architecture: str, tied: bool) -> torch.nn.Module:
    torch.manual_seed(0)
    tokens, _ = vocabulary()
    config = CONFIGS[architecture](**SHAPE, vocab_size=len(tokens), tie_word_embeddings=tied)
    model = AutoModelForCausalLM.from_config(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
        parameter.data = parameter.data.to(torch.bfloat16).float()  # what the converted copy can hold exactly
    return model


def gguf_name(name: str) -> str:
    top = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
    if name in top or name == "lm_head.weight":
        return top.get(name, "output.weight")
    _, _, layer, module, kind = name.replace("self_attn.", "self_attn/").replace("mlp.", "mlp/").split(".")
    return f"blk.{layer}.{GGUF_NAMES[module.replace('/', '.')]}.{kind}"


def write_gguf(path: Path, architecture: str, model: torch.nn.Module, *, quantise=None, pre="smollm", **extra) -> Path:
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(SHAPE["num_hidden_layers"])
    writer.add_context_length(SHAPE["max_position_embeddings"])
    writer.add_embedding_length(SHAPE["hidden_size"])
    writer.add_feed_forward_length(SHAPE["intermediate_size"])
    writer.add_head_count(SHAPE["num_attention_heads"])
    writer.add_head_count_kv(SHAPE["num_key_value_heads"])
    writer.add_key_length(SHAPE["head_dim"])
    writer.add_layer_norm_rms_eps(SHAPE["rms_norm_eps"])
    writer.add_rope_freq_base(SHAPE["rope_theta"])
    tokens, types = vocabulary()
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_chat_template(TEMPLATE)
    for key, value in extra.items():
        getattr(writer, key)(value)
    heads = {"q_proj": SHAPE["num_attention_heads"], "k_proj": SHAPE["num_key_value_heads"]}
    for name, parameter in model.named_parameters():
        values = parameter.detach().numpy()
        module = name.split(".")[-2]
        if architecture == "llama" and module in heads:
            values = llama_cpp_permute(values, heads[module])
        if quantise is not None and values.ndim == 2:
            writer.add_tensor(gguf_name(name), gguf.quants.quantize(values, quantise), raw_dtype=quantise)
        else:
            writer.add_tensor(gguf_name(name), values.copy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture(scope="module")
def llama(tmp_path_factory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf", "llama", tiny_model("llama", tied=True))


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


def test_bad_files_are_refused_in_one_line(llama, tmp_path):
    data = llama.read_bytes()
    cases = {"half": data[: len(data) // 2], "head": data[:100], "empty": b"", "other": b"not a gguf file" * 100}
    for name, content in cases.items():
        path = tmp_path / f"{name}.gguf"
        path.write_bytes(content)
        with pytest.raises(ValueError, match=f"{name}.gguf is not a readable GGUF file"):
            convert_gguf(path, tmp_path / name)
        assert not (tmp_path / name).exists()
    with pytest.raises(ValueError, match="gone.gguf does not exist"):
        convert_gguf(tmp_path / "gone.gguf", tmp_path / "out")


def test_what_is_not_supported_says_what_is(tmp_path):
    model = tiny_model("llama", tied=True)
    cases = [
        ({"pre": "mystery"}, "pre='mystery'; allowed: .*smollm, qwen2"),
        ({"add_add_bos_token": True}, "add_bos_token is true; allowed: false"),
        ({"add_rope_scaling_type": gguf.RopeScalingType.YARN}, "rope scaling 'yarn' in GGUF is not read"),
    ]
    for index, (extra, message) in enumerate(cases):
        path = write_gguf(tmp_path / f"{index}.gguf", "llama", model, **extra)
        with pytest.raises(ValueError, match=message):
            convert_gguf(path, tmp_path / "out")
    writer = gguf.GGUFWriter(tmp_path / "bert.gguf", "bert")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ValueError, match="architecture is 'bert'; allowed: llama, qwen2, qwen3"):
        convert_gguf(tmp_path / "bert.gguf", tmp_path / "out")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("tokenizer.ggml.tokens", None, "tokenizer.ggml.tokens is missing or no list of str"),
        ("tokenizer.ggml.tokens", [1, 2], "tokenizer.ggml.tokens is missing or no list of str"),
        ("tokenizer.ggml.token_type", None, "tokenizer.ggml.token_type is missing or no list of int"),
        ("tokenizer.ggml.token_type", [1], r"tokenizer.ggml.token_type has 1 entries; allowed: \d+"),
        ("tokenizer.ggml.merges", None, "tokenizer.ggml.merges is missing or no list of str"),
        ("tokenizer.ggml.merges", ["a b c"], "tokenizer.ggml.merges has 'a b c'; allowed: two parts"),
        ("tokenizer.ggml.merges", ["zz yy"], "the GGUF tokenizer cannot be built"),
        ("tokenizer.ggml.eos_token_id", 99999, "tokenizer.ggml.eos_token_id is 99999; allowed: an id below"),
        ("tokenizer.ggml.model", None, "GGUF tokenizer is model=None"),
        ("llama.attention.head_count", 0, "llama.attention.head_count is 0; allowed: a whole number above 0"),
        ("llama.attention.head_count_kv", [2, 1], r"llama.attention.head_count_kv is \[2, 1\]; allowed: a whole"),
        ("llama.embedding_length", "64", "llama.embedding_length is '64'; allowed: a whole number above 0"),
        ("llama.rope.freq_base", [1.0], r"llama.rope.freq_base is \[1.0\]; allowed: a number"),
        ("llama.rope.dimension_count", 2, "llama.rope.dimension_count is 2; allowed: that of a whole head"),
        ("llama.logit_scale", 0.5, "llama.logit_scale with '0.5' is not read and may change the model"),
        ("llama.expert_count", 8, "llama.expert_count with '8' is not read"),
    ],
)
def test_keys_that_are_missing_odd_or_unknown_are_named(llama, tmp_path, monkeypatch, key, value, message):
    real = converter.GgufMetadata.__init__

    def changed(self, reader, source):
        real(self, reader, source)
        self.fields = {name: known for name, known in self.fields.items() if name != key}
        if value is not None:
            self.fields[key] = value

    monkeypatch.setattr(converter.GgufMetadata, "__init__", changed)
    with pytest.raises(ValueError, match=message) as refusal:
        convert_gguf(llama, tmp_path / "out")
    assert str(llama) in str(refusal.value) and not (tmp_path / "out").exists()


def test_experts_that_are_none_change_nothing(llama, tmp_path, monkeypatch):
    real = converter.GgufMetadata.__init__

    def changed(self, reader, source):
        real(self, reader, source)
        self.fields["llama.expert_count"] = 0

    monkeypatch.setattr(converter.GgufMetadata, "__init__", changed)
    assert converter.is_converted(convert_gguf(llama, tmp_path / "out"))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("blk.0.attn_q.scale", "m.gguf: GGUF tensor 'blk.0.attn_q.scale' is not known; allowed: token_embd.weight"),
        ("rope_factors.weight", "m.gguf: GGUF tensor 'rope_factors.weight' is not known"),
    ],
)
def test_tensors_without_a_place_are_refused_before_the_work(tmp_path, monkeypatch, name, message):
    rename = gguf_name
    monkeypatch.setitem(globals(), "gguf_name", lambda n: name if n == "model.norm.weight" else rename(n))
    path = write_gguf(tmp_path / "m.gguf", "llama", tiny_model("llama", tied=True))
    monkeypatch.setattr(gguf.quants, "dequantize", lambda *words: pytest.fail("dequantized before the check"))
    with pytest.raises(ValueError, match=message):
        convert_gguf(path, tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["m.gguf"]


def test_tensors_that_the_converted_model_does_not_use_are_refused(tmp_path, monkeypatch):
    """A layer beyond block_count, and a bias that the architecture lacks: the conversion knows their names."""
    rename = gguf_name
    for name, left in [
        ("blk.2.ffn_up.weight", "model.layers.2.mlp.up_proj.weight"),
        ("blk.0.attn_output.bias", "model.layers.0.self_attn.o_proj.bias"),
    ]:
        monkeypatch.setitem(globals(), "gguf_name", lambda n, to=name: to if n == "lm_head.weight" else rename(n))
        out = convert_gguf(write_gguf(tmp_path / "m.gguf", "llama", tiny_model("llama", tied=False)), tmp_path / left)
        with pytest.raises(ValueError, match=rf"does not use \(1\): {left}"):
            load_target(out, torch.float32, torch.device("cpu"))


def test_no_disk_is_refused_before_writing(llama, tmp_path, monkeypatch):
    import shutil
    from collections import namedtuple

    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(1, 1, 1))
    with pytest.raises(ValueError, match="no free disk for out"):
        convert_gguf(llama, tmp_path / "sub" / "out")
    assert list((tmp_path / "sub").iterdir()) == []


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
    with pytest.raises(ValueError, match="Python code of the model's own, which is never run"):
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
