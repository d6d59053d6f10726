"""The drafters of a run, from its rounds: arms that differ only in the number of drafts belong to one drafter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import pandas as pd

from specbench.harness.metrics.latency import served
from specbench.harness.metrics.same_rounds import common_length
from specbench.harness.registry import BASELINE
from specbench.harness.store.arm_record import ArmRecord, Fact
from specbench.harness.store.run_directory import RunDirectory
from specbench.harness.store.schema import Frames

_DEPTH = ("k", "num_steps", "num_draft_tokens")  # options that only set the number of drafts
Request = tuple[str, int]
"""A prompt and which of its runs."""


class Round(NamedTuple):
    """`before`: tokens of the output when it began. `depth`: drafts offered. `emitted`: tokens kept."""

    before: int
    depth: int
    accepted: int
    emitted: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Recorded:
    """An arm: outputs and rounds of its first repeat, figures of all repeats. num_drafts: K, or the maximum if
    `is_auto`, where each round has its own. drafts: everything else that determines the drafts. tpot_ms: time between
    first and last tokens of the requests divided by their tokens after the first, the median of the repeats: one with a
    pause must not decide which K is best. round_ms: the same for a round. mean_batch: requests per round, as seen by a
    request."""

    label: str
    num_drafts: int
    is_auto: bool
    drafts: str
    outputs: Mapping[Request, tuple[int, ...]]
    rounds: Mapping[Request, Sequence[Round]]
    round_ms: float
    tpot_ms: float
    acceptance_length: float | None
    mean_batch: float
    is_synthetic: bool

    @property
    def tokens_per_forward(self) -> float:
        return self.round_ms / self.tpot_ms

    def informative_rounds(self, request: Request, output: Sequence[int]) -> list[Round]:
        """Rounds of a request that are informative about `output`: those before its own output differs from it. Forced
        acceptance depends on the position, whatever the tokens."""
        end = len(output) if self.is_synthetic else common_length(self.outputs[request], output)
        return [one for one in self.rounds[request] if one.before + one.emitted <= end]


@dataclass(frozen=True, kw_only=True, slots=True)
class Drafter:
    """`arms`: by K."""

    name: str
    arms: Mapping[int, Recorded]

    @property
    def most(self) -> int:
        return max(self.arms)

    def adds_to(self, other: Drafter) -> bool:
        """Whether the two can draft differently. Forced acceptance gives no information about that."""
        a, b = (next(iter(one.arms.values())) for one in (self, other))
        return a.drafts != b.drafts and not (a.is_synthetic or b.is_synthetic)

    def agreement(self, outputs: Mapping[Request, Sequence[int]]) -> tuple[int, int]:
        """(positions where rounds of two arms begin, and those of them where both accept the same, as far as both
        draft)."""
        num_shared = num_equal = 0
        known: dict[tuple[Request, int], Round] = {}
        for _, arm in sorted(self.arms.items()):
            for request, output in outputs.items():
                for one in arm.informative_rounds(request, output):
                    before = known.get((request, one.before))
                    if before is not None:
                        num_shared += 1
                        num_equal += min(one.accepted, before.depth) == before.accepted
                    known[request, one.before] = one
        return num_shared, num_equal


def drafters_of(run: RunDirectory) -> tuple[Recorded, list[Drafter], list[Recorded], list[str]]:
    """(no-spec, drafters in the order of the run, arms whose number of drafts was chosen round by round, why other arms
    are left out). ValueError without no-spec or drafter."""
    record, frames = run.record, run.frames()
    base = next((arm for arm in record.arms if arm.strategy == BASELINE), None)
    if base is None:
        raise ValueError(f"run: {record.run_id} has no arm {BASELINE}, which gives the cost of rounds without drafts")
    if reason := _refusal(base, base, frames):
        raise ValueError(f"run: {record.run_id}: {base.label}: {reason}")
    found: dict[str, dict[int, Recorded]] = {}
    left_out, chosen = [], []
    for arm in record.arms:
        if arm.strategy == BASELINE:
            continue
        reason = _refusal(arm, base, frames)
        recorded = None if reason else _recorded(arm, frames)
        if recorded is not None and recorded.is_auto:
            chosen.append(recorded)  # a round without more accepted may have had no more drafts
        elif recorded is not None:
            twin = found.setdefault(_kind(arm), {}).setdefault(recorded.num_drafts, recorded)
            reason = "" if twin is recorded else f"has the same drafts as {twin.label}"
        left_out += [f"{arm.label}: {reason}"] * bool(reason)
    if not found:
        raise ValueError(f"run: {record.run_id} has no arm with usable rounds: {'; '.join(left_out) or 'no other arm'}")
    return _recorded(base, frames), _named(list(found.values()), record.arms), chosen, left_out


def _refusal(arm: ArmRecord, base: ArmRecord, frames: Frames) -> str:
    """Why the arm cannot be used; empty if it can."""
    requests = served(frames.requests[frames.requests["arm"] == arm.label])
    rows = _decoding(frames.steps[frames.steps["arm"] == arm.label])
    if arm.imported is not None:
        return "imported, and files of other benchmarks have no rounds"
    if requests.empty:
        return arm.error or "was not measured"
    if arm.config.engine != base.config.engine:
        return f"a different engine than that of {base.label}"
    if rows.empty or rows["num_accepted"].isna().any():
        return arm.unknown.get(Fact.ACCEPTANCE) or "its steps do not show what was accepted"
    if requests["output_token_ids"].isna().any():
        return arm.unknown.get(Fact.TOKEN_IDS) or "its requests have no token ids"
    if (rows["num_proposed"] != rows["draft_depth"]).any():
        return "drafts trees, and steps do not show which branches a smaller tree would have kept"
    if arm is not base and not rows["draft_depth"].any():
        return "never drafted"
    return ""


def _decoding(steps: pd.DataFrame) -> pd.DataFrame:
    return steps[~steps["is_prefill"].astype(bool)]


def _recorded(arm: ArmRecord, frames: Frames) -> Recorded:
    keys = ["repeat", "request_id"]
    requests = served(frames.requests[frames.requests["arm"] == arm.label]).sort_values(keys)
    requests = requests.assign(nth=requests.groupby(["repeat", "prompt_id"]).cumcount())
    steps = frames.steps[frames.steps["arm"] == arm.label].sort_values("step")
    steps = steps.assign(before=steps.groupby(keys)["num_emitted"].cumsum() - steps["num_emitted"])
    rows = _decoding(steps).merge(requests[[*keys, "prompt_id", "nth"]], on=keys)
    outputs: dict[Request, tuple[int, ...]] = {}
    first = requests[requests["repeat"] == requests["repeat"].min()]
    for one in first.itertuples():
        outputs[one.prompt_id, one.nth] = tuple(int(token) for token in one.output_token_ids)
    rounds: dict[Request, list[Round]] = {request: [] for request in outputs}
    columns = ["prompt_id", "nth", "before", "draft_depth", "num_accepted", "num_emitted"]
    for prompt, nth, *sizes in rows.loc[rows["repeat"] == first["repeat"].min(), columns].itertuples(index=False):
        rounds[prompt, nth].append(Round(*map(int, sizes)))
    timed = requests.assign(ms=(requests["t_last_ns"] - requests["t_first_ns"]) / 1e6)
    timed = timed.assign(tokens=requests["num_output_tokens"] - 1).groupby("repeat")[["ms", "tokens"]].sum()
    if not (timed["tokens"] > 0).all() or not (timed["ms"] > 0).all() or rows.empty:
        raise ValueError(
            f"run: the requests of {arm.label} show no time after their first token, or no round of theirs"
        )
    tpot_ms = float((timed["ms"] / timed["tokens"]).median())
    drafted = rows[rows["draft_depth"] >= 1]
    return Recorded(
        label=arm.label,
        num_drafts=arm.config.num_drafts or int(rows["draft_depth"].max()),
        is_auto=arm.config.has_auto_k,
        drafts=f"{arm.strategy} {_options(arm)}",
        outputs=outputs,
        rounds=rounds,
        round_ms=tpot_ms * float(timed["tokens"].sum()) / len(rows),
        tpot_ms=tpot_ms,
        acceptance_length=1 + float(drafted["num_accepted"].mean()) if len(drafted) else None,
        mean_batch=float(rows["batch_size"].mean()),
        is_synthetic=_is_synthetic(arm),
    )


def _is_synthetic(arm: ArmRecord) -> bool:
    return arm.config.acceptance not in (None, "real")


def _options(arm: ArmRecord) -> dict[str, str]:
    return {key: value for key, value in sorted(arm.config.options.items()) if key not in _DEPTH}


def _kind(arm: ArmRecord) -> str:
    """What arms of one drafter have in common."""
    acceptance = "forced" if _is_synthetic(arm) else "real"
    return f"{arm.strategy} {replace(arm.config, options=_options(arm), num_drafts=None, acceptance=acceptance)}"


def _named(found: Sequence[Mapping[int, Recorded]], arms: Sequence[ArmRecord]) -> list[Drafter]:
    """Named by strategy, and by an arm's label if two drafters share a strategy."""
    strategies = {arm.label: arm.strategy for arm in arms}
    names = [strategies[next(iter(own.values())).label] for own in found]
    times = Counter(names)
    return [
        Drafter(name=name if times[name] == 1 else f"{name} as in {own[max(own)].label}", arms=own)
        for name, own in zip(names, found, strict=True)
    ]
