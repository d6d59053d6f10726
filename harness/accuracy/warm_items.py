"""Warm-up before items are generated, so that their times are those of an engine that runs."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from specbench.harness.engine.engine import Engine
from specbench.harness.engine.sampler import SamplingMode
from specbench.harness.run.drive import Load, warm_up
from specbench.harness.run.warmup import WarmUp
from specbench.harness.spec.run_config import RunConfig
from specbench.workloads.base import Prompt

from .generation import TextRequest


@torch.inference_mode()
def warm_up_on_items(engine: Engine, requests: Sequence[TextRequest], config: RunConfig) -> str:
    """Sends the first of `requests` until rounds are stable, as a run does before its blocks; nothing is kept.

    Returns how it went, for the run record.
    """
    sampling = requests[0].sampling
    engine.launcher.capture([SamplingMode.of([sampling])])
    prompts = [
        Prompt(id=r.key, token_ids=r.prompt_ids, max_tokens=r.sampling.max_tokens, text="")
        for r in requests[: 2 * engine.config.max_num_seqs]
    ]
    load = Load(
        prompts=prompts,
        arrival_s=[0.0] * len(prompts),
        max_concurrency=engine.config.max_num_seqs,
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
        stop_token_ids=sampling.stop_token_ids,
        seed=config.seed,
    )
    warmup = WarmUp(window_s=config.warmup_window_s, max_s=config.warmup_max_s)
    warm_up(engine, load, warmup)
    return warmup.describe()
