"""Warm-up before items are generated, so that their times are those of an engine that runs."""

from __future__ import annotations

from collections.abc import Sequence

from specbench.harness.engines.base import Deployment
from specbench.harness.engines.load import Load, PromptRequest
from specbench.harness.engines.warmup import WarmUp
from specbench.harness.spec.run_config import RunConfig
from specbench.workloads.base import Prompt


def warm_up_on_items(deployment: Deployment, requests: Sequence[PromptRequest], config: RunConfig) -> str:
    """Sends the first of `requests` until times are stable, as a run does before its blocks; nothing is kept.

    Returns how it went, for the run record.
    """
    sampling = requests[0].sampling
    prompts = [
        Prompt(id=r.key, token_ids=r.prompt_ids, max_tokens=r.sampling.max_tokens, text=r.text)
        for r in requests[: 2 * deployment.batch_size]
    ]
    load = Load(
        prompts=prompts,
        arrival_s=[0.0] * len(prompts),
        max_concurrency=deployment.batch_size,
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
        stop_token_ids=sampling.stop_token_ids,
        seed=config.seed,
    )
    warmup = WarmUp(window_s=config.warmup_window_s, max_s=config.warmup_max_s)
    deployment.warm_up(load, warmup)
    return warmup.describe()
