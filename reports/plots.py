"""PNG plots of a run. Colours: Okabe and Ito's palette, told apart by colour-blind readers; drawn without a display."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from specbench.harness.store.results import ArmSummary
from specbench.reports.cells import row_name
from specbench.reports.run.view import RunView

# Okabe & Ito (2008); yellow last, it is faint on white.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000", "#F0E442")
_HATCHES = ("", "//", "..", "xx")
_DPI = 150
_AXIS_WIDTH, _LEGEND_WIDTH = 36, 80  # characters of a label in one line


def write_plots(view: RunView, directory: Path) -> list[Path]:
    """Draw what the run has data for into `directory`; returns the files written."""
    measured = [arm for arm in view.arms if arm.num_repeats]
    drafted = [arm for arm in measured if arm.acceptance and arm.acceptance.num_verifications]
    phased = [arm for arm in measured if _phases_ms(arm)]
    plots: list[tuple[str, Sequence[ArmSummary], Callable[[Sequence[ArmSummary]], Figure]]] = [
        ("tokens_per_second", measured, tps_figure),
        ("acceptance_by_position", drafted, position_figure),
        ("accepted_length", drafted, histogram_figure),
        ("phases", phased, phase_figure),
    ]
    written = []
    directory.mkdir(parents=True, exist_ok=True)
    for name, arms, draw in plots:
        path = directory / f"{name}.png"
        path.unlink(missing_ok=True)  # a picture of an earlier state must not stay
        if arms:
            draw(arms).savefig(path, dpi=_DPI)
            written.append(path)
    return written


def tps_figure(arms: Sequence[ArmSummary]) -> Figure:
    """Bars of TPS with the extremes over repeats, the factor against no speculation beside them."""
    figure, axes = _bar_figure(arms)
    for y, arm in enumerate(arms):
        tps = arm.spreads["tps"]
        axes.barh(y, tps.median, color=COLOURS[0] if arm.speedup else "#999999", height=0.6)
        errors = [[tps.median - tps.min], [tps.max - tps.median]]
        axes.errorbar(tps.median, y, xerr=errors, color="black", capsize=4, lw=1)
        factor = f"  ({arm.speedup.tps_ratio:.2f}x)" if arm.speedup and arm.speedup.tps_ratio else ""
        axes.annotate(f"{tps.median:,.0f}{factor}", (tps.max, y), (6, 0), textcoords="offset points", va="center")
    axes.set_xlim(0, max(arm.spreads["tps"].max for arm in arms) * 1.25)
    repeats = sorted({arm.num_repeats for arm in arms})
    axes.set_xlabel(f"output tokens per second (median, min to max, n={' or '.join(map(str, repeats))})")
    return figure


def position_figure(arms: Sequence[ArmSummary]) -> Figure:
    """Marginal rates as solid lines, conditional ones dashed."""
    figure, axes = _figure(7.5, 4.2)
    for i, arm in enumerate(arms):
        style: dict[str, Any] = {"color": _colour(i), "marker": "osD^v"[i % 5], "markersize": 5}
        assert arm.acceptance is not None
        marginal, conditional = arm.acceptance.marginal, arm.acceptance.conditional
        positions = np.arange(1, len(marginal) + 1)
        axes.plot(positions, marginal, label=wrapped(row_name(arm), _LEGEND_WIDTH), **style)
        axes.plot(positions, [np.nan if c is None else c for c in conditional], ls="--", alpha=0.6, **style)
    axes.set_xticks(range(1, max(len(arm.acceptance.marginal) for arm in arms if arm.acceptance) + 1))
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("draft position")
    axes.set_ylabel("accepted (solid: with all before it,\ndashed: given those before it)")
    axes.grid(axis="y", alpha=0.3)
    _legend(figure, axes)
    return figure


def histogram_figure(arms: Sequence[ArmSummary]) -> Figure:
    """Share of verifications that accepted 0, 1, ... drafts."""
    figure, axes = _figure(7.5, 4.2)
    width = 0.8 / len(arms)
    for i, arm in enumerate(arms):
        assert arm.acceptance is not None
        counts = np.asarray(arm.acceptance.accepted_histogram, dtype=float)
        x = np.arange(len(counts)) + (i - (len(arms) - 1) / 2) * width
        length = arm.acceptance.acceptance_length
        axes.bar(
            x,
            counts / counts.sum(),
            width,
            color=_colour(i),
            label=f"{wrapped(row_name(arm), _LEGEND_WIDTH)}, AL {length:.2f}",
        )
    axes.set_xticks(range(max(len(arm.acceptance.accepted_histogram) for arm in arms if arm.acceptance)))
    axes.set_xlabel("accepted drafts in a verification")
    axes.set_ylabel("share of verifications")
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    _legend(figure, axes)
    return figure


def phase_figure(arms: Sequence[ArmSummary]) -> Figure:
    """The phases of a decode round, stacked; an instrumented capture is named as such."""
    figure, axes = _bar_figure(arms, legend=True)
    stacks = [_phases_ms(arm) for arm in arms]
    names = [name for name in dict.fromkeys(n for stack in stacks for n in stack) if name != "gap"]
    names += ["gap"] if any("gap" in stack for stack in stacks) else []
    left = np.zeros(len(arms))
    for i, name in enumerate(names):
        widths = np.array([stack.get(name, 0.0) for stack in stacks])
        colour = "#BBBBBB" if name == "gap" else _colour(i)
        hatch = _HATCHES[i // len(COLOURS) % len(_HATCHES)]
        axes.barh(range(len(arms)), widths, left=left, color=colour, hatch=hatch, height=0.6, label=name)
        left += widths
    for y, (arm, total_ms) in enumerate(zip(arms, left, strict=True)):
        note = "" if arm.group("phases_ms.plain") else " instrumented"
        axes.annotate(f"{total_ms:#.3g}{note}", (total_ms, y), (6, 0), textcoords="offset points", va="center")
    axes.set_xlim(0, left.max() * 1.35)
    axes.set_xlabel("ms in a decode round (median of each phase)")
    _legend(figure, axes)
    return figure


def wrapped(label: str, width: int) -> str:
    """The whole label, broken after commas and blanks into lines of about `width`, never read as mathematics.

    Nothing is cut off: labels often differ only at their ends.
    """
    words = re.split(r"(?<=[, ])", label)
    pieces = [word[i : i + width] for word in words for i in range(0, len(word), width)]
    lines = [""]
    for piece in pieces:
        if lines[-1] and len(lines[-1]) + len(piece) > width:
            lines.append("")
        lines[-1] += piece
    return "\n".join(line.strip() for line in lines).replace("$", r"\$")


def _phases_ms(arm: ArmSummary) -> dict[str, float]:
    """Medians of the plain phases, else of the instrumented ones; the host's gap where none was recorded as a phase."""
    phases = arm.group("phases_ms.plain") or arm.group("phases_ms.instrumented")
    gap_ms = arm.median("gap_ms.p50")
    return phases if not phases or gap_ms is None else {"gap": gap_ms, **phases}


def _figure(width_inches: float, height_inches: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width_inches, height_inches), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _bar_figure(arms: Sequence[ArmSummary], legend: bool = False) -> tuple[Figure, Axes]:
    """Horizontal bars, first arm on top, so that long labels stay readable."""
    names = [wrapped(row_name(arm), _AXIS_WIDTH) for arm in arms]
    lines = max(name.count("\n") + 1 for name in names)
    figure, axes = _figure(8.5, 1.3 + max(0.5, 0.22 * lines) * len(arms) + (0.6 if legend else 0))
    axes.set_yticks(range(len(arms)), names)
    axes.invert_yaxis()
    return figure, axes


def _legend(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    columns = max(1, min(len(labels), int(90 / (6 + max(map(len, labels))))))
    figure.legend(handles, labels, loc="outside upper center", ncols=columns, frameon=False, fontsize="small")


def _colour(i: int) -> str:
    return COLOURS[i % len(COLOURS)]
