"""An arm as the subject of a profile: what it is, and which graphs its row claims."""

from __future__ import annotations

from specbench.harness.arms import ResolvedArm
from specbench.harness.engine.engine import Engine
from specbench.harness.engine.sampler import SamplingMode
from specbench.harness.spec.plans import part_of

from .record import Subject
from .steady import SteadyRounds


def subject_of(
    arm: ResolvedArm, engine: Engine, mode: SamplingMode, rounds: SteadyRounds, profiler_argv: tuple[str, ...] | None
) -> Subject:
    """`claimed_parts` names the parts that the arm's decode rounds have: no drafter, no claim about one."""
    plan = engine.launcher.plan
    decode_round = engine.launcher.round_for(rounds.batch_size, mode)
    names = [phase.name for segment in decode_round.segments for phase in segment.phases]
    parts = dict.fromkeys(part for part in map(part_of, names) if part is not None)
    return Subject(
        arm=arm.config.label,
        strategy=arm.config.strategy,
        config=arm.described(),
        graph_plan=plan.described(),
        batch_size=rounds.batch_size,
        num_drafts=engine.strategy.num_drafts,
        claimed_parts={part: getattr(plan, part) for part in parts},
        engine_syncs_per_round=rounds.syncs_per_round,
        profiler_argv=profiler_argv,
    )
