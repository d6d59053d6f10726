"""Every kernel builds for an H100 or H200, checked on a machine that has neither."""

import os
import subprocess
import sys
from pathlib import Path

KERNELS = {
    "_accept_chain_kernel",
    "_accept_tree_kernel",
    "_add_gumbel_kernel",
    "_all_reduce_rows_kernel",
    "_argmax_parts_kernel",
    "_build_tree_kernel",
    "_compact_kv_kernel",
    "_down_kernel",
    "_draft_first_ids_kernel",
    "_draft_next_rows_kernel",
    "_draft_one_pass_rows_kernel",
    "_draft_pair_rows_kernel",
    "_expand_tree_kernel",
    "_fp8_block_linear_kernel",
    "_gate_up_kernel",
    "_ngram_propose_kernel",
    "_place_nodes_kernel",
    "_plan_experts_kernel",
    "_prepare_rows_kernel",
    "_quantize_rows_kernel",
    "_rms_norm_kernel",
    "_rope_store_kv_kernel",
    "_route_kernel",
    "_silu_and_mul_kernel",
    "_skinny_gemm_kernel",
    "_store_draft_kernel",
    "_sum_experts_kernel",
    "_take_best_kernel",
    "_top_k_parts_kernel",
    "_tree_first_rows_kernel",
    "_tree_level_rows_kernel",
    "merge_splits_kernel",
    "paged_attention_kernel",
}
# Those that read or write single values of 2 bytes where that costs nothing: a bias, an expert's weight of a row, a
# merged value a thread. Elsewhere it means that Triton does not know an address or a stride to be aligned.
NARROW = {"_down_kernel", "_fp8_block_linear_kernel", "_route_kernel", "_skinny_gemm_kernel", "merge_splits_kernel"}


def test_every_kernel_compiles_for_sm90() -> None:
    """What Triton has compiled before, it finds in its cache by a hash of the source, its own version and the target's:
    only kernels that have changed take time."""
    root = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root / ".ns")}
    environment.pop("TRITON_INTERPRET", None)
    program = Path(__file__).with_name("hopper_compile.py")
    done = subprocess.run([sys.executable, str(program)], env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    narrow, _, compiled = done.stdout.partition("narrow: ")[2].partition("compiled: ")
    assert set(compiled.split()) == KERNELS
    assert set(narrow.split()) == NARROW
