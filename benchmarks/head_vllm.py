"""An outside witness of a draft head: vLLM's acceptance length with it, over the very prompts that specbench measured.

    python3 benchmarks/head_vllm.py write HEAD prompts.json     (specbench: prompts, its acceptance, the target)
    python3 benchmarks/head_vllm.py witness HEAD prompts.json   (vLLM's Python: its acceptance, the ratio of the two)

K = 4, greedy, up to 256 output tokens, 200 prompts of each workload.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

K, NUM_PROMPTS, OUTPUT_LEN, SEED = 4, 200, 256, 42
WORKLOADS = ("sharegpt-held-out", "gsm8k")


def write(head: Path, out: Path) -> None:
    from specbench.harness import registry
    from specbench.harness.training.evaluate import answers, evaluation_of
    from specbench.harness.training.load import load_for_training
    from specbench.workloads.base import WorkloadRequest

    loaded = load_for_training("smollm2-135m-instruct", "auto", "auto")
    found = {}
    for name in WORKLOADS:
        request = WorkloadRequest(
            name=name, num_prompts=NUM_PROMPTS, seed=SEED, output_len=OUTPUT_LEN, max_model_len=2048
        )
        workload = registry.lookup(registry.WORKLOADS, name, "workload")(request, loaded.tokenizer)
        done = answers(head, loaded.model, workload, stop_token_ids=loaded.stop_token_ids, k=K)
        evaluation = evaluation_of(workload, done, K, 0.0)
        prompts = [list(p.token_ids) for p in workload.prompts]
        found[name] = dict(prompts=prompts, specbench=evaluation.all.length, workload_sha256=workload.sha256)
    stops = list(loaded.stop_token_ids)
    out.write_text(json.dumps(dict(target=str(loaded.model_dir), stop_token_ids=stops, workloads=found)))


def witness(head: Path, given: Path) -> None:
    os.environ.update(VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_NO_USAGE_STATS="1", VLLM_LOGGING_LEVEL="WARNING")
    os.environ.update(HF_HUB_OFFLINE="1", VLLM_USE_FLASHINFER_SAMPLER="0")
    from vllm import SamplingParams
    from vllm import __version__ as version
    from vllm.entrypoints.llm import LLM

    data = json.loads(given.read_text())
    llm = LLM(
        model=data["target"], skip_tokenizer_init=True, dtype="bfloat16", max_model_len=2048, max_num_seqs=64, seed=0,
        gpu_memory_utilization=0.5, enable_prefix_caching=False, disable_log_stats=False,
        compilation_config=dict(cudagraph_capture_sizes=[5, 40, 160, 320]),
        speculative_config=dict(method="eagle3", model=str(head), num_speculative_tokens=K),
    )  # fmt: skip

    def counters() -> dict[str, float]:
        return {m.name: m.value for m in llm.get_metrics() if "spec_decode" in m.name and hasattr(m, "value")}

    for name, workload in data["workloads"].items():
        before = counters()
        params = SamplingParams(
            temperature=0, max_tokens=OUTPUT_LEN, stop_token_ids=data["stop_token_ids"], detokenize=False
        )
        llm.generate([{"prompt_token_ids": ids} for ids in workload["prompts"]], params, use_tqdm=False)
        after = counters()
        drafts, accepted = (
            after[f"vllm:spec_decode_num_{what}"] - before[f"vllm:spec_decode_num_{what}"]
            for what in ("drafts", "accepted_tokens")
        )
        length, ours = 1 + accepted / drafts, workload["specbench"]
        row = dict(workload=name, vllm=version, vllm_length=length, specbench_length=ours, ratio=ours / length)
        print(json.dumps(row | dict(workload_sha256=workload["workload_sha256"], num_rounds=drafts)), flush=True)


if __name__ == "__main__":
    {"write": write, "witness": witness}[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3]))
