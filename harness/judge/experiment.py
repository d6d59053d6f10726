"""What an A/B run measured, before any verdict: which blocks count, and why it may not be judged. Only this module
decides this, for `specbench ab`, `gate` and `compare` alike."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from specbench.harness.metrics.metrics import Block
from specbench.harness.stats.verdict import MIN_PAIRS
from specbench.harness.store.ab_judgement import MAX_REJECTED, ExperimentBlock
from specbench.harness.store.ab_record import LABELS, AbPlan, SideRecord
from specbench.harness.store.arm_record import driven_otherwise
from specbench.harness.store.block_records import BlockRecord, MachineSeen, read_records, unrecorded
from specbench.harness.store.results import Figures
from specbench.harness.store.run_directory import RunDirectory


@dataclass(frozen=True, kw_only=True, slots=True)
class Experiment:
    """The blocks of an A/B run. is_aa: both sides turned out to be the same code and configuration. names: of both
    sides. sides: what the first process of each side reported about itself; empty for blocks in one process.
    driven_otherwise: how the sides were driven differently, if they were."""

    plan: AbPlan
    is_aa: bool
    names: Mapping[str, str]
    blocks: tuple[ExperimentBlock, ...]
    sides: Mapping[str, SideRecord]
    driven_otherwise: str = ""

    @property
    def kept(self) -> list[int]:
        """Blocks that count: measured on both sides and not rejected."""
        return [block.block for block in self.blocks if block.measured and not block.reasons]

    @property
    def num_rejected(self) -> int:
        return sum(bool(block.reasons) for block in self.blocks)

    @property
    def is_whole(self) -> bool:
        """No verdict before the last block: optional stopping inflates false positives."""
        return all(block.measured or block.reasons for block in self.blocks)

    @property
    def has_too_many_rejected(self) -> bool:
        return self.num_rejected / self.plan.num_blocks > MAX_REJECTED

    def no_verdict(self) -> str:
        """Why there may be no verdict; empty if there may."""
        num_blocks = self.plan.num_blocks
        if not self.is_whole:
            missing = sum(not (block.measured or block.reasons) for block in self.blocks)
            return f"{missing} of {num_blocks} blocks are not measured yet"
        if self.has_too_many_rejected:
            return f"{self.num_rejected} of {num_blocks} blocks are rejected, more than {MAX_REJECTED:.0%}: invalid"
        if len(self.kept) < MIN_PAIRS:
            return f"{len(self.kept)} of {num_blocks} blocks count; a verdict takes {MIN_PAIRS}"
        return self.driven_otherwise


def read_experiment(directory: RunDirectory, figures: Mapping[Block, Figures]) -> Experiment:
    """The experiment of a stored A/B run; `figures`: its `block_values`. A block that lacks its record is rejected, for
    nobody knows what disturbed it; without any record, as in runs of others, all blocks count."""
    stored = directory.record.ab
    assert stored is not None
    records, failed = read_records(directory.path), directory.failed_blocks()
    lost = unrecorded(figures, records)
    return Experiment(
        plan=stored.plan,
        is_aa=bool(stored.is_aa),
        names=stored.names,
        blocks=tuple(_block(n, order, figures, records, failed, lost) for n, order in enumerate(stored.plan.order())),
        sides=stored.sides,
        driven_otherwise=driven_otherwise(*(directory.record.arm(label) for label in LABELS)),
    )


def _block(
    block: int,
    order: tuple[str, str],
    figures: Mapping[Block, Figures],
    records: Mapping[Block, BlockRecord],
    failed: Mapping[Block, str],
    lost: Collection[Block],
) -> ExperimentBlock:
    reasons: list[str] = []
    load: dict[str, tuple[float | None, ...] | None] = {}
    machine: dict[str, MachineSeen] = {}
    for label in LABELS:
        record = records.get((label, block))
        load[label] = record.load_average if record else None
        machine[label] = record.machine if record else MachineSeen()
        reasons += [f"{label}: {reason}" for reason in record.reasons] if record else []
        if (label, block) in failed:
            reasons.append(f"{label}: failed: {failed[label, block]}")
        elif (label, block) in figures and figures[label, block]["num_failed_requests"]:
            reasons.append(f"{label}: {figures[label, block]['num_failed_requests']} failed requests")
        if (label, block) in lost:
            reasons.append(f"{label}: what the machine did was not recorded")
    is_over = all((label, block) in figures or (label, block) in failed for label in LABELS)
    return ExperimentBlock(
        block=block,
        order="".join(order),
        measured=all((label, block) in figures for label in LABELS),
        reasons=tuple(reasons) if is_over else (),  # it is measured again
        load_average=load,
        machine=machine,
    )
