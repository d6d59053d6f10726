"""GGUF in, Hugging Face directory out: dequantised once, then loaded like any other model.

The weights are stored as bfloat16, not float16: it is the dtype the original checkpoints have and the engine runs on a
GPU, and an fp32 run upcasts the very same values, so runs of both dtypes share their weights exactly.

Tensor names and the permutation of q and k rows follow llama.cpp's ``convert_hf_to_gguf.py`` (``LlamaModel.permute``
there interleaves the two rotary halves of a head, for the ``llama`` architecture only; ``qwen2`` and ``qwen3`` do not).
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from specbench.workloads.assets.cache import require_free_disk
from specbench.workloads.assets.gguf_metadata import ARCHITECTURES, PERMUTED_QK, GgufMetadata
from specbench.workloads.assets.gguf_tokenizer import check_tokenizer, write_tokenizer
from specbench.workloads.assets.seal import check_seals, write_seals
from specbench.workloads.guarded import read_json_object

CONVERTER_VERSION = 1
MARKER = "specbench-converted.json"  # written last: a directory without it is not a finished conversion
SEALS = "specbench-seals.json"

TOP_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def convert_gguf(gguf_path: str | Path, out_dir: str | Path) -> Path:
    """Write ``out_dir`` as a Hugging Face directory (config, safetensors, tokenizer with chat template) and return it.

    A finished directory is returned at once; an unfinished one is written again. The work happens in a neighbouring
    temporary directory that is renamed at the end, so an interrupted conversion leaves nothing that looks finished.

    Raises AssetError for a finished directory in which a file was altered, and ValueError for a file that is not GGUF,
    is truncated, or has an architecture or tokenizer not listed here, or if the disk is too small for the result.
    """
    source, target = Path(gguf_path), Path(out_dir)
    if is_converted(target):
        _check_converted(target)
        return target
    reader = open_gguf(source)
    meta = GgufMetadata(reader, source)
    check_tokenizer(meta.fields, source)
    meta.check_known()
    target.parent.mkdir(parents=True, exist_ok=True)
    require_free_disk(target.parent, sum(2 * int(tensor.n_elements) for tensor in reader.tensors), target.name)
    work = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        write_config(work, meta, tied="output.weight" not in {tensor.name for tensor in reader.tensors})
        write_tokenizer(work, meta.fields, meta.source)
        write_weights(work, reader, meta)
        (work / MARKER).write_text(json.dumps({"converter": CONVERTER_VERSION, "gguf": source.name}) + "\n")
        _seal(work)
        return publish(work, target)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def is_converted(directory: Path) -> bool:
    """Whether ``directory`` is a finished conversion of this version of the converter."""
    marker = directory / MARKER
    return marker.is_file() and read_json_object(marker).get("converter") == CONVERTER_VERSION


def _check_converted(directory: Path) -> None:
    """AssetError for a file that was altered since. An older copy without seals gets its seals now."""
    if not (directory / SEALS).is_file():
        with suppress(OSError):  # a cache that cannot be written
            _seal(directory)
        return
    check_seals(directory / SEALS, directory, f"delete {directory}, and it is converted again")


def _seal(directory: Path) -> None:
    files = {path.name: path for path in sorted(directory.iterdir()) if path.is_file() and path.name != SEALS}
    write_seals(directory / SEALS, files)


def publish(work: Path, target: Path) -> Path:
    """Flush a finished directory to disk and move it into place; if another process was faster, its result is kept."""
    work.chmod(0o755)
    for path in work.iterdir():
        path.chmod(0o644)
        with path.open("rb") as file:
            os.fsync(file.fileno())
    if target.exists() and not is_converted(target):
        shutil.rmtree(target)
    try:
        work.rename(target)
    except OSError:
        if not is_converted(target):
            raise
    return target


def open_gguf(path: Path) -> Any:
    """The parsed file. Raises ValueError where it is missing, not GGUF, or shorter than its own index says."""
    from gguf import GGUFReader

    class Reader(GGUFReader):
        def _get(self, offset: int, dtype: Any, count: int = 1, override_order: Any = None) -> Any:
            """The library reads past the end as nothing: a damaged count of 2^60 entries would take it for ever."""
            if offset + np.dtype(dtype).itemsize * int(count) > len(self.data):
                raise ValueError(f"it ends at byte {len(self.data)}, within an entry that begins at {offset}")
            return super()._get(offset, dtype, count, override_order)

    if not path.is_file():
        raise ValueError(f"GGUF file {path} does not exist")
    try:
        return Reader(path)
    except (ValueError, KeyError, IndexError, OverflowError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a readable GGUF file (truncated or corrupt?): {error}") from error


def write_config(directory: Path, meta: GgufMetadata, *, tied: bool) -> None:
    """config.json and generation_config.json."""
    scaling = meta.arch("rope.scaling.type", "none")
    if scaling != "none":
        raise ValueError(f"{meta.source}: rope scaling {scaling!r} in GGUF is not read; allowed: none")
    special = {
        f"{short}_token_id": meta.fields[f"tokenizer.ggml.{long}_token_id"]
        for short, long in (("bos", "bos"), ("pad", "padding"))
        if f"tokenizer.ggml.{long}_token_id" in meta.fields
    }
    eos_ids = find_eos_ids(meta.fields)
    config = {
        "model_type": meta.architecture,
        "vocab_size": len(meta.fields["tokenizer.ggml.tokens"]),
        "hidden_size": meta.whole("embedding_length"),
        "intermediate_size": meta.whole("feed_forward_length"),
        "num_hidden_layers": meta.whole("block_count"),
        "num_attention_heads": meta.num_heads,
        "num_key_value_heads": meta.num_kv_heads,
        "head_dim": meta.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": meta.whole("context_length"),
        # GGUF stores float32; the intended decimal (1e-05) is the shortest that rounds to it
        "rms_norm_eps": float(str(np.float32(meta.number("attention.layer_norm_rms_epsilon")))),
        "rope_theta": meta.number("rope.freq_base", 10000.0),
        "tie_word_embeddings": tied,
        "torch_dtype": "bfloat16",
        "eos_token_id": eos_ids[0],
        **special,
        **ARCHITECTURES[meta.architecture],
    }
    generation = {"do_sample": False, "eos_token_id": eos_ids, **special}
    (directory / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (directory / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")


def find_eos_ids(fields: dict[str, Any]) -> list[int]:
    """Ids that end a generation: the file's eos, end of turn and end of message, and the end of a document.

    Instruct models end a turn with one token and, now and then, a whole document with another; llama.cpp stops at both.
    """
    keys = ("eos", "eot", "eom")
    ids = [fields[f"tokenizer.ggml.{key}_token_id"] for key in keys if f"tokenizer.ggml.{key}_token_id" in fields]
    tokens = fields["tokenizer.ggml.tokens"]
    if "<|endoftext|>" in tokens:
        ids.append(tokens.index("<|endoftext|>"))
    if not ids:
        raise ValueError("GGUF key tokenizer.ggml.eos_token_id is missing: generation would never end")
    return list(dict.fromkeys(ids))


def write_weights(directory: Path, reader: Any, meta: GgufMetadata) -> None:
    """model.safetensors in bfloat16, one tensor dequantised at a time."""
    import torch
    from gguf.quants import dequantize
    from safetensors.torch import save_file

    names = [hf_name(tensor.name, meta.source) for tensor in reader.tensors]  # refused before the work begins
    weights = {}
    for name, tensor in zip(names, reader.tensors, strict=True):
        values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)
        heads = {"attn_q": meta.num_heads, "attn_k": meta.num_kv_heads}.get(tensor.name.split(".")[-2])
        if heads is not None and meta.architecture == PERMUTED_QK:
            values = unpermute(values, heads)
        weights[name] = torch.from_numpy(np.array(values)).to(torch.bfloat16)
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})


def unpermute(rows: np.ndarray, num_heads: int) -> np.ndarray:
    """Rotary pairs of each head from GGUF's (x0, x1), (x2, x3).. order back to halves. ``rows``: [heads * D, ...]."""
    pairs = rows.reshape(num_heads, rows.shape[0] // num_heads // 2, 2, *rows.shape[1:])
    return pairs.swapaxes(1, 2).reshape(rows.shape)


def hf_name(name: str, source: Path) -> str:
    """Hugging Face's name of a GGUF tensor, ``blk.3.attn_q.weight`` to ``model.layers.3.self_attn.q_proj.weight``."""
    if name in TOP_NAMES:
        return TOP_NAMES[name]
    parts = name.split(".")
    if len(parts) != 4 or parts[0] != "blk" or parts[2] not in LAYER_NAMES or parts[3] not in ("weight", "bias"):
        raise ValueError(
            f"{source}: GGUF tensor {name!r} is not known; "
            f"allowed: {', '.join(TOP_NAMES)}, blk.N.{{{', '.join(LAYER_NAMES)}}}"
        )
    return f"model.layers.{parts[1]}.{LAYER_NAMES[parts[2]]}.{parts[3]}"
