"""Finds errors of a run before its first block: loads the inputs, deploys the arms, checks the requests.

A deployment whose head does not fit its target, or whose cache cannot hold a request, is bad input and ends the run.
Out of memory is a result: the deployment is tried again when its arm is scheduled, and a failure is shown in its row.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from specbench.harness.engines.base import Model, NotReadyError, ResolvedArm, with_arm
from specbench.harness.engines.load import Load
from specbench.harness.engines.several import Engines
from specbench.harness.run.deployments import Deployments
from specbench.harness.run.progress import Progress
from specbench.harness.run.workload import check_data_sets, load_workload
from specbench.harness.spec.arm import ArmConfig
from specbench.harness.spec.conditions import Conditions, RunConfig
from specbench.harness.store.arm_record import ArmRecord
from specbench.harness.store.inputs_record import SamplingRecord, WorkloadRecord
from specbench.harness.store.purpose import NO_PURPOSE, Purpose
from specbench.harness.store.run_record import ROWS_VERSION, RunRecord
from specbench.workloads.arrivals import arrival_times
from specbench.workloads.base import Workload
from specbench.workloads.guarded import first_line
from specbench.workloads.temperatures import at_temperatures

Block = tuple[str, int]  # arm, repeat
AnyServed = TypeVar("AnyServed", bound="Served")


@dataclass(slots=True)
class Served:
    """A model that an engine has loaded, and its arms. As a context, it ends its deployments."""

    config: RunConfig
    engine: Engines
    model: Model
    arms: list[ResolvedArm]
    deployments: Deployments

    def __enter__(self: AnyServed) -> AnyServed:
        return self

    def __exit__(self, *exc: object) -> None:
        self.deployments.close()


@dataclass(slots=True)
class PreparedRun(Served):
    """A run whose inputs are loaded and checked. `config`: as asked for; `deployments`: those that fit in memory;
    `refused`: the reason, by arm."""

    workload: Workload
    load: Load
    refused: dict[str, str] = field(default_factory=dict)


def serve(config: RunConfig, progress: Progress) -> Served:
    """Loads the model, without deploying anything. ValueError for arms that do not fit."""
    engine = Engines(config.engine)
    model, arms = engine.open(config, progress)
    return Served(config, engine, model, arms, Deployments(engine, config))


def all_blocks(config: RunConfig) -> set[Block]:
    return {(arm.label, repeat) for arm in config.arms for repeat in range(config.num_repeats)}


def prepare(
    config: RunConfig,
    progress: Progress,
    done: Collection[Block] = frozenset(),
    *,
    num_sent: int | None = None,
    keep_refused: bool = False,
) -> PreparedRun:
    """First checks all that needs no model, then loads model and workload and builds the engines of blocks not yet
    `done`. `num_sent`: the most requests that are sent together; None: those of a block. Engines get no more slots.

    Raises ValueError naming what is wrong and what is allowed. With `keep_refused`, an arm whose engine is refused is
    listed in `refused` instead, and its blocks will say so in their rows.
    """
    check_data_sets(config)
    most = config.num_requests if num_sent is None else num_sent
    served = serve(replace(config, max_concurrency=min(config.max_concurrency, most)), progress)
    model = served.model
    workload = at_temperatures(load_workload(config.workload, model, progress), config.temperature_grid)
    load = _load_of(served.config, model, workload)
    run = PreparedRun(config, served.engine, model, served.arms, served.deployments, workload, load)
    try:
        _deploy(run, {arm for arm, _ in all_blocks(config) - set(done)}, progress, keep_refused)
    except BaseException:
        run.deployments.close()
        raise
    return run


def arm_check(conditions: Conditions) -> Callable[[ArmConfig], ResolvedArm]:
    """Resolves arms as a run under these conditions would, before anything is loaded."""
    engine = Engines(conditions.engine)
    return lambda arm: engine.resolve(arm, conditions)


def _load_of(config: RunConfig, model: Model, workload: Workload) -> Load:
    c = config
    eos = () if c.ignore_eos else model.eos_token_ids
    load = Load(
        prompts=workload.prompts,
        arrival_s=arrival_times(len(workload.prompts), c.request_rate, c.seed, c.burstiness),
        max_concurrency=c.max_concurrency,
        temperature=c.temperature,
        top_k=c.top_k,
        top_p=c.top_p,
        stop_token_ids=tuple(dict.fromkeys((*eos, *c.stop_token_ids))),
        seed=c.seed,
        edits=c.edits,
        stop=c.stop,
        logprobs=c.logprobs,
        prompt_logprobs=c.prompt_logprobs,
    )
    load.request(0)  # checks the sampling parameters, including the model's own stop ids
    return load


def _deploy(run: PreparedRun, labels: Collection[str], progress: Progress, keep_refused: bool) -> None:
    arms = [
        arm
        for arm in sorted(run.arms, key=lambda arm: arm.footprint, reverse=True)
        if arm.config.label in labels and not run.deployments.starts_at_its_turn(arm)
    ]
    begun = run.deployments.begin(arms)
    if begun:
        progress.say(f"starting {len(begun)} engines at the same time")
    # Those first: they find out how much memory there is while ours have not taken theirs.
    for arm in sorted(arms, key=lambda arm: arm.config.label not in begun):
        label = arm.config.label
        progress.say(f"{label}: preparing")
        try:
            run.deployments.of(arm).check(run.load)
        except ValueError as error:
            run.deployments.drop(label)
            if not keep_refused:
                raise ValueError(with_arm(arm.config, str(error))) from error
            progress.say(f"{label}: refused: {first_line(error)}")
            run.refused[label] = first_line(error)
        except NotReadyError as error:  # its blocks will immediately fail with this error, too
            progress.say(f"{label}: {first_line(error)}")
        except (RuntimeError, MemoryError) as error:  # out of memory; the block will say so in its row
            progress.say(f"{label}: not ready: {first_line(error)}; trying again at its turn")
            run.deployments.drop(label)


def initial_record(run: PreparedRun, argv: Sequence[str], purpose: Purpose = NO_PURPOSE) -> RunRecord:
    """Everything known before the first block."""
    workload = run.workload
    return RunRecord(
        rows_version=ROWS_VERSION,
        argv=tuple(argv),
        config=run.config,
        model=run.model.described,
        workload=WorkloadRecord(
            name=workload.name,
            rule=workload.rule,
            source=workload.source,
            sha256=workload.sha256,
            num_prompts=len(workload.prompts),
            synthetic=workload.synthetic,
        ),
        sampling=SamplingRecord.of(run.config),
        arms=tuple(
            ArmRecord(
                label=a.config.label,
                strategy=a.config.strategy,
                config=a.setup(),
                graph_parts=a.graph_parts,
                notes=a.notes,
                unknown=a.capabilities.unknown,
            )
            for a in run.arms
        ),
        purpose=purpose,
    )
