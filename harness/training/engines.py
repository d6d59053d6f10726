"""Engines for throughput, built like the arms of a run with every switch at `auto`."""

from __future__ import annotations

from collections.abc import Mapping

from specbench.harness.engines.native.arms import resolve_arm
from specbench.harness.engines.native.build import build_engine
from specbench.harness.engines.native.core.engine import Engine
from specbench.harness.engines.native.models.llama import LlamaModel
from specbench.harness.spec.arm import ArmConfig
from specbench.harness.spec.conditions import RunConfig

_PREFILL_ROWS = {"cuda": 16_384, "cpu": 2048}


def throughput_engine(
    target: LlamaModel, strategy: str, options: Mapping[str, str], *, max_num_seqs: int, max_model_len: int
) -> Engine:
    """An engine for `strategy` (a name of the registry). Raises the strategy's ValueError for bad options."""
    device = target.device.type
    # Decodes take their rows of a mixed step first; prompts must still make progress.
    most_rows = max(_PREFILL_ROWS[device], 8 * max_num_seqs)
    arm = ArmConfig(label=strategy, strategy=strategy, options=dict(options))
    config = RunConfig(
        arms=(arm,),
        max_model_len=max_model_len,
        max_concurrency=max_num_seqs,
        max_num_batched_tokens=most_rows,
        mixed_chunk_size=most_rows,  # nobody waits for a token
    )
    return build_engine(resolve_arm(arm, device, synthetic_weights=False), config, target)
