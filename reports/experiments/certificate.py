"""The table of a losslessness certificate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specbench.reports.cells import NOTHING, number
from specbench.reports.document import Table

HEADERS = (
    "arm",
    "temperature",
    "prompts",
    "exact",
    "first divergences",
    "worst gap",
    "worst regret",
    "tolerance",
    "regret sum",
    "AL",
    "acceptance",
    "distribution",
    "verdict",
)
_MOST_POSITIONS = 4


def certificate_table(certificate: Mapping[str, Any]) -> Table:
    """One row an arm and temperature."""
    rows = tuple(_row(row) for row in certificate["certificates"])
    unfinished = [] if certificate["status"] == "complete" else ["not finished: arms without a row were not judged"]
    notes = [
        "exact: outputs identical to no-spec's. worst gap: between the two tokens of a first divergence; worst regret: "
        "how far a token lies below the best of its position. Both in logits, recomputed in fp32 by a dense pass.",
        "regret sum: of all tokens, and (in brackets) of those that the target itself would have said behind the same "
        "texts, by dense passes in its own dtype; a dash: fp32.",
        "acceptance: rounds that accept what the same strategy accepts without graphs, of those that both began behind "
        "the same text; out of step: begun by one of them, after a round that differed; a dash: nothing to compare.",
        "distribution: p of a chi-square over many seeds, all positions together; fails below 0.001.",
        *(_tolerance_note(t, found) for t, found in certificate["tolerances"].items()),
    ]
    return Table(title="Losslessness against no-spec", headers=HEADERS, rows=rows, notes=(*unfinished, *notes))


def _tolerance_note(temperature: str, found: Mapping[str, Any]) -> str:
    return (
        f"tolerance at temperature {temperature}: {number(found['logits'])} ({found['method']}; "
        f"{found['undecided']:.1%} of {found['num_positions']} positions are nearer than that)"
    )


def _row(row: Mapping[str, Any]) -> tuple[str, ...]:
    verdict = "passed" if row["ok"] else "FAILED: " + "; ".join(row["problems"])
    name = (str(row["arm"]), f"{row['temperature']:g}")
    if row.get("error"):
        return (*name, *[NOTHING] * (len(HEADERS) - 3), verdict)
    divergences = row["divergences"]
    return (
        *name,
        str(row["num_prompts"]),
        f"{row['num_exact'] / row['num_prompts']:.1%}",
        _positions(divergences),
        number(max((d["gap"] for d in divergences), default=None)),
        number(row["worst_regret"]),
        number(row["tolerance"]),
        _excess(row["excess"]),
        number(row["acceptance_length"]),
        _acceptance(row["acceptance"]),
        _distribution(row["distribution"]),
        verdict,
    )


def _positions(divergences: list[Mapping[str, Any]]) -> str:
    found = sorted(d["position"] for d in divergences)
    more = f" and {len(found) - _MOST_POSITIONS} more" if len(found) > _MOST_POSITIONS else ""
    return " ".join(map(str, found[:_MOST_POSITIONS])) + more if found else NOTHING


def _excess(found: Mapping[str, Any] | None) -> str:
    return NOTHING if found is None else f"{number(found['total'])} ({number(found['target_total'])})"


def _acceptance(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return NOTHING
    apart = f", {found['num_unmatched']} out of step" if found["num_unmatched"] else ""
    return f"{found['num_rounds'] - found['num_higher'] - found['num_lower']} of {found['num_rounds']}{apart}"


def _distribution(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return NOTHING
    return number(found["p_value"]) if found["is_telling"] else f"{found['num_texts']} texts: no evidence"
