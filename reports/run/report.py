"""Writes all reports of a run into its directory: report.md, report.json, plots/*.png."""

from __future__ import annotations

import os
from pathlib import Path

from specbench.harness.stats.slos import Slos
from specbench.harness.store.files import write_json, write_text
from specbench.harness.store.run_directory import RunDirectory
from specbench.reports.charts.chart import Styles
from specbench.reports.charts.pictures import write_pictures
from specbench.reports.run.charts import run_charts
from specbench.reports.run.document import markdown_report
from specbench.reports.run.json_report import json_report
from specbench.reports.run.view import view_run

PICTURES = ("tokens_per_second", "acceptance_by_position", "accepted_length", "phases")


def write_reports(run_dir: RunDirectory | str | os.PathLike[str], slos: Slos | None = None) -> list[Path]:
    """Write all reports of a run, finished or not, into its directory; returns the files. ValueError as for `open`."""
    run = run_dir if isinstance(run_dir, RunDirectory) else RunDirectory.open(run_dir)
    view = view_run(run, slos)
    plots = write_pictures(zip(PICTURES, run_charts(view.arms, Styles()), strict=True), run.path / "plots")
    markdown, json_file = run.path / "report.md", run.path / "report.json"
    write_text(markdown, markdown_report(view, [path.relative_to(run.path).as_posix() for path in plots]))
    write_json(json_file, json_report(view))
    return [markdown, json_file, *plots]
