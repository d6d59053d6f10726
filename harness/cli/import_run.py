"""``specbench import``: result files of other benchmarks as the arms of one run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .derived import typed_command
from .output import format_option, print_view, print_where


def import_run(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Result files of `vllm bench serve`, `sglang.bench_serving`, aiperf or guidellm, recognised by their "
            "contents.",
            metavar="FILE",
        ),
    ],
    output_dir: Annotated[Path, typer.Option("--output-dir", "-o", help="Parent of the run directory.")] = Path("runs"),
    label: Annotated[
        list[str] | None,
        typer.Option(help="Name of an arm; one per file, in order. Default: the file's own label, else its name."),
    ] = None,
    baseline: Annotated[
        str,
        typer.Option(
            metavar="FILE|LABEL",
            help="The arm that factors are relative to. Default: the first no-spec arm, else the first.",
        ),
    ] = "",
    meta: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="What the files lack, for all or, as FILE:KEY=VALUE or LABEL:KEY=VALUE, for one: model, hardware, "
            "engine, engine_version, strategy, num_speculative_tokens, dataset, temperature, max_concurrency, "
            "request_rate, command.",
        ),
    ] = None,
    format: Annotated[str, format_option("table", "json")] = "table",
) -> None:
    """Turn result files of other benchmarks into one run, with one arm per file and factors relative to one of them.

    TTFT, TPOT, ITL, TPS and acceptance are derived from the raw values by our definitions. The factor of TPOT has an
    interval over requests, paired if both files contain the same prompts in the same order, as far as this can be
    known; the marks say how they were paired. Values that a file does not contain are shown as a dash.

    Examples:

      specbench import vllm-plain.json vllm-eagle3.json --baseline vllm-plain.json --meta "hardware=NVIDIA H200"

      specbench import plain.jsonl eagle.jsonl --label no-spec --label eagle --meta eagle:num_speculative_tokens=3
    """
    from specbench.harness.experiments.imports.write import import_files
    from specbench.reports.run.report import write_reports
    from specbench.reports.run.view import view_run

    path = import_files(files, output_dir, typed_command(), label or (), baseline, meta or ())
    write_reports(path)
    print_view(view_run(path), format)
    if format == "table":
        print_where(path)
