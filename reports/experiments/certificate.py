"""The table of a losslessness certificate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from specbench.reports.cells import NOTHING, number, share
from specbench.reports.document import Table, fitting, table_of

_MAX_POSITIONS = 4


def certificate_answer(certificate: Mapping[str, Any]) -> str:
    """`Lossless: 3 of 3 arms passed.`"""
    ok: dict[str, bool] = {}
    for row in certificate["certificates"]:
        ok[row["arm"]] = ok.get(row["arm"], True) and row["ok"]
    failed = [arm for arm, passed in ok.items() if not passed]
    unfinished = "" if certificate["status"] == "complete" else " so far: not finished"
    word = "NOT LOSSLESS" if failed else "Lossless" if ok else "Nothing was judged"
    names = f"; failed: {', '.join(failed)}" if failed else ""
    return f"{word}: {len(ok) - len(failed)} of {len(ok)} arms passed{unfinished}{names}."


def certificate_worst(certificate: Mapping[str, Any]) -> tuple[str, ...]:
    """`Worst regret: 0.0010 logits (eagle:k=4, temperature 0; tolerance 0.0123).`, then how many outputs differ from
    the baseline's, and the widest gap. Sentences without data are left out."""
    judged = [row for row in certificate["certificates"] if not row.get("error")]
    sentences = []
    if known := [row for row in judged if row["worst_regret"] is not None]:
        worst = max(known, key=lambda row: row["worst_regret"])
        where = f"{worst['arm']}, temperature {worst['temperature']:g}; tolerance {number(worst['tolerance'])}"
        sentences.append(f"Worst regret: {number(worst['worst_regret'])} logits ({where}).")
    if judged:
        num_prompts = sum(row["num_prompts"] for row in judged)
        num_apart = num_prompts - sum(row["num_exact"] for row in judged)
        gap = max((d["gap"] for row in judged for d in row["divergences"]), default=None)
        widest = f"; at their first differing tokens the gap is at most {number(gap)} logits" if gap is not None else ""
        sentences.append(f"{num_apart} of {num_prompts} outputs differ from no-spec's{widest}.")
    return tuple(sentences)


def certificate_table(certificate: Mapping[str, Any]) -> Table:
    """One row per arm and temperature."""
    unfinished = [] if certificate["status"] == "complete" else ["not finished: arms without a row were not judged"]
    rows = certificate["certificates"]
    shown = {name: cell for name, cell in _COLUMNS.items() if any(cell(row) != NOTHING for row in rows)}
    notes = [
        *(f"{name}: {means}" for name, means in _EXPLAINED.items() if name in shown),
        *(_tolerance_note(t, found) for t, found in certificate["tolerances"].items()),
        *_other_engines(rows),
    ]
    return table_of("Losslessness against no-spec", shown, rows, (*unfinished, *notes))


def certificate_brief(certificate: Mapping[str, Any], width: int | None) -> Table:
    """The columns that fit into `width` characters, the decisive ones first; reasons for failures are below the
    table."""
    rows = certificate["certificates"]
    columns = {name: _COLUMNS[name] for name in _FIRST}
    columns["verdict"] = lambda row: "passed" if row["ok"] else "FAILED"
    table = fitting(table_of("", columns, rows), width)
    failed = [f"{row['arm']}, temperature {row['temperature']:g}: {_verdict(row)}" for row in rows if not row["ok"]]
    means = "; ".join(f"{name}: {_MEANS[name]}" for name in table.headers if name in _MEANS)
    return replace(table, notes=(*failed, means, *_other_engines(rows)))


def _tolerance_note(temperature: str, row: Mapping[str, Any]) -> str:
    return (
        f"tolerance at temperature {temperature}: {number(row['logits'])} ({row['method']}; "
        f"{row['undecided']:.1%} of {row['num_positions']} positions are closer than that)"
    )


def _other_engines(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """How arms without our own fp32 pass were judged, and which checks were not done; one note per engine."""
    by_words: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        if row.get("judged_by"):
            by_words.setdefault((row["judged_by"], *row["not_done"]), []).append(row["arm"])
    for (judged_by, *not_done), arms in by_words.items():
        yield f"{', '.join(arms)}: judged by {judged_by}. Not done: {'; '.join(not_done)}."


def _verdict(row: Mapping[str, Any]) -> str:
    return "passed" if row["ok"] else "FAILED: " + "; ".join(row["problems"])


def _judged(cell: Callable[[Mapping[str, Any]], str]) -> Callable[[Mapping[str, Any]], str]:
    """A dash for an arm that failed before it could be judged."""
    return lambda row: NOTHING if row.get("error") else cell(row)


def _positions(divergences: list[Mapping[str, Any]]) -> str:
    positions = sorted(d["position"] for d in divergences)
    more = f" and {len(positions) - _MAX_POSITIONS} more" if len(positions) > _MAX_POSITIONS else ""
    return " ".join(map(str, positions[:_MAX_POSITIONS])) + more if positions else NOTHING


def _excess(excess: Mapping[str, Any] | None) -> str:
    return NOTHING if excess is None else f"{number(excess['total'])} ({number(excess['target_total'])})"


def _acceptance(rounds: Mapping[str, Any] | None) -> str:
    if rounds is None:
        return NOTHING
    apart = f", {rounds['num_unmatched']} out of step" if rounds["num_unmatched"] else ""
    return f"{rounds['num_rounds'] - rounds['num_higher'] - rounds['num_lower']} of {rounds['num_rounds']}{apart}"


def _distribution(test: Mapping[str, Any] | None) -> str:
    if test is None:
        return NOTHING
    return number(test["p_value"]) if test["is_telling"] else f"{test['num_texts']} texts: no evidence"


_COLUMNS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "arm": lambda row: row["arm"],
    "temperature": lambda row: f"{row['temperature']:g}",
    "verdict": _verdict,
    "prompts": _judged(lambda row: str(row["num_prompts"])),
    "exact": _judged(lambda row: share(row["num_exact"] / row["num_prompts"])),
    "first divergences": _judged(lambda row: _positions(row["divergences"])),
    "worst gap": _judged(lambda row: number(max((d["gap"] for d in row["divergences"]), default=None))),
    "worst regret": _judged(lambda row: number(row["worst_regret"])),
    "tolerance": _judged(lambda row: number(row["tolerance"])),
    "regret sum": _judged(lambda row: _excess(row["excess"])),
    "AL": _judged(lambda row: number(row["acceptance_length"])),
    "acceptance": _judged(lambda row: _acceptance(row["acceptance"])),
    "distribution": _judged(lambda row: _distribution(row["distribution"])),
}
_RECOMPUTED = "in logits, recomputed in fp32 by a dense pass."
_EXPLAINED = {
    "exact": "outputs identical to no-spec's.",
    "worst gap": f"between the two tokens of a first divergence, {_RECOMPUTED}",
    "worst regret": f"how far a token lies below the best of its position, {_RECOMPUTED}",
    "regret sum": "over all tokens, and (in brackets) over those that the target itself would choose after the same "
    "texts, by dense passes in its own dtype; a dash: fp32.",
    "acceptance": "rounds that accept what the same strategy accepts without graphs, among rounds that both began with "
    "the same text; out of step: begun by only one, after a round that differed; a dash: nothing to compare.",
    "distribution": "p of a chi-square over many seeds, all positions together; fails below 0.001.",
}
_MEANS = {
    "exact": "outputs identical to no-spec's",
    "acceptance": "rounds that accept what they do without graphs",
    "distribution": "p over many seeds, fails below 0.001",
    "worst regret": "logits below the best, fails above tolerance",
}
_FIRST = ("arm", "temperature", "verdict", "exact", "acceptance", "distribution", "worst regret", "tolerance", "AL")
