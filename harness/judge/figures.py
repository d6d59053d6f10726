"""The timed figures of an arm, and how those of two arms are paired: by repeat if there are enough, else by prompt."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from specbench.harness.judge.keys import same_prompts
from specbench.harness.judge.machine_noise import ADVICE, NoiseFloors
from specbench.harness.judge.rerun import floor_command
from specbench.harness.judge.stored import StoredRun
from specbench.harness.metrics.accounting import step_table
from specbench.harness.metrics.figures import STEP_MS, TOKENS_PER_STEP, TPOT_MS, TTFT_MS, Figure
from specbench.harness.metrics.latency import served, tpot_by_request_ms
from specbench.harness.metrics.same_requests import count_same_outputs
from specbench.harness.metrics.speedup import NO_INTERVAL
from specbench.harness.stats.paired import Shared
from specbench.harness.stats.verdict import MIN_PAIRS, Metric, Pairs
from specbench.harness.store.ab_record import LABELS
from specbench.harness.store.arm_record import ArmRecord, driven_otherwise
from specbench.harness.store.results import Figures
from specbench.harness.store.schema import Frames

_NS_PER_MS = 1e6
REPEATS, PROMPTS = "repeats", "prompts"
OF_PROMPTS = (TOKENS_PER_STEP,)
"""Properties of the prompts, not of the machine at that time."""
TOGETHER = "import their files into one run, which pairs them by request"


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """One arm of one run."""

    run: StoredRun
    arm: str

    @property
    def name(self) -> str:
        return f"{self.run.name}: {self.arm}"

    @property
    def record(self) -> ArmRecord:
        return self.run.record.arm(self.arm)


def _tpot_by_prompt(side: Side) -> pd.Series:
    requests = side.run.rows("requests", side.arm).reset_index(drop=True)
    tpot = tpot_by_request_ms(requests)
    return _geometric_mean(tpot, requests.loc[tpot.index, "prompt_id"])


def _ttft_by_prompt(side: Side) -> pd.Series:
    done = served(side.run.rows("requests", side.arm))
    done = done[done["repeat"].isin(values_by_repeat(TTFT_MS, side))]  # a prefix cache makes that of a block void
    return _geometric_mean((done["t_first_ns"] - done["t_submit_ns"]) / _NS_PER_MS, done["prompt_id"])


def _tokens_per_step_by_prompt(side: Side) -> pd.Series:
    return _tokens_per_step(_with_prompts(side), ["prompt_id"])


def _tokens_per_step(rows: pd.DataFrame, by: list[str]) -> pd.Series:
    rows = rows[~rows["is_prefill"].astype(bool) & rows["num_accepted"].notna()]  # not chunks that a client saw
    sums = rows.groupby(by)["num_emitted"].agg(["sum", "count"])
    return sums["sum"] / sums["count"]


def _step_ms_by_prompt(side: Side) -> pd.Series:
    """Median duration of the decode rounds that a prompt took part in: within a repeat, then over the repeats."""
    rows = _with_prompts(side)
    found = []
    for repeat, block in rows.groupby("repeat"):
        table = step_table(block)
        rounds_ms = table.loc[table["kind"] == "decode", "round_ns"] / _NS_PER_MS
        timed = block.assign(round_ms=block["step"].map(rounds_ms)).dropna(subset="round_ms")
        found.append(timed.groupby("prompt_id")["round_ms"].median().rename(repeat))
    medians = pd.concat(found) if found else pd.Series(dtype=float)
    return _geometric_mean(medians, pd.Series(medians.index, index=medians.index))


def _with_prompts(side: Side) -> pd.DataFrame:
    keys = ["repeat", "request_id"]
    prompts = side.run.rows("requests", side.arm)[[*keys, "prompt_id"]]
    return side.run.rows("steps", side.arm).merge(prompts, on=keys, how="inner")


def _geometric_mean(values: pd.Series, prompts: pd.Series) -> pd.Series:
    """Over the repeats of a prompt; nan if one of them is not positive."""
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = pd.Series(np.log(values.to_numpy(dtype=float)), index=prompts.to_numpy())
    means = logs.groupby(level=0).mean()
    return pd.Series(np.exp(means.to_numpy()), index=means.index)


_BY_PROMPT: Mapping[Figure, Callable[[Side], pd.Series]] = {
    STEP_MS: _step_ms_by_prompt,
    TOKENS_PER_STEP: _tokens_per_step_by_prompt,
    TPOT_MS: _tpot_by_prompt,
    TTFT_MS: _ttft_by_prompt,
}
"""Values of an arm by prompt id, all repeats pooled; prompts without a value are left out."""


def values_by_repeat(figure: Figure, side: Side) -> dict[int, float]:
    """The figure of each repeat that has one."""
    found = {n: figures.get(figure.block) for n, figures in side.run.blocks(side.arm).items()}
    return {n: float(value) for n, value in found.items() if value is not None}


def median(figure: Figure, side: Side) -> float | None:
    """Median over the repeats; None if no repeat has a value, or if it is not a number."""
    values = list(values_by_repeat(figure, side).values())
    value = float(np.median(values)) if values else math.nan
    return value if math.isfinite(value) else None


def pairs_of(
    figure: Figure, frames: Frames, figures: Mapping[tuple[str, int], Figures], blocks: Collection[int]
) -> Pairs:
    """Pairs (A, B) of one figure over `blocks`; `figures`: of the run, by arm and block.

    step time: median duration of the decode rounds of a block, gaps in front included. TPOT, TTFT: mean over the
    requests of a block. tokens per step: of a prompt, tokens kept / forwards, all its blocks pooled.
    """
    if figure in OF_PROMPTS:
        return Pairs(metric=_metric(figure, "prompts"), values=_tokens_per_step_pairs(frames, blocks))
    both = ((figures["A", n].get(figure.block), figures["B", n].get(figure.block)) for n in blocks)
    return Pairs(metric=_metric(figure, "blocks"), values=[(a, b) for a, b in both if a and b])


def _tokens_per_step_pairs(frames: Frames, blocks: Collection[int]) -> list[tuple[float, float]]:
    keys = ["arm", "repeat", "request_id"]
    steps = frames.steps[frames.steps["repeat"].isin(list(blocks))]
    rows = steps.merge(frames.requests[[*keys, "prompt_id"]], on=keys)
    rates = _tokens_per_step(rows, ["arm", "prompt_id"]).unstack("arm").reindex(columns=list(LABELS)).dropna()
    rates = rates[(rates > 0).all(axis=1)]
    return list(zip(rates["A"], rates["B"], strict=True))


def pair(figure: Figure, a: Side, b: Side, floors: NoiseFloors) -> Pairs:
    """Pairs of `b` against the baseline `a`; sides that were driven differently are not tested.

    The sides of an A/B run are paired as in `specbench ab`. Other arms are paired by repeat if both sides have at least
    MIN_PAIRS (repeats of one run were interleaved; those of two runs are independent, and any matching of them is
    valid), and by prompt if there are fewer and the prompts are the same. Noise that all pairs share is estimated from
    the blocks of one run, and from `floors` for two.
    """
    found = _paired(figure, a, b, floors)
    return replace(found, no_verdict=found.no_verdict or driven_otherwise(a.record, b.record))


def _paired(figure: Figure, a: Side, b: Side, floors: NoiseFloors) -> Pairs:
    of_a, of_b = values_by_repeat(figure, a), values_by_repeat(figure, b)
    if a.run is b.run:
        experiment = a.run.experiment
        if experiment is not None and {a.arm, b.arm} == set(LABELS):
            pairs = pairs_of(figure, a.run.frames, a.run.figures, experiment.kept)
            values = pairs.values if a.arm == LABELS[0] else [(y, x) for x, y in pairs.values]
            return replace(_positive(pairs, values), no_verdict=experiment.no_verdict())
        repeats = [(of_a[n], of_b[n]) for n in of_a if n in of_b]
        found = _pairs(figure, a, b, repeats)
        if a.run.record.is_imported:
            # An interval over requests without a verdict: the files were not measured in turns.
            return replace(found, metric=replace(found.metric, gated=False))
        return _over_blocks(figure, found, repeats)
    pairs = _pairs(figure, a, b, list(zip(of_a.values(), of_b.values(), strict=False)))
    if figure in OF_PROMPTS:
        other = "" if pairs.metric.pairs == PROMPTS else f"{figure.name}: the prompts are not the same"
        return replace(pairs, no_verdict=other)
    noise = floors.between(a.run, b.run, b.arm, figure.name)
    if noise.shared is None:
        is_imported = a.run.record.is_imported or b.run.record.is_imported
        advice = TOGETHER if is_imported else _advice(b.run)
        return replace(pairs, no_verdict=f"times of two runs: {noise.note}; {advice}")
    return replace(pairs, shared=noise.shared, note=noise.note)


def _advice(run: StoredRun) -> str:
    """Adds the command, whose arm is the same for all rows."""
    return f"{ADVICE}: {floor_command(run.record, run.arms[0])}"


def _over_blocks(figure: Figure, pairs: Pairs, repeats: Sequence[tuple[float, float]]) -> Pairs:
    """Times paired by prompt, with the noise that the prompts of a block share: the differences between blocks. One
    block cannot show it."""
    if figure in OF_PROMPTS or pairs.metric.pairs == REPEATS:
        return pairs
    logs = np.log([y / x for x, y in repeats if x > 0 and y > 0])
    if len(logs) < 2:
        return replace(pairs, no_verdict=f"times: {NO_INTERVAL}")
    return replace(pairs, shared=Shared(variance=float(logs.var(ddof=1)) / len(logs), freedom=len(logs) - 1))


def _pairs(figure: Figure, a: Side, b: Side, repeats: Sequence[tuple[float, float]]) -> Pairs:
    # The ids of imported requests are the same where the requests are.
    is_same = (a.run is b.run and a.run.record.is_imported) or same_prompts(a.run.record, b.run.record)
    by_prompt = _BY_PROMPT.get(figure) if is_same else None
    if by_prompt is not None and (figure in OF_PROMPTS or len(repeats) < MIN_PAIRS):
        both = pd.concat([by_prompt(a), by_prompt(b)], axis=1, join="inner").to_numpy()
        values = [(float(x), float(y)) for x, y in both]
        return _positive(Pairs(metric=_metric(figure, PROMPTS), values=()), values)
    return _positive(Pairs(metric=_metric(figure, REPEATS), values=()), repeats)


def _metric(figure: Figure, pairs: str) -> Metric:
    return Metric(name=figure.name, better=figure.better, pairs=pairs, unit=figure.unit, gated=figure.gated)


def _positive(pairs: Pairs, values: Sequence[tuple[float, float]]) -> Pairs:
    good = tuple(pair for pair in values if all(math.isfinite(x) and x > 0 for x in pair))
    return replace(pairs, values=good, num_dropped=len(values) - len(good))


def same_outputs(a: Side, b: Side) -> tuple[int, int] | None:
    """(requests with identical tokens, requests paired): by repeat, prompt and n-th run of the prompt. None if the
    prompts differ, nothing pairs, or the tokens are unknown."""
    if not same_prompts(a.run.record, b.run.record) or any(side.run.record.is_imported for side in (a, b)):
        return None
    num_same, num_pairs = count_same_outputs(*(side.run.rows("requests", side.arm) for side in (a, b)))
    return (num_same, num_pairs) if num_pairs else None
