"""Peak memory of loading a sharded FP8 checkpoint of Qwen3-30B-A3B's shape with random weights.

    python benchmarks/load_h200.py write /tmp/a3b-fp8     # 31 GB in shards of 4 GB, as the hub has them
    python benchmarks/load_h200.py load /tmp/a3b-fp8      # in a process of its own: peaks are of the whole process

Wanted: GPU memory at most 1.1 times the stored weights, host memory at most 1.2 times the largest shard beyond what the
process had before. `--num-layers` and `--device cpu` try it on a small machine, where matrices are dequantised.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from specbench.harness.engines.native.models.loader import load_target

H, INNER, EXPERTS, Q, KV, D, VOCAB = 2048, 768, 128, 4096, 512, 128, 151936
SHARD_BYTES = 4 * 2**30
CONFIG = {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": H, "intermediate_size": 6144,
    "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": D, "vocab_size": VOCAB, "num_experts": EXPERTS,
    "num_experts_per_tok": 8, "moe_intermediate_size": INNER, "norm_topk_prob": True, "rope_theta": 1e6,
    "rms_norm_eps": 1e-6, "max_position_embeddings": 40960, "tie_word_embeddings": False,
    "quantization_config": {
        "quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128],
        "modules_to_not_convert": ["lm_head", "mlp.gate"],
    },
}  # fmt: skip


def tensors(num_layers: int) -> Iterator[tuple[str, Tensor]]:
    def plain(*shape: int) -> Tensor:
        return torch.ones(shape, dtype=torch.bfloat16) if len(shape) == 1 else torch.randn(shape).bfloat16() / 45

    def fp8(module: str, outputs: int, inputs: int) -> Iterator[tuple[str, Tensor]]:
        values = (
            torch.randint(0, 0x7F, (outputs, inputs), dtype=torch.uint8) | torch.randint(0, 2, (outputs, 1)).byte() << 7
        )
        yield f"{module}.weight", values.view(torch.float8_e4m3fn)
        yield f"{module}.weight_scale_inv", torch.full((outputs // 128, inputs // 128), 1e-4)

    yield "model.embed_tokens.weight", plain(VOCAB, H)
    for layer in range(num_layers):
        prefix = f"model.layers.{layer}."
        for name, outputs, inputs in (("q", Q, H), ("k", KV, H), ("v", KV, H), ("o", H, Q)):
            yield from fp8(f"{prefix}self_attn.{name}_proj", outputs, inputs)
        for name, size in (("self_attn.q", D), ("self_attn.k", D), ("input_layer", H), ("post_attention_layer", H)):
            yield f"{prefix}{name}{'_' if size == D else ''}norm.weight", plain(size)
        yield f"{prefix}mlp.gate.weight", plain(EXPERTS, H)
        for expert in range(EXPERTS):
            for name, outputs, inputs in (("gate", INNER, H), ("up", INNER, H), ("down", H, INNER)):
                yield from fp8(f"{prefix}mlp.experts.{expert}.{name}_proj", outputs, inputs)
    yield "model.norm.weight", plain(H)
    yield "lm_head.weight", plain(VOCAB, H)


def write(folder: Path, num_layers: int) -> None:
    folder.mkdir(parents=True)
    shard: dict[str, Tensor] = {}
    where: dict[str, str] = {}

    def flush() -> None:
        file = f"model-{len(set(where.values())) + 1:05d}.safetensors"
        where.update(dict.fromkeys(shard, file))
        save_file(shard, folder / file)
        shard.clear()

    num_bytes = 0
    for name, tensor in tensors(num_layers):
        if num_bytes + tensor.nbytes > SHARD_BYTES:
            flush()
            num_bytes = 0
        shard[name] = tensor
        num_bytes += tensor.nbytes
    flush()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    (folder / "config.json").write_text(json.dumps({**CONFIG, "num_hidden_layers": num_layers}))


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def load(folder: Path, device: torch.device) -> None:
    torch.ones(1, device=device)  # the device's own libraries
    before, start = peak_bytes(), time.perf_counter()
    target = load_target(folder, torch.bfloat16, device)
    sizes = [file.stat().st_size for file in folder.glob("*.safetensors")]
    on_host = peak_bytes() - before
    print(
        f"{target.arithmetic}; {time.perf_counter() - start:.0f} s for {sum(sizes) / 1e9:.2f} GB in {len(sizes)} shards"
    )
    print(f"host: {on_host / 1e9:.2f} GB beyond the process before, {on_host / max(sizes):.2f} x the largest shard")
    if device.type == "cuda":
        on_gpu = torch.cuda.max_memory_allocated(device)
        print(f"GPU: {on_gpu / 1e9:.2f} GB, {on_gpu / sum(sizes):.3f} x the weights")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("write", "load"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--num-layers", type=int, default=48)
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    if args.command == "write":
        write(args.folder, args.num_layers)
    else:
        load(args.folder, torch.device(args.device))


if __name__ == "__main__":
    main()
