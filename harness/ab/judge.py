"""The record of an A/B experiment, `ab.json`: rejected blocks, comparisons, verdict and exit code, from what is stored.

A function of the run directory alone, so that a stored experiment can be judged again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from specbench.harness.measure.block_figures import block_figures
from specbench.harness.measure.files import to_plain
from specbench.harness.measure.power import ALPHA
from specbench.harness.measure.record import RunDirectory
from specbench.harness.measure.verdict import (
    EQUIVALENT,
    EXPLORATORY,
    IMPROVED,
    INCONCLUSIVE,
    LEAST_PAIRS,
    NO_DATA,
    REGRESSED,
    Comparison,
    compare,
)

from .blocks import read_records
from .plan import LABELS, MANIFEST_KEY, AbPlan
from .samples import metric_pairs, same_outputs

AB_SCHEMA = "specbench.ab/1"
INVALID, UNFINISHED = "invalid", "unfinished"
MOST_REJECTED = 0.2
"""Share of rejected blocks beyond which the whole measurement is invalid."""

EXIT_OK, EXIT_REGRESSED, EXIT_INCONCLUSIVE, EXIT_INVALID, EXIT_NOT_COMPARABLE, EXIT_WRONG = 0, 1, 3, 4, 5, 6


def judge(directory: RunDirectory) -> dict[str, Any]:
    """Everything that is reported of the experiment, as plain data.

    metrics: a `Comparison` each, with its `pairs`. verdict: of the whole, the worst of the gated metrics. exit_code: 0
    improved or equivalent (or inconclusive, which --strict makes 3), 1 regressed, 4 invalid (too few or too many
    rejected blocks; a change between equal sides; no outputs to compare where a share of equal ones was asked for), 6
    outputs that differ more than allowed. Before the last block there is no verdict: who stops at the right moment
    finds whatever he looks for.
    """
    manifest = directory.manifest
    plan = AbPlan.from_dict(manifest[MANIFEST_KEY]["plan"])
    frames = directory.frames()
    figures = block_figures(frames)
    records, failed = read_records(directory.path), directory.failed_blocks()
    blocks = [_block(n, order, figures, records, failed) for n, order in enumerate(plan.order())]
    kept = [block["block"] for block in blocks if block["measured"] and not block["reasons"]]
    pairs = metric_pairs(frames, figures, kept)
    compared = compare(pairs, plan.min_effect)
    is_whole = all(block["measured"] or block["reasons"] for block in blocks)
    if len(kept) < LEAST_PAIRS or not is_whole:
        compared = [c if c.verdict == NO_DATA else replace(c, verdict=EXPLORATORY, more_pairs=None) for c in compared]
    num_rejected = sum(bool(block["reasons"]) for block in blocks)
    is_aa = bool(manifest[MANIFEST_KEY].get("is_aa"))
    verdict = _overall(compared, num_rejected / plan.num_blocks, is_aa) if is_whole else UNFINISHED
    num_same, num_outputs = same_outputs(frames.requests, kept)
    # A share that was asked for and cannot be told is no pass. The ratio, not the product: 11 of 20 are 55 %.
    is_told = num_outputs > 0 or plan.min_same_output == 0
    wrong = num_outputs > 0 and num_same / num_outputs < plan.min_same_output
    return to_plain(
        {
            "schema": AB_SCHEMA,
            "run_id": manifest["run_id"],
            "status": manifest["status"],
            "plan": plan.to_dict(),
            "alpha": ALPHA,
            "is_aa": is_aa,
            "mismatches": manifest[MANIFEST_KEY].get("mismatches", []),
            "code": manifest[MANIFEST_KEY].get("code", {}),
            "arms": {arm["label"]: _arm(arm, manifest[MANIFEST_KEY]["names"]) for arm in manifest["arms"]},
            "blocks": blocks,
            "num_kept": len(kept),
            "num_rejected": num_rejected,
            "unchecked": _unchecked(manifest[MANIFEST_KEY], records),
            "metrics": [{**asdict(c), "pairs": pairs[c.metric]} for c in compared],
            "same_output": {"num_same": num_same, "num_pairs": num_outputs, "is_enough": is_told and not wrong},
            "verdict": verdict,
            "exit_code": EXIT_WRONG if wrong else _exit_code(verdict) if is_told else EXIT_INVALID,
        }
    )


def _arm(arm: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    name = names.get(arm["label"], "")
    return {"name": name, "strategy": arm["strategy"], "notes": [note for note in arm["notes"] if note != name]}


def _block(
    block: int,
    order: tuple[str, str],
    figures: Mapping[tuple[str, int], Mapping[str, Any]],
    records: Mapping[tuple[str, int], Mapping[str, Any]],
    failed: Mapping[tuple[str, int], str],
) -> dict[str, Any]:
    """One block: its order, whether both sides are measured, why it is rejected, the load average beside each side."""
    reasons, load = [], {}
    for label in LABELS:
        record = records.get((label, block), {})
        load[label] = record.get("load_average")
        reasons += [f"{label}: {reason}" for reason in record.get("reasons", [])]
        if (label, block) in failed:
            reasons.append(f"{label}: failed: {failed[label, block]}")
        elif (label, block) in figures and figures[label, block]["num_failed_requests"]:
            reasons.append(f"{label}: {figures[label, block]['num_failed_requests']} failed requests")
    measured = all((label, block) in figures for label in LABELS)
    return {"block": block, "order": "".join(order), "measured": measured, "reasons": reasons, "load_average": load}


def _unchecked(stored: Mapping[str, Any], records: Mapping[Any, Mapping[str, Any]]) -> list[str]:
    return list(
        dict.fromkeys([*stored.get("unchecked", []), *(u for r in records.values() for u in r.get("unchecked", []))])
    )


def _overall(compared: list[Comparison], rejected: float, is_aa: bool) -> str:
    """The worst verdict of the gated metrics; that of equal sides cannot be a change."""
    found = [c.verdict for c in compared if c.metric.gated]
    by_block = [c.verdict for c in compared if c.metric.gated and c.metric.pairs == "blocks"]
    if rejected > MOST_REJECTED or (is_aa and {IMPROVED, REGRESSED} & set(found)):
        return INVALID
    if all(verdict in (EXPLORATORY, NO_DATA) for verdict in by_block):
        return EXPLORATORY
    return next(word for word in (REGRESSED, INCONCLUSIVE, IMPROVED, EQUIVALENT) if word in found)


def _exit_code(verdict: str) -> int:
    if verdict in (INVALID, UNFINISHED, EXPLORATORY):
        return EXIT_INVALID
    return EXIT_REGRESSED if verdict == REGRESSED else EXIT_OK
