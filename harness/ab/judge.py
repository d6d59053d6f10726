"""The record of an A/B experiment, `ab.json`: rejected blocks, comparisons, verdict and exit code, from what is stored.

A function of the run directory alone, so that a stored experiment can be judged again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from specbench.harness.exit_codes import ExitCode
from specbench.harness.judge.overall import INVALID, MIXED, UNFINISHED, decisive
from specbench.harness.metrics.block_figures import block_figures
from specbench.harness.stats.power import ALPHA
from specbench.harness.stats.verdict import (
    EQUIVALENT,
    EXPLORATORY,
    IMPROVED,
    INCONCLUSIVE,
    NO_DATA,
    REGRESSED,
    Comparison,
    compare,
)
from specbench.harness.store.files import to_plain
from specbench.harness.store.run_directory import RunDirectory

from .blocks import read_records
from .experiment import Experiment, read_experiment
from .plan import MANIFEST_KEY
from .samples import TPOT, metric_pairs, same_outputs

AB_SCHEMA = "specbench.ab/1"


def judge(directory: RunDirectory) -> dict[str, Any]:
    """Everything that is reported of the experiment, as plain data.

    metrics: a `Comparison` each, with its `pairs`. verdict: of the whole, the worst of the gated metrics; `mixed` where
    one improved and another regressed, as with more drafts a step: then `product`, the verdict of TPOT, decides.
    exit_code: 0 improved or equivalent (or inconclusive, which --strict makes 3), 1 regressed, 4 invalid (too few or
    too many rejected blocks; a change between equal sides; mixed without a TPOT; no outputs to compare where a share of
    equal ones was asked for), 6 outputs that differ more than allowed. Before the last block there is no verdict: who
    stops at the right moment finds whatever he looks for.
    """
    manifest = directory.manifest
    frames = directory.frames()
    figures = block_figures(frames)
    found = read_experiment(directory, figures)
    plan = found.plan
    pairs = metric_pairs(frames, figures, found.kept)
    compared = compare(pairs, plan.min_effect)
    if found.no_verdict():
        compared = [c if c.verdict == NO_DATA else replace(c, verdict=EXPLORATORY, more_pairs=None) for c in compared]
    verdict = _overall(compared, found) if found.is_whole else UNFINISHED
    product = next(c.verdict for c in compared if c.metric == TPOT)
    counts = decisive({"verdict": verdict, "product": product})
    num_same, num_outputs = same_outputs(frames.requests, found.kept)
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
            "is_aa": found.is_aa,
            "mismatches": manifest[MANIFEST_KEY].get("mismatches", []),
            "code": manifest[MANIFEST_KEY].get("code", {}),
            "arms": {arm["label"]: _arm(arm, manifest[MANIFEST_KEY]["names"]) for arm in manifest["arms"]},
            "blocks": list(found.blocks),
            "num_kept": len(found.kept),
            "num_rejected": found.num_rejected,
            "unchecked": _unchecked(manifest[MANIFEST_KEY], read_records(directory.path)),
            "metrics": [{**asdict(c), "pairs": pairs[c.metric]} for c in compared],
            "same_output": {"num_same": num_same, "num_pairs": num_outputs, "is_enough": is_told and not wrong},
            "verdict": verdict,
            "product": product,
            "exit_code": ExitCode.WRONG if wrong else _exit_code(counts) if is_told else ExitCode.INVALID,
        }
    )


def _arm(arm: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    name = names.get(arm["label"], "")
    return {"name": name, "strategy": arm["strategy"], "notes": [note for note in arm["notes"] if note != name]}


def _unchecked(stored: Mapping[str, Any], records: Mapping[Any, Mapping[str, Any]]) -> list[str]:
    return list(
        dict.fromkeys([*stored.get("unchecked", []), *(u for r in records.values() for u in r.get("unchecked", []))])
    )


def _overall(compared: list[Comparison], found: Experiment) -> str:
    """The worst verdict of the gated metrics, unless it goes both ways; that of equal sides cannot be a change."""
    verdicts = [c.verdict for c in compared if c.metric.gated]
    by_block = [c.verdict for c in compared if c.metric.gated and c.metric.pairs == "blocks"]
    if found.has_too_many_rejected or (found.is_aa and {IMPROVED, REGRESSED} & set(verdicts)):
        return INVALID
    if all(verdict in (EXPLORATORY, NO_DATA) for verdict in by_block):
        return EXPLORATORY
    if {IMPROVED, REGRESSED} <= set(verdicts):
        return MIXED
    return next(word for word in (REGRESSED, INCONCLUSIVE, IMPROVED, EQUIVALENT) if word in verdicts)


def _exit_code(verdict: str) -> ExitCode:
    if verdict in (INVALID, UNFINISHED, EXPLORATORY, NO_DATA):
        return ExitCode.INVALID
    return ExitCode.FAILED if verdict == REGRESSED else ExitCode.PASSED


def exit_code(record: Mapping[str, Any], *, strict: bool) -> ExitCode:
    """Of a judged experiment; `strict`: an inconclusive one did not pass."""
    code = ExitCode(record["exit_code"])
    is_open = code == ExitCode.PASSED and decisive(record) == INCONCLUSIVE
    return ExitCode.INCONCLUSIVE if strict and is_open else code
