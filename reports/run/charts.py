"""The charts of a run's arms: speed, acceptance by position, accepted drafts, the phases of a decode round."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from specbench.harness.store.results import ArmSummary
from specbench.reports.cells import row_name
from specbench.reports.charts.chart import Axis, Chart, Styles, phase_styles

GAP = "gap"
_ROOM = 1.3  # times the longest bar: space for the text next to it


def run_charts(arms: Sequence[ArmSummary], styles: Styles) -> tuple[Chart, ...]:
    """All charts; those without figures have no rows."""
    return (tps_chart(arms, styles), *acceptance_charts(arms, styles), phase_chart(arms))


def tps_chart(arms: Sequence[ArmSummary], styles: Styles) -> Chart:
    """Medians of TPS with minimum and maximum over repeats, and the speed-up against the baseline next to them."""
    measured = [arm for arm in arms if "tps" in arm.spreads]
    frame = pd.DataFrame([_tps_row(arm) for arm in measured], columns=["y", "part", "x", "low", "high", "TPS (x)"])
    repeats = " or ".join(map(str, sorted({arm.num_repeats for arm in measured})))
    return Chart(
        name="tokens-per-second",
        title="Output tokens per second",
        description=f"Medians over the repeats (n={repeats}), with the lowest and the highest; in brackets the "
        "speed-up against the baseline of the run.",
        frame=frame,
        x=Axis(title="output tokens per second", range=_from_zero(frame, "high")),
        y=Axis(title="strategy", scale="names"),
        marks="bars",
        words="TPS (x)",
        words_beside="high",
        styles=styles.of(frame["part"]),
    )


def _tps_row(arm: ArmSummary) -> dict[str, object]:
    tps, ratio = arm.spreads["tps"], arm.speedup.tps_ratio if arm.speedup else None
    text = f"{tps.median:,.0f}" + (f" ({ratio:.2f}x)" if ratio else "")
    name = row_name(arm)
    return {"y": name, "part": name, "x": tps.median, "low": tps.min, "high": tps.max, "TPS (x)": text}


def acceptance_charts(arms: Sequence[ArmSummary], styles: Styles, n: int = 0) -> tuple[Chart, Chart]:
    """Acceptance rates by position, and the distribution of drafts accepted per verification."""
    positions, histogram = position_frame(arms), histogram_frame(arms)
    looks = styles.of(positions["series"])
    names = {_with_length(arm): row_name(arm) for arm in arms}
    return (
        Chart(
            name=f"positions-{n + 1}",
            title="Accepted by draft position",
            description="Solid: this draft and all before it accepted. Dashed: this draft, given those before it.",
            frame=positions,
            x=Axis(title="draft position", scale="ordinal"),
            y=Axis(title="accepted", unit="share", range=(0, 1.02)),
            marks="lines",
            styles=looks,
        ),
        Chart(
            name=f"histogram-{n + 1}",
            title="Drafts accepted per verification",
            description="Share of the verifications that accepted 0, 1, ... drafts. AL: tokens per verification, the "
            "bonus token included.",
            frame=histogram,
            x=Axis(title="accepted drafts", scale="ordinal"),
            y=Axis(title="share of verifications", unit="share"),
            marks="bars",
            styles={name: looks[names[name]] for name in dict.fromkeys(histogram["series"])},
        ),
    )


def position_frame(arms: Sequence[ArmSummary]) -> pd.DataFrame:
    """series, x: draft position from 1, y: rate; dashed: given that all before it were accepted."""
    rows = [
        {"series": row_name(arm), "x": i, "y": rate, "dashed": is_dashed}
        for arm in arms
        if arm.acceptance
        for is_dashed, rates in ((False, arm.acceptance.marginal), (True, arm.acceptance.conditional))
        for i, rate in enumerate(rates, start=1)
        if rate is not None
    ]
    return pd.DataFrame(rows, columns=["series", "x", "y", "dashed"])


def histogram_frame(arms: Sequence[ArmSummary]) -> pd.DataFrame:
    """series: the arm with its acceptance length, x: drafts accepted per verification, y: share of them."""
    rows = [
        {"series": _with_length(arm), "x": j, "y": count / sum(arm.acceptance.accepted_histogram)}
        for arm in arms
        if arm.acceptance and any(arm.acceptance.accepted_histogram)
        for j, count in enumerate(arm.acceptance.accepted_histogram)
    ]
    return pd.DataFrame(rows, columns=["series", "x", "y"])


def phase_chart(arms: Sequence[ArmSummary], n: int = 0) -> Chart:
    """The phases, stacked to the round time of the tables."""
    return stack_chart(
        phase_frame(arms),
        name=f"phases-{n + 1}",
        title="Phases of a decode round",
        description="The median round, split into phases by the engine's clock. Instrumented: by a separate capture.",
        x_title="ms per decode round",
    )


def stack_chart(frame: pd.DataFrame, *, name: str, title: str, description: str, x_title: str) -> Chart:
    """Bars of the parts of a round with their sum next to them. `frame`: y, part, x."""
    total = frame.groupby("y")["x"].transform("sum").where(~frame["y"].duplicated(keep="last"))
    frame = frame.assign(total=total)
    return Chart(
        name=name,
        title=title,
        description=description,
        frame=frame,
        x=Axis(title=x_title, range=_from_zero(frame, "total")),
        y=Axis(title="strategy", scale="names"),
        marks="bars",
        words="total",
        words_beside="total",
        styles=phase_styles(frame["part"]),
    )


def phase_frame(arms: Sequence[ArmSummary]) -> pd.DataFrame:
    """y: the arm, part: a phase (the host's gap first), x: its share of the median decode round, in ms. An instrumented
    capture is slower than the plain round, and medians of parts do not add up, so only shares are used."""
    rows = []
    for arm in arms:
        plain, gap_ms = arm.group("phases_ms.plain"), arm.median("gap_ms.p50")
        phases = plain or arm.group("phases_ms.instrumented")
        if phases and gap_ms is not None:
            phases = {GAP: gap_ms, **phases}
        whole_ms, parts_ms = arm.median("round_ms.p50"), sum(phases.values())
        if whole_ms is not None and parts_ms > 0:
            phases = {part: value * whole_ms / parts_ms for part, value in phases.items()}
        name = row_name(arm) + ("" if plain else " (instrumented)")
        rows += [{"y": name, "part": part, "x": value} for part, value in phases.items()]
    return pd.DataFrame(rows, columns=["y", "part", "x"])


def _with_length(arm: ArmSummary) -> str:
    length = arm.acceptance.acceptance_length if arm.acceptance else None
    return row_name(arm) + ("" if length is None else f", AL {length:.2f}")


def _from_zero(frame: pd.DataFrame, column: str) -> tuple[float, float]:
    longest = frame[column].max()
    return 0.0, _ROOM * (1.0 if math.isnan(longest) else float(longest))
