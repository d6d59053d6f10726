"""What a terminal shows of compared runs on one screen: how many arms changed and by how much, and a row for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from specbench.harness.judge.comparison import ComparedRuns, Row
from specbench.harness.metrics.figures import SAME_OUTPUT, STEP_MS, TOKENS_PER_STEP, TPOT_MS, TPS, TTFT_MS, Figure
from specbench.harness.stats.verdict import EQUIVALENT, IMPROVED, REGRESSED, Comparison
from specbench.reports.cells import NOTHING, change_text, marked_name, outputs_equal
from specbench.reports.document import Table, fitting, table_of

from .compare_table import change_cell, counterpart_of, differences, word_of

_SIGNS = "~: equivalent; ?: inconclusive, which is not the same as equal"


def compare_answer(compared: ComparedRuns) -> str:
    """`eagle:k=4: TPOT -22.5% [-25.7%, -19.2%], improved; 8 of 8 outputs equal.`, or of many arms how many changed:
    `TPOT of 7 arms: improved in 2 (most in eagle:k=4, -22.5% [-25.7%, -19.2%]); no verdict in 5.`"""
    rows = [row for row in compared.rows if row.comparisons]
    unlike = "NOT COMPARABLE. " if compared.mismatches else ""
    if not rows:
        return f"{unlike}No arm has a counterpart."
    if len(rows) == 1:
        (row,) = rows
        same = "" if row.same_output is None else f"; {outputs_equal(*row.same_output)}"
        return f"{unlike}{row.arm}: TPOT {change_cell(_tpot(row))}, {_verdict(row)}{same}."
    by_verdict: dict[str, list[Row]] = {}
    for row in rows:
        found = _tpot(row)
        by_verdict.setdefault(found.verdict if found else NOTHING, []).append(row)
    parts = [_in_arms(word, by_verdict.pop(word, ())) for word in (IMPROVED, REGRESSED, EQUIVALENT)]
    num_open = sum(map(len, by_verdict.values()))
    parts += [f"no verdict in {num_open}"] if num_open else []
    return f"{unlike}TPOT of {len(rows)} arms: {'; '.join(filter(None, parts))}."


def compare_brief(compared: ComparedRuns, width: int | None) -> Table:
    """A row for each arm that is not a baseline, with the columns that fit into `width` characters."""
    rows = [row for row in compared.rows if not row.is_baseline]
    runs = list(dict.fromkeys(row.run for row in rows))
    columns: dict[str, Callable[[Row], str]] = {"run": lambda row: row.run} if len(runs) > 1 else {}
    columns["arm"] = lambda row: marked_name(row.arm, row.marks)
    columns["TPOT [95% CI]"] = lambda row: change_cell(_tpot(row))
    columns["verdict"] = _verdict
    columns[SAME_OUTPUT.name] = _same_output
    columns |= {figure.name: _change_of(figure) for figure in (TOKENS_PER_STEP, STEP_MS, TPS, TTFT_MS)}
    against = list(dict.fromkeys(counterpart_of(row) for row in rows if row.baseline))
    title = f"{runs[0] if len(runs) == 1 else 'Stored runs'} against {' and '.join(against) or 'nothing'}"
    return fitting(table_of(title, columns, rows, [*differences(compared), _SIGNS]), width)


def _in_arms(word: str, rows: Sequence[Row]) -> str:
    """`improved in 2 (most in eagle:k=4, -22.5% [-25.7%, -19.2%])`; empty for none."""
    if not rows:
        return ""
    most = max(rows, key=_size)
    name = most.arm if len({row.run for row in rows}) == 1 else f"{most.run}: {most.arm}"
    detail = f" ({'most in ' if len(rows) > 1 else ''}{name}, {change_cell(_tpot(most))})"
    return f"{word} in {len(rows)}{detail if word != EQUIVALENT else ''}"


def _size(row: Row) -> float:
    """Of the change of TPOT, in either direction."""
    found = _tpot(row)
    return 0.0 if found is None or found.change is None else abs(found.change)


def _tpot(row: Row) -> Comparison | None:
    return row.comparisons.get(TPOT_MS.key)


def _verdict(row: Row) -> str:
    """TPOT's verdict, preceded by the other gated figures that have changed."""
    if not row.comparisons:
        return word_of(row)
    tpot = _tpot(row)
    own = tpot.verdict if tpot else NOTHING
    gated = [found for found in row.comparisons.values() if found.metric.gated and found is not tpot]
    changed = [f"{found.metric.name} {found.verdict}" for found in gated if found.verdict in (IMPROVED, REGRESSED)]
    return own if all(found.endswith(own) for found in changed) else "; ".join([*changed, f"{TPOT_MS.name} {own}"])


def _change_of(figure: Figure) -> Callable[[Row], str]:
    def cell(row: Row) -> str:
        found = row.comparisons.get(figure.key)
        return NOTHING if found is None or found.change is None else change_text(found.change)

    return cell


def _same_output(row: Row) -> str:
    return NOTHING if row.same_output is None else "{} of {}".format(*row.same_output)
