"""The whole report as JSON: configuration, summaries of the arms, figures of every block."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from specbench.harness.store.files import Json, to_object, to_plain
from specbench.harness.store.results import BlockFigures
from specbench.reports.run.accuracy_view import AccuracyView
from specbench.reports.run.document import requested_tables
from specbench.reports.run.graph_columns import graph_json
from specbench.reports.run.view import RunView

REPORT_SCHEMA = "specbench.report/1"


def json_report(view: RunView) -> dict[str, Any]:
    """Plain data. `run` is `run.json` without its stored results, which the raw tables supersede."""
    return {
        "schema": REPORT_SCHEMA,
        "run": to_plain(replace(view.record, results=None)),
        "arms": to_plain(view.arms),
        **({"goodput_slos_ms": to_plain(view.slos)} if view.slos else {}),
        "accuracy": _accuracy(view.accuracy),
        "graphs": to_plain(graph_json(view.graphs)),
        "roofline": to_plain(view.roofline),
        "tables": to_plain(requested_tables(view)),
        "blocks": [{"arm": arm, "repeat": n, **_block(figures)} for (arm, n), figures in view.blocks.items()],
    }


def _block(figures: BlockFigures) -> dict[str, Json]:
    """Figures by name and part: `tpot_ms.mean` as the `mean` of `tpot_ms`."""
    found: dict[str, Json] = {}
    for name, value in figures.values.items():
        *parts, last = name.split(".")
        table = found
        for part in parts:
            inner = table.setdefault(part, {})
            assert isinstance(inner, dict)
            table = inner
        table[last] = to_plain(value)
    accounting = found["accounting"]
    assert isinstance(accounting, dict)
    return {**found, "accounting": {"source": figures.phases, **accounting}, "acceptance": to_plain(figures.acceptance)}


def _accuracy(view: AccuracyView | None) -> Json:
    """A pair's figures together with the sides of the pair."""
    if view is None:
        return None
    pairs: list[Json] = []
    for pair in view.pairs:
        about = {name: value for name, value in to_object(pair).items() if name != "items"}
        pairs.append({**about, **to_object(pair.items)})
    return {**to_object(view), "pairs": pairs}
