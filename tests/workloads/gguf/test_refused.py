"""GGUF files that are refused: damaged, not supported, with keys or tensors that would be ignored, or without room."""

from __future__ import annotations

import gguf
import pytest
import torch
from workloads.gguf.files import gguf_name, tiny_model, write_gguf

from specbench.harness.engines.native.models.loader import load_target
from specbench.workloads.assets import gguf as converter
from specbench.workloads.assets.gguf import convert_gguf


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
        ("tokenizer.ggml.tokens", None, "tokenizer.ggml.tokens is missing or not a list of str"),
        ("tokenizer.ggml.tokens", [1, 2], "tokenizer.ggml.tokens is missing or not a list of str"),
        ("tokenizer.ggml.token_type", None, "tokenizer.ggml.token_type is missing or not a list of int"),
        ("tokenizer.ggml.token_type", [1], r"tokenizer.ggml.token_type has 1 entries; allowed: \d+"),
        ("tokenizer.ggml.merges", None, "tokenizer.ggml.merges is missing or not a list of str"),
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
    def named(n):
        return name if n == "model.norm.weight" else gguf_name(n)

    path = write_gguf(tmp_path / "m.gguf", "llama", tiny_model("llama", tied=True), named=named)
    monkeypatch.setattr(gguf.quants, "dequantize", lambda *words: pytest.fail("dequantized before the check"))
    with pytest.raises(ValueError, match=message):
        convert_gguf(path, tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["m.gguf"]


def test_tensors_that_the_converted_model_does_not_use_are_refused(tmp_path):
    """A layer beyond block_count, and a bias that the architecture lacks: the conversion knows their names."""
    for name, left in [
        ("blk.2.ffn_up.weight", "model.layers.2.mlp.up_proj.weight"),
        ("blk.0.attn_output.bias", "model.layers.0.self_attn.o_proj.bias"),
    ]:

        def named(n, to=name):
            return to if n == "lm_head.weight" else gguf_name(n)

        path = write_gguf(tmp_path / "m.gguf", "llama", tiny_model("llama", tied=False), named=named)
        out = convert_gguf(path, tmp_path / left)
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
