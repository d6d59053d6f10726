"""What is wrong with a run is found here, before its first block: inputs loaded, arms built, requests tried.

An engine whose head does not fit its target, or whose cache cannot hold a request, is bad input and ends the run. One
that the memory does not hold is a result: it is built again at its turn, and its failure stands in its row.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from specbench.harness.arms import ResolvedArm, build_engine, check_requests, resolve_arm
from specbench.harness.engine.engine import Engine
from specbench.harness.engine.lookahead import Lookahead
from specbench.harness.engine.target_cache import CachePool
from specbench.harness.models.shipped_heads import PREFIX, shipped_head, shipped_head_for
from specbench.harness.registry import WORKLOADS, lookup, strategy_class
from specbench.harness.run import target as targets
from specbench.harness.run.drive import Load
from specbench.harness.run.progress import Progress
from specbench.harness.spec.arm import ArmConfig
from specbench.harness.spec.options import Conditions
from specbench.harness.spec.plans import PARTS
from specbench.harness.spec.run_config import RunConfig
from specbench.workloads.arrivals import arrival_times
from specbench.workloads.asset_table import asset_of_workload
from specbench.workloads.assets import resolve
from specbench.workloads.base import Workload

Block = tuple[str, int]  # arm, repeat
_RANDOM_IDS = ("random", "sharegpt-lengths")  # workloads that need no tokenizer


@dataclass(slots=True)
class PreparedRun:
    """A run whose inputs are loaded and checked. `engines` holds those that the memory had room for, by arm; blocks
    come one after another, so all keep their keys and values in the same memory, `caches`. `refused`: why, by arm."""

    config: RunConfig
    target: targets.Target
    workload: Workload
    load: Load
    arms: list[ResolvedArm]
    engines: dict[str, Engine]
    caches: CachePool = field(default_factory=CachePool)
    refused: dict[str, str] = field(default_factory=dict)

    def build(self, arm: ResolvedArm) -> Engine:
        return build_engine(arm, self.config, self.target.model, self.caches.lease())


def all_blocks(config: RunConfig) -> set[Block]:
    return {(arm.label, repeat) for arm in config.arms for repeat in range(config.num_repeats)}


def prepare(
    config: RunConfig, progress: Progress, done: Collection[Block] = frozenset(), *, keep_refused: bool = False
) -> PreparedRun:
    """Checks what needs no model first, then loads model and workload and builds the engines of blocks not yet `done`.

    Raises ValueError naming what is wrong and what is allowed. With `keep_refused` an arm whose engine is refused goes
    to `refused` of the result instead, and its blocks will say so in their rows.
    """
    load_workload = lookup(WORKLOADS, config.workload.name, "dataset-name")
    if config.load_format == "dummy" and config.workload.name not in _RANDOM_IDS:
        raise ValueError(
            f"dataset-name: {config.workload.name!r} needs a tokenizer, which --load-format dummy does not have; "
            f"use --dataset-name {' or '.join(_RANDOM_IDS)}"
        )
    target, arms = load_arms(config, progress)
    progress.say(f"loading {config.workload.name}")
    asset = asset_of_workload(config.workload.name)
    if config.workload.path is None and asset is not None:
        resolve(asset.name, progress=progress.asset)  # fetched here, where somebody watches
    workload = load_workload(replace(config.workload, vocab_size=target.model.config.vocab_size), target.tokenizer)
    run = PreparedRun(config, target, workload, _load_of(config, target, workload), arms, {})
    _build_engines(run, {arm for arm, _ in all_blocks(config) - set(done)}, progress, keep_refused)
    return run


def load_arms(config: RunConfig, progress: Progress) -> tuple[targets.Target, list[ResolvedArm]]:
    """The target, and every arm resolved for it, shipped heads filled in. Arms are checked before anything is loaded.

    Raises ValueError naming what is wrong and what is allowed.
    """
    device = targets.pick_device(config.device)
    arms = [_resolve(arm, device.type, config.load_format == "dummy") for arm in config.arms]
    progress.say(f"loading {config.model}")
    target = targets.load(config, progress.asset)
    _check_against_model(config, target)
    return target, _with_shipped_heads(arms, target, device.type, config.workload.name)


def arm_check(conditions: Conditions) -> Callable[[ArmConfig], ResolvedArm]:
    """Resolves arms for the device that they would run on, as `load_arms` does, before anything is loaded."""

    def check(arm: ArmConfig) -> ResolvedArm:
        device = targets.pick_device(conditions.device).type
        return resolve_arm(arm, device, synthetic_weights=conditions.load_format == "dummy")

    return check


def _resolve(arm: ArmConfig, device: str, dummy: bool) -> ResolvedArm:
    try:
        return resolve_arm(arm, device, synthetic_weights=dummy)
    except ValueError as error:
        raise ValueError(_with_arm(arm, str(error))) from error


def _with_shipped_heads(
    arms: list[ResolvedArm], target: targets.Target, device: str, workload: str
) -> list[ResolvedArm]:
    """An arm that needs a head and names none gets the one that comes with the package for this very target."""
    sha256 = target.described["sha256"]
    own = shipped_head_for(sha256, target.described["source"])
    found = []
    for arm in arms:
        c = arm.config
        if own is not None and strategy_class(c.strategy).takes_head and not c.options.get("head"):
            c = replace(c, options={**c.options, "head": own.option})
            arm = _resolve(c, device, dummy=False)
        if c.options.get("head", "").startswith(PREFIX):
            try:
                notes = shipped_head(c.options["head"]).notes(sha256, workload)
            except ValueError as error:
                raise ValueError(_with_arm(c, str(error))) from error
            arm = replace(arm, notes=(*arm.notes, *notes))
        found.append(arm)
    return found


def _check_against_model(config: RunConfig, target: targets.Target) -> None:
    shape = target.model.config
    if config.workload.max_model_len > shape.max_position:
        raise ValueError(
            f"max_model_len: {config.workload.max_model_len} is longer than the model's {shape.max_position} "
            "positions; lower --max-model-len"
        )
    for token in config.stop_token_ids:
        if token >= shape.vocab_size:
            raise ValueError(f"stop_token_id: {token} is not allowed; the model has 0 to {shape.vocab_size - 1}")


def _load_of(config: RunConfig, target: targets.Target, workload: Workload) -> Load:
    c = config
    eos = () if c.ignore_eos else target.eos_token_ids
    load = Load(
        prompts=workload.prompts,
        arrival_s=arrival_times(len(workload.prompts), c.request_rate, c.seed, c.burstiness),
        max_concurrency=c.max_concurrency,
        temperature=c.temperature,
        top_k=c.top_k,
        top_p=c.top_p,
        stop_token_ids=tuple(dict.fromkeys((*eos, *c.stop_token_ids))),
        seed=c.seed,
    )
    load.request(0)  # checks the sampling parameters, the model's own stop ids among them
    return load


@torch.inference_mode()
def _build_engines(run: PreparedRun, labels: Collection[str], progress: Progress, keep_refused: bool) -> None:
    # The one that writes furthest ahead needs the largest caches: built first, all others fit into its memory.
    for arm in sorted(run.arms, key=_cache_overhang, reverse=True):
        label = arm.config.label
        if label not in labels:
            continue
        progress.say(f"{label}: preparing")
        try:
            engine = run.build(arm)
            check_requests(engine, (run.load.request(i) for i in range(len(run.load.prompts))))
        except ValueError as error:
            if not keep_refused:
                raise ValueError(_with_arm(arm.config, str(error))) from error
            progress.say(f"{label}: refused: {first_line(error)}")
            run.refused[label] = first_line(error)
            continue
        except RuntimeError as error:  # memory; the block itself will say so in its row
            progress.say(f"{label}: not ready: {first_line(error)}; trying again at its turn")
            gc.collect()
            continue
        run.engines[label] = engine


def _cache_overhang(arm: ResolvedArm) -> int:
    return Lookahead.of(arm.strategy.num_drafts, arm.strategy.tree).overhang


def _with_arm(arm: ArmConfig, text: str) -> str:
    return text if text.startswith(f"{arm.strategy}:") else f"{arm.label}: {text}"


def first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def manifest(run: PreparedRun, argv: Sequence[str]) -> dict[str, Any]:
    """The first run.json: everything known before the first block."""
    c = run.config
    return dict(
        argv=list(argv),
        config=c.to_dict(),
        model=run.target.described,
        workload=dict(
            name=run.workload.name,
            rule=run.workload.rule,
            source=run.workload.source,
            sha256=run.workload.sha256,
            num_prompts=len(run.workload.prompts),
            synthetic=run.workload.synthetic,
        ),
        sampling=dict(
            temperature=c.temperature,
            top_k=c.top_k,
            top_p=c.top_p,
            ignore_eos=c.ignore_eos,
            seed=c.seed,
            max_concurrency=c.max_concurrency,
            request_rate=c.request_rate,
        ),
        arms=[
            dict(
                label=a.config.label,
                strategy=a.config.strategy,
                config=a.described(),
                graph_parts={part: getattr(a.choices.plan, part) for part in PARTS},
                notes=list(a.notes),
            )
            for a in run.arms
        ],
    )
