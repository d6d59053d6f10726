"""Figures stored by a run. Each is documented where it is computed, in harness/metrics/."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from specbench.harness.stats.spread import Spread

Figures = Mapping[str, int | float | None]
"""Figures by dotted name (`tpot_ms.mean`); counts are whole numbers. None: the block has no data for it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AcceptanceInterval:
    low: float
    high: float
    num_clusters: int
    method: str


@dataclass(frozen=True, kw_only=True, slots=True)
class VllmAcceptance:
    """What vLLM would print."""

    mean_acceptance_length: float | None = None
    draft_acceptance_rate: float | None = None
    per_position: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class SglangAcceptance:
    """What SGLang would print."""

    accept_length: float | None = None
    accept_rate: float | None = None
    avg_spec_accept_length: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class PeerAcceptance:
    vllm: VllmAcceptance
    sglang: SglangAcceptance


@dataclass(frozen=True, kw_only=True, slots=True)
class AcceptanceGroup:
    """Acceptance of the decode forwards that have something in common: see `metrics.acceptance_groups`."""

    kind: str
    name: str
    num_forwards: int
    num_verifications: int
    acceptance_length: float | None
    tokens_per_forward: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Acceptance:
    """See `metrics.acceptance.acceptance_metrics`."""

    acceptance_length: float | None
    acceptance_length_by_request: float | None
    acceptance_length_interval: AcceptanceInterval | None
    tokens_per_forward: float | None
    draft_acceptance_rate: float | None
    accepted_depth_rate: float | None
    accepted_per_verified: float | None
    marginal: tuple[float, ...]
    conditional: tuple[float | None, ...]
    accepted_histogram: tuple[int, ...]
    num_verifications: int | None
    num_forwards_without_draft: int | None
    num_truncated_tokens: int | None
    peers: PeerAcceptance
    groups: tuple[AcceptanceGroup, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockFigures:
    """One block (one arm, one repeat). `phases`: the capture that the accounting used, plain or instrumented; None
    without phases."""

    values: Figures
    acceptance: Acceptance
    phases: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredBlock:
    arm: str
    repeat: int
    figures: BlockFigures


@dataclass(frozen=True, kw_only=True, slots=True)
class Speedup:
    """An arm against the baseline arm of the same run, on the same prompts.

    tps_ratio is the ratio of the medians of TPS over repeats, with the extremes of the ratio within a repeat.
    tpot_ratio is exp of the mean over prompts of log(baseline TPOT / arm TPOT), paired by repeat and prompt and
    averaged over the repeats of a prompt, with its interval over blocks and prompts; above 1 the arm is faster. None if
    nothing pairs; one repeat has no interval. For imported arms, see `imported_speedup.over_requests`.
    num_pairs: requests that both arms answered; those of one token have no TPOT. same_output_rate: share of these pairs
    whose tokens are identical.
    """

    baseline: str
    tps_ratio: float | None
    tps_ratio_min: float | None
    tps_ratio_max: float | None
    tpot_ratio: float | None
    tpot_ratio_low: float | None
    tpot_ratio_high: float | None
    num_prompts: int
    num_pairs: int
    same_output_rate: float | None
    method: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CategoryFigures:
    """An arm on the prompts of one category (a data set of several, or a kind of question); see
    `metrics.by_category`."""

    name: str
    num_prompts: int
    acceptance: Acceptance
    tpot_ms: float | None
    speedup: Speedup | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmSummary:
    """One row of the comparison table.

    spreads: every number of a block's figures, by dotted name (`tpot_ms.mean`), over the measured repeats.
    acceptance: over all repeats pooled, interval over prompts; None if nothing was measured. status: ok, partial
    (some repeats failed), failed, pending. marks: notes for the reader of the row. categories: of prompts, if the run
    has several.
    """

    label: str
    strategy: str
    status: str
    error: str
    num_repeats: int
    num_requests: int
    num_failed_requests: int
    spreads: Mapping[str, Spread]
    acceptance: Acceptance | None
    speedup: Speedup | None
    marks: tuple[str, ...]
    categories: tuple[CategoryFigures, ...] = ()

    def median(self, name: str) -> float | None:
        """Median over repeats of a figure, None if no repeat has it."""
        found = self.spreads.get(name)
        return None if found is None else found.median

    def group(self, prefix: str) -> dict[str, float]:
        """Medians of the figures below `prefix.`, in stored order: `group("phases_ms.plain")`."""
        start = prefix + "."
        return {k.removeprefix(start): v.median for k, v in self.spreads.items() if k.startswith(start)}


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoreKey:
    """What was scored, and how."""

    arm: str
    task: str
    version: str
    filter: str
    num_fewshot: int
    metric: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Score(ScoreKey):
    """`value`: a fraction, over `n` items; `stderr`: None with one item."""

    value: float
    stderr: float | None
    n: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ItemPairs:
    """An arm against the baseline over the `n` items that both answered; see `metrics.accuracy.paired`. None: unknown,
    or not defined for such values."""

    n: int
    same_output: float | None = None
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    won: int | None = None
    lost: int | None = None
    p: float | None = None
    p_test: float | None = None
    detectable: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ScorePair(ScoreKey):
    baseline: str
    items: ItemPairs


@dataclass(frozen=True, kw_only=True, slots=True)
class AccuracyFigures:
    scores: tuple[Score, ...] = ()
    pairs: tuple[ScorePair, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Results:
    """Derived once, when a run is closed. `accuracy`: for a run whose arms were scored. `rules`: version of the rules
    for the spreads, intervals and marks of `arms`; 0: from before they had versions."""

    rules: int = 0
    arms: tuple[ArmSummary, ...] = ()
    blocks: tuple[StoredBlock, ...] = ()
    accuracy: AccuracyFigures | None = None

    def by_block(self) -> dict[tuple[str, int], BlockFigures]:
        return {(block.arm, block.repeat): block.figures for block in self.blocks}
