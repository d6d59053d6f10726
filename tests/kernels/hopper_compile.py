"""Compiles every Triton kernel for compute capability 9.0 without a GPU; run as a program, in a process of its own.

The interpreter forgives what the compiler refuses (a name of two types in two branches, for one), so passing the
interpreted tests does not prove that a kernel builds. Triton's launcher is told to compile and stop there.
"""

import re

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from specbench.kernels import (
    accept_chain,
    accept_tree,
    all_reduce_norm,
    compact_kv,
    decode_rows,
    draft_rows,
    experts,
    fp8,
    gumbel_noise,
    ngram,
    one_pass_rows,
    rms_norm,
    rope_store_kv,
    sample,
    silu_and_mul,
    skinny_gemm,
    store_draft,
    tree_build,
    tree_draft_rows,
    tree_expand,
    tree_rows,
    triton_support,
)
from specbench.kernels.attention.base import AttentionMetadata
from specbench.kernels.attention.triton_attention import TritonAttention
from specbench.kernels.buffers import Outcome, PassRows, Rows, Slots, Trees

BF16 = torch.bfloat16
compiled: list[str] = []
narrow: set[str] = set()  # kernels that read or write memory 2 bytes at a time
_NARROW = re.compile(r"\b(ld|st)\.[\w.:]*global[\w.:]*\.b16")


class NoDevice:
    """A driver that only knows what to compile for."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int | None = None) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")


def compile_only() -> None:
    driver.set_active(NoDevice())
    triton_support._launches_early = lambda device: True
    run = JITFunction.run

    def warm_up(self, *args, grid, warmup, **options):
        compiled.append(self.fn.__name__)
        kernel = run(self, *args, grid=grid, warmup=True, **options)
        if _NARROW.search(kernel.asm["ptx"]):
            narrow.add(self.fn.__name__)
        return kernel

    JITFunction.run = warm_up


def i64(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=torch.int64)


def i32(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=torch.int32)


def layer_kernels() -> None:
    x, weight = torch.zeros(5, 576, dtype=BF16), torch.zeros(576, dtype=BF16)
    rms_norm.rms_norm_triton(x, weight, 1e-5)
    rms_norm.add_rms_norm_triton(x, x.clone(), weight, 1e-5)
    for num_ranks in (2, 4):
        words = torch.zeros(all_reduce_norm.Inbox.shape(num_ranks), dtype=torch.int16)
        for owned_from in (1, 1 << 20):
            inbox = all_reduce_norm.Inbox.over(words, [0] * num_ranks, rank=1, owned_from=owned_from)
            all_reduce_norm.all_reduce_rows(x, inbox)
            all_reduce_norm.all_reduce_add_rms_norm(x, inbox, x.clone(), weight, 1e-5)
    silu_and_mul.silu_and_mul_triton(torch.zeros(5, 3072, dtype=BF16))
    for rows in (5, 40):
        few = torch.zeros(rows, 576, dtype=BF16)
        blocks = skinny_gemm.choose_blocks(rows, 960, 576, False)
        for bias in (None, torch.zeros(960, dtype=BF16)):
            skinny_gemm.skinny_linear(few, torch.zeros(960, 576, dtype=BF16), bias, blocks)
        blocks = skinny_gemm.choose_blocks(rows, 3072, 576, True)
        skinny_gemm.skinny_gated(few, torch.zeros(3072, 576, dtype=BF16), blocks)
    fp8.quantize_rows_triton(x)
    for rows in (1, 40, 200):
        fp8.fp8_block_linear_triton(
            torch.zeros(rows, 256, dtype=BF16), torch.zeros(128, 256).to(fp8.E4M3), torch.zeros(1, 2), weight[:128]
        )
    for q_heads, kv_heads, dim in ((32, 8, 128), (9, 3, 64)):
        qkv = torch.zeros(5, (q_heads + 2 * kv_heads) * dim, dtype=BF16)
        cache = torch.zeros(4, 16, kv_heads, dim, dtype=BF16)
        table = torch.zeros(64, dim)
        rope_store_kv.rope_store_kv_triton(qkv, table, i64(5), i64(5), cache, cache.clone(), q_heads, kv_heads)
        norm = torch.zeros(2, dim, dtype=BF16)
        rope_store_kv.rope_store_kv_triton(
            qkv, table, i64(5), i64(5), cache, cache.clone(), q_heads, kv_heads, norm, 1e-6
        )


def expert_kernels() -> None:
    count, k, hidden, inner = 128, 8, 2048, 768
    read = i64(2)
    plain = experts.ExpertWeights(
        torch.zeros(1, dtype=BF16).expand(count, 2 * inner, hidden),
        torch.zeros(1, dtype=BF16).expand(count, hidden, inner),
        read,
    )
    small = torch.zeros(1).to(fp8.E4M3)
    blocks = experts.ExpertWeights(
        small.expand(count, 2 * inner, hidden), small.expand(count, hidden, inner), read,
        torch.zeros(count, 12, 16), torch.zeros(count, 16, 6),
    )  # fmt: skip
    by_row = experts.ExpertWeights(
        blocks.gate_up_EXH, blocks.down_EHI, read, torch.zeros(count, 2 * inner, 1), torch.zeros(count, hidden, 1)
    )
    for rows in (5, 4096):
        for weights in (plain, blocks, by_row):
            experts.experts_triton(
                torch.zeros(rows, hidden, dtype=BF16), torch.zeros(rows, count, dtype=BF16), weights, k, True
            )


def sampling_kernels() -> None:
    logits = torch.zeros(5, 49152, dtype=BF16)
    for all_greedy in (True, False):
        sample.sample_triton(logits, torch.ones(5), i64(5), i64(5), all_greedy)
    gumbel_noise.add_gumbel_triton(logits, torch.ones(5, dtype=torch.bool), i64(5), i64(5))
    for d2t in (None, i64(49152)):
        store_draft.store_draft_triton(logits, d2t, i64(5), 1, i64(9, 4))


def slots_of(s: int, k: int, length: int, tree: Trees | None = None) -> Slots:
    return Slots(
        n_S=i32(s), tokens_SL=i64(s, length), limit_S=i32(s), stop_SE=i64(s, 8), done_S=i32(s), drafts_SK=i64(s, k),
        block_table_SP=i32(s, 20), page_size=16, tree=tree,
    )  # fmt: skip


def pass_rows(rows: int, b: int) -> PassRows:
    return PassRows(ids_T=i64(rows), position_T=i64(rows), kv_slot_T=i64(rows), kv_len_B=i32(b))


def rows_of(rows: int, b: int, tree_mask: torch.Tensor | None = None) -> Rows:
    return Rows(
        ids_T=i64(rows), position_T=i64(rows), kv_slot_T=i64(rows), kv_len_B=i32(b), slot_B=i64(b), row_req_T=i64(rows),
        row_off_T=i32(rows), num_drafts_B=i32(b), q_len_B=i32(b), base_row_B=i64(b), block_table_BP=i32(b, 20),
        tree_mask_BDD=tree_mask,
    )  # fmt: skip


def round_kernels(k: int) -> None:
    b, q, s = 3, k + 1, 9
    slots, rows = slots_of(s, k, 100), rows_of(b * q, b)
    for forced in (None, i32(b)):
        outcome = Outcome(status_BX=i32(b, 6 + q), sample_row_B=i64(b))
        accept_chain.accept_chain_triton(i64(b, q), rows, slots, outcome, forced)
    decode_rows.prepare_rows_triton(rows, slots)
    draft_rows.draft_first_ids_triton(i64(b), i64(b * q), i64(b * q), i64(s, 100), i64(b * q))
    num_rows = b * (q + max(k, 1) - 1)
    one_pass_rows.draft_one_pass_rows_triton(pass_rows(num_rows, b), i64(num_rows), rows, i32(b + 1), outcome, slots, 7)
    draft_rows.draft_pair_rows_triton(pass_rows(2 * b, b), i64(b), slots)
    if k > 1:
        draft_rows.draft_next_rows_triton(pass_rows(b, b), i64(b), slots, 2)
    if k:
        ngram.ngram_propose_triton(i64(b), slots_of(s, k, 400), 2, 4)


def tree_kernels(topk: int, depth: int, size: int) -> None:
    b, s, w = 3, 9, depth + 1
    trees = Trees(parent_SD=i32(s, size), depth_SD=i32(s, size), mask_SDD=torch.zeros(s, size, size, dtype=torch.bool))
    slots, rows = slots_of(s, size - 1, 100, trees), rows_of(b * size, b, trees.mask_SDD[:b].clone())
    outcome = Outcome(status_BX=i32(b, 6 + w), sample_row_B=i64(b), path_BW=i64(b, w))
    for forced in (None, i32(b)):
        accept_tree.accept_tree_triton(i64(b, size), rows, slots, outcome, forced)
    tree_rows.prepare_tree_rows_triton(rows, slots)
    for heads, dim in ((8, 128), (3, 64)):
        cache = torch.zeros(2, 30, 16, heads, dim, dtype=BF16)
        compact_kv.compact_kv_triton(cache, cache.clone(), i64(b, w), i32(b, 6 + w), i32(b, 20))
    pool = tree_expand.new_tree_pool(b, topk, depth, torch.device("cpu"))
    for d2t in (None, i64(32000)):
        for level in range(1, depth + 1):
            logits = torch.zeros(b if level == 1 else b * topk, 32000, dtype=BF16)
            tree_expand.expand_tree_triton(logits, d2t, pool, level)
    tree_build.build_tree_triton(i64(b), pool, slots.drafts_SK, trees)
    tree_draft_rows.tree_first_rows_triton(pass_rows(b * w, b), i64(b * w), outcome, i64(b), slots, size)
    if depth > 1:
        tree_draft_rows.tree_level_rows_triton(pass_rows(b * topk, b), i64(b), slots, topk, 2)


def attention_kernels() -> None:
    for heads, kv_heads, dim in ((32, 8, 128), (9, 3, 64)):
        for page, q, num_requests, uniform in ((16, 1, 1, True), (64, 5, 64, True), (16, 40, 2, False)):
            cache = torch.zeros(300, page, kv_heads, dim, dtype=BF16)
            meta = AttentionMetadata(
                cu_q_B1=i32(num_requests + 1),
                kv_len_B=i32(num_requests),
                block_table_BP=i32(num_requests, 4096 // page),
                max_q=q,
                max_kv=4096,
                is_uniform=uniform,
                tree_mask_BQM=torch.ones(num_requests, q, 2 * q, dtype=torch.bool) if q == 5 else None,
            )
            q_THD = torch.zeros(num_requests * q, heads, dim, dtype=BF16)
            TritonAttention().forward(q_THD, cache, cache.clone(), meta, 0.1)


if __name__ == "__main__":
    compile_only()
    layer_kernels()
    expert_kernels()
    sampling_kernels()
    for num_drafts in (0, 1, 4):
        round_kernels(num_drafts)
    for topk, depth, size in ((1, 1, 2), (8, 5, 32), (16, 8, 64)):
        tree_kernels(topk, depth, size)
    attention_kernels()
    print("narrow:", *sorted(narrow))
    print("compiled:", *sorted(set(compiled)))
