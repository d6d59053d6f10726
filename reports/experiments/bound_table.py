"""The gain from better choices, as an answer, a table and a chart; the files that `specbench bound --write` adds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pandas as pd

from specbench.harness.judge.bound import Bound, BoundRow
from specbench.harness.store.files import write_json, write_text
from specbench.reports.cells import NOTHING, change_text, factor, formatted, marked_name, milliseconds, number, share
from specbench.reports.charts.chart import Axis, Chart, Style
from specbench.reports.document import Table, table_of
from specbench.reports.markdown import escape_markdown, markdown_pictures, markdown_result

_PARTS = {
    "measured": "measured",
    "fixed": "choice of K",
    "request": "choice of K",
    "round": "choice of K",
    "both": "two drafters",
    "either": "two drafters",
    "perfect": "perfect drafts",
}
_STYLES = {"measured": "host", "choice of K": "s0", "two drafters": "s1", "perfect drafts": "s2"}
_CHOICES = {
    "fixed": "the best K for all rounds",
    "request": "the best K for each request",
    "round": "the best K for each round",
    "either": "the better of two drafters in each round",
}


def bound_answer(bound: Bound) -> str:
    """The gap between the fastest arm and perfect drafts, and how much of it each choice would close."""
    best, perfect = _best(bound), bound.row("perfect")
    assert perfect is not None  # every drafter has one
    sentence = (
        f"{_load(bound)}{_name(best)} is the fastest arm, {_ratio(best)} {bound.baseline} in TPOT; perfect drafts "
    )
    sentence += f"would give {_ratio(perfect)} ({perfect.name.partition(', perfect')[0]} at K={perfect.drafts})."
    if perfect.tpot_ms >= best.tpot_ms:
        return f"{sentence} At these round costs there is nothing to gain."
    found = {text: row for what, text in _CHOICES.items() if (row := bound.row(what))}
    closed = [f"{_closed(row, best, perfect)} by {text} ({_ratio(row)})" for text, row in found.items()]
    return f"{sentence} Share of that gap in time per token that could be closed: {', '.join(closed)}."


def load_table(bounds: Sequence[Bound]) -> Table:
    """The best K for all rounds by load, of a sweep."""
    found = {(row.name, bound.max_concurrency): row for bound in bounds for row in bound.rows if row.what == "fixed"}
    names = dict.fromkeys(name for name, _ in found)
    loads = [bound.max_concurrency for bound in bounds]
    cells = [[_with_k(found[name, load]) if (name, load) in found else NOTHING for load in loads] for name in names]
    rows = tuple((name, *row) for name, row in zip(names, cells, strict=True))
    return Table(title="By load", headers=("what", *(f"concurrency {load}" for load in loads)), rows=rows)


def bound_table(bound: Bound) -> Table:
    best = _best(bound)
    columns: dict[str, Callable[[BoundRow], str]] = {
        "what": _name,
        "K": lambda row: row.drafts,
        "speed-up [bounds]": _ratio,
        "against best arm": lambda row: (
            NOTHING if row is best else change_text(row.ratio / best.ratio - 1, max_decimals=1)
        ),
        "TPOT ms": lambda row: milliseconds(row.tpot_ms),
        "AL": lambda row: formatted(row.acceptance_length, ".2f"),
        "tokens/forward": lambda row: f"{row.tokens_per_forward:.2f}",
        "rounds known": lambda row: share(row.known),
    }
    spare = ("tokens/forward", "rounds known", "AL", "TPOT ms")
    return table_of(f"{_load(bound)}what better choices would give", columns, bound.rows, _notes(bound), spare)


def bound_chart(bound: Bound) -> Chart:
    """Every row as a bar with its bounds, from measured arms to perfect drafts."""
    rows = [(_name(row), _PARTS[row.what], row.ratio, *_ends(row), f"{row.ratio:.2f}x") for row in bound.rows]
    frame = pd.DataFrame(rows, columns=["y", "part", "x", "low", "high", "speed-up"])
    frame = frame.astype({"low": float, "high": float})  # also where all is known and there are none
    frame["end"] = frame[["x", "high"]].max(axis=1)
    return Chart(
        name="bound",
        title="What better choices would give",
        description="Speed-up in TPOT against no-spec: measured arms, and estimates from their recorded rounds. "
        "Lines: from the least to the most that positions without a recorded round allow.",
        frame=frame,
        x=Axis(title="speed-up in TPOT", unit="factor", range=(0.0, 1.2 * float(frame["end"].max()))),
        y=Axis(title="what", scale="names"),
        marks="bars",
        rule=1.0,
        words="speed-up",
        words_beside="end",
        styles={part: Style(colour=colour) for part, colour in _STYLES.items() if part in set(frame["part"])},
    )


def write_bound(folder: Path, bound: Bound) -> list[Path]:
    """bound.json, bound.md and plots/bound.png; the files."""
    from specbench.reports.charts.pictures import write_pictures  # matplotlib, which the table does not need

    pictures = write_pictures([("bound", bound_chart(bound))], folder / "plots")
    shown = markdown_pictures([path.relative_to(folder).as_posix() for path in pictures])
    write_json(folder / "bound.json", bound)
    answer = escape_markdown(bound_answer(bound))
    write_text(folder / "bound.md", f"{answer}\n\n{markdown_result(bound_table(bound))}{shown}")
    return [folder / "bound.json", folder / "bound.md", *pictures]


def _best(bound: Bound) -> BoundRow:
    return next(row for row in bound.rows if row.name == bound.best)


def _load(bound: Bound) -> str:
    return "" if bound.max_concurrency is None else f"Concurrency {bound.max_concurrency}: "


def _with_k(row: BoundRow) -> str:
    return f"K={row.drafts}: {_ratio(row)}"


def _name(row: BoundRow) -> str:
    return marked_name(row.name, row.marks)


def _ends(row: BoundRow) -> tuple[float | None, float | None]:
    return (row.low, row.high) if f"{row.low:.2f}" != f"{row.high:.2f}" else (None, None)


def _ratio(row: BoundRow) -> str:
    return factor(row.ratio, *_ends(row))


def _closed(row: BoundRow, best: BoundRow, perfect: BoundRow) -> str:
    return f"{max(0.0, (best.tpot_ms - row.tpot_ms) / (best.tpot_ms - perfect.tpot_ms)):.0%}"


def _notes(bound: Bound) -> Iterator[str]:
    yield (
        "Computed from the rounds of this run, over all tokens of its requests but the first; speed-ups in other "
        "tables are means over prompts. K for a request or a round is chosen with knowledge of what will be accepted, "
        "which no real policy has."
    )
    yield (
        "bounds: for any K, and any number of accepted drafts at positions where no arm of the drafter began a round "
        "(rounds known: the other positions); the figure itself samples these numbers from the observed ones."
    )
    for one in bound.drafters:
        costs = [f"{number(ms)}{'' if k in one.measured else '*'}" for k, ms in enumerate(one.round_ms)]
        yield f"{one.name}: ms per round with 0, 1, ... drafts: {', '.join(costs)} (*: interpolated)"
        if one.num_shared:
            yield (
                f"{one.name}: two arms accepted the same number of drafts at {one.num_equal} of {one.num_shared} "
                "positions where both began a round; at the others the arm with more drafts counts"
            )
    if any(row.what == "both" for row in bound.rows):
        yield (
            "in every round: both run, each at the cost that its drafts add to a round without drafts; the longer "
            "accepted prefix is kept"
        )
    if bound.mean_batch > 1:
        yield (
            f"up to {bound.mean_batch:.1f} requests share a round: its cost is that of this load with the same K for "
            "all of them, although each chooses freely"
        )
    if bound.is_synthetic:
        yield (
            "synthetic: acceptance was forced, so this shows what the costs allow and says nothing about the drafters; "
            "no two of them are combined"
        )
    for reason in bound.left_out:
        yield f"left out: {reason}"
