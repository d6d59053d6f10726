"""The whole report as JSON: what was run, the arms' summaries, the figures of every block."""

from __future__ import annotations

import json
from typing import Any

from specbench.harness.store.files import to_plain
from specbench.reports.graph_columns import graph_json
from specbench.reports.table import asked_tables
from specbench.reports.view import RunView

REPORT_SCHEMA = "specbench.report/1"


def json_report(view: RunView) -> dict[str, Any]:
    """Plain data. `run` is `run.json` without the results it stored, which the raw tables supersede."""
    return {
        "schema": REPORT_SCHEMA,
        "run": to_plain({k: v for k, v in view.manifest.items() if k != "results"}),
        "arms": to_plain(view.arms),
        "accuracy": to_plain(view.accuracy),
        "graphs": to_plain(graph_json(view.graphs)),
        "tables": to_plain(asked_tables(view)),
        "blocks": [{"arm": arm, "repeat": n, **to_plain(figures)} for (arm, n), figures in view.blocks.items()],
    }


def json_text(view: RunView) -> str:
    """`json_report` as indented strict JSON."""
    return json.dumps(json_report(view), indent=2, allow_nan=False, ensure_ascii=False) + "\n"
