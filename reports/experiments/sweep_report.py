"""Files that a sweep writes next to its runs: `crossover.json`, `crossover.md` and a picture of each figure."""

from __future__ import annotations

from pathlib import Path

from specbench.harness.store.codec import write_document
from specbench.harness.store.crossover_file import RECORD_FILE, Crossover
from specbench.harness.store.files import write_text
from specbench.harness.store.inputs_record import WorkloadRecord
from specbench.reports.charts.chart import Styles
from specbench.reports.experiments.crossover_answer import crossover_answer
from specbench.reports.experiments.crossover_chart import crossover_chart
from specbench.reports.experiments.crossover_table import FIGURE_NAMES, crossover_tables, display_names
from specbench.reports.experiments.interactivity import interactivity_chart
from specbench.reports.markdown import escape_markdown, markdown_result
from specbench.reports.run.roofline_table import roofline_tables

TEXT_FILE = "crossover.md"


def write_sweep_reports(folder: Path, record: Crossover) -> list[Path]:
    """Writes all of them and returns the files. Pictures of an earlier state that no longer exist are removed."""
    pictures = _write_pictures(folder / "plots", record)
    text = markdown_sweep(record, [path.relative_to(folder).as_posix() for path in pictures])
    write_document(folder / RECORD_FILE, record)
    write_text(folder / TEXT_FILE, text)
    return [folder / RECORD_FILE, folder / TEXT_FILE, *pictures]


def markdown_sweep(record: Crossover, pictures: list[str]) -> str:
    """The tables as GitHub Markdown; `pictures`: paths relative to the directory of the text."""
    head = f"# {escape_markdown(record.sweep_id)}"
    names = display_names(record)
    answer = escape_markdown(crossover_answer(record, names))
    facts = [f"* {name}: {escape_markdown(value)}" for name, value in _facts(record)]
    found = [*crossover_tables(record, names), *roofline_tables(record, names)]
    tables = [markdown_result(table) for table in found]
    shown = [f"![{path.rsplit('/', 1)[-1].removesuffix('.png')}]({path})" for path in pictures]
    return "\n\n".join([head, answer, "\n".join(facts), *tables, *shown]) + "\n"


def _facts(record: Crossover) -> list[tuple[str, str]]:
    """What a reader needs to judge and repeat it."""
    w = record.workload or WorkloadRecord(name="?", num_prompts="?")
    about = f"{w.name}, {w.num_prompts} prompts, sha256 {w.sha256}"
    named = [("status", record.status), ("model", record.model), ("workload", about)]
    named += [("hardware", record.hardware), ("command", record.command)]
    return [(name, value) for name, value in named if value]


def _write_pictures(folder: Path, record: Crossover) -> list[Path]:
    from specbench.reports.charts.pictures import write_pictures  # matplotlib, which reading a sweep does not need

    names = display_names(record)
    charts = {f"crossover_{name}": crossover_chart(record, names, Styles(), name, name) for name in FIGURE_NAMES}
    charts["interactivity"] = interactivity_chart(record, names, Styles(), "interactivity")
    return write_pictures(charts.items(), folder)
