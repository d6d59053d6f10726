"""An arm as the subject of a profile: what it is, and which graphs its row claims."""

from __future__ import annotations

import dataclasses

from specbench.harness.engines.base import ResolvedArm
from specbench.harness.engines.traced import Traced

from .record import Subject


def subject_of(arm: ResolvedArm, traced: Traced) -> Subject:
    """Without the profiler's command, which the traced process does not know."""
    return Subject(
        arm=arm.config.label,
        strategy=arm.config.strategy,
        config=dataclasses.asdict(arm.setup()),
        graph_plan=traced.graph_plan,
        batch_size=traced.rounds.batch_size,
        num_drafts=traced.num_drafts,
        claimed_parts=dict(traced.claimed_parts),
        engine_syncs_per_round=traced.rounds.syncs_per_round,
        profiler_argv=None,
    )
