"""Two lm-eval sample files, paired item by item. Items are matched by their hash, never by their position.

improved, regressed   the difference is significant (Holm over filters and metrics) and at least `MARGIN`
higher, lower         the same, for a metric without a recorded direction
equivalent            the whole interval is within `MARGIN` of no difference
inconclusive          anything else
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pandas as pd

from specbench.harness.judge.lm_eval_samples import Place, Sample, SampleFile
from specbench.harness.metrics.accuracy import paired
from specbench.harness.stats.paired import holm_of_known
from specbench.harness.stats.power import ALPHA
from specbench.harness.stats.verdict import EQUIVALENT, IMPROVED, INCONCLUSIVE, REGRESSED
from specbench.harness.store.results import ItemPairs
from specbench.harness.text import is_number

MARGIN = 0.01  # one percentage point, as in the accuracy gate
HIGHER, LOWER = "higher", "lower"
SCHEMA = "specbench.samples/1"
_COLUMNS = ["item", "value", "output_sha256"]


@dataclass(frozen=True, kw_only=True, slots=True)
class PairedMetric:
    """`a`, `b`: means over the paired items. `higher_is_better`: None if not recorded. `left_out`: items that are not
    paired, by reason. `num_other_prompts`: pairs with different prompts."""

    filter: str
    metric: str
    a: float | None
    b: float | None
    items: ItemPairs
    higher_is_better: bool | None
    left_out: Mapping[str, int]
    num_other_prompts: int
    num_by_target: int  # pairs that were matched by the hash of their target alone
    p_holm: float | None = None
    verdict: str = INCONCLUSIVE


@dataclass(frozen=True, kw_only=True, slots=True)
class PairedSamples:
    """B against A. `tasks`: from the files' names."""

    schema: str = SCHEMA
    a: str
    b: str
    tasks: tuple[str, str]
    margin: float = MARGIN
    alpha: float = ALPHA
    metrics: tuple[PairedMetric, ...]


def pair_samples(a: SampleFile, b: SampleFile) -> PairedSamples:
    """ValueError if no item pairs, with the reasons."""
    keys = {(place[1], metric): None for one in (a, b) for place, s in one.samples.items() for metric in s.values}
    found = [_metric(a, b, filter, metric) for filter, metric in keys]
    if not any(one.items.n for one in found):
        reasons = sum((Counter(one.left_out) for one in found), Counter[str]())
        listed = "; ".join(f"{count} {reason}" for reason, count in reasons.items())
        raise ValueError(f"samples: no item of {a.path} and {b.path} can be paired: {listed}")
    adjusted = holm_of_known([one.items.p_test for one in found])
    judged = [replace(one, p_holm=p_holm) for one, p_holm in zip(found, adjusted, strict=True)]
    return PairedSamples(
        a=str(a.path),
        b=str(b.path),
        tasks=(a.task, b.task),
        metrics=tuple(replace(one, verdict=_verdict(one)) for one in judged),
    )


def _metric(a: SampleFile, b: SampleFile, filter: str, metric: str) -> PairedMetric:
    places = [p for p in dict.fromkeys([*a.samples, *b.samples]) if p[1] == filter]
    reasons = {place: _apart(a, b, place, metric) for place in places}
    same = [place for place, reason in reasons.items() if not reason]
    rows = [_rows(one, same, metric) for one in (a, b)]
    pairs = [(a.samples[place], b.samples[place]) for place in same]
    return PairedMetric(
        filter=filter,
        metric=metric,
        a=float(rows[0]["value"].mean()) if same else None,
        b=float(rows[1]["value"].mean()) if same else None,
        items=paired(*rows),
        higher_is_better=_direction(a, b, metric),
        left_out=Counter(reason for reason in reasons.values() if reason),
        num_other_prompts=sum(x.prompt_hash != y.prompt_hash for x, y in pairs),
        num_by_target=sum(None in (x.doc_hash, y.doc_hash) for x, y in pairs),
    )


def _rows(file: SampleFile, places: list[Place], metric: str) -> pd.DataFrame:
    samples = [(place[0], file.samples[place]) for place in places]
    return pd.DataFrame([(doc, float(_number(s, metric)), s.output_sha256) for doc, s in samples], columns=_COLUMNS)


def _apart(a: SampleFile, b: SampleFile, place: Place, metric: str) -> str:
    """Why the items of both files do not pair; empty if they do."""
    for label, own in (("A", a), ("B", b)):
        if place not in own.samples:
            return f"not in {label}"
        if place in own.repeated:
            return f"more than once in {label}"
    first, second = a.samples[place], b.samples[place]
    hashes = [h for h in ((first.doc_hash, second.doc_hash), (first.target_hash, second.target_hash)) if None not in h]
    if not hashes:
        return "without a hash of document or target in both"
    if hashes[0][0] != hashes[0][1]:
        return "with another document under the same doc_id"
    for label, sample in (("A", first), ("B", second)):
        if metric not in sample.values:
            return f"without this metric in {label}"
        if not math.isfinite(_number(sample, metric)):
            return f"whose value in {label} is not a number"
    return ""


def _number(sample: Sample, metric: str) -> float:
    """nan for values that are not numbers, such as the pairs of a perplexity."""
    value = sample.values[metric]
    return float(value) if isinstance(value, bool) or is_number(value) else math.nan


def _direction(a: SampleFile, b: SampleFile, metric: str) -> bool | None:
    """None if neither file records it, or if they contradict each other."""
    directions = {one.directions[metric] for one in (a, b) if metric in one.directions}
    return directions.pop() if len(directions) == 1 else None


def _verdict(one: PairedMetric) -> str:
    items = one.items
    if one.p_holm is None or items.difference is None or items.low is None or items.high is None:
        return INCONCLUSIVE
    if one.p_holm <= ALPHA and abs(items.difference) >= MARGIN:
        is_higher = items.difference > 0
        if one.higher_is_better is None:
            return HIGHER if is_higher else LOWER
        return IMPROVED if is_higher == one.higher_is_better else REGRESSED
    return EQUIVALENT if -MARGIN <= items.low and items.high <= MARGIN else INCONCLUSIVE
