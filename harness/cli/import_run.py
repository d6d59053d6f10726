"""``specbench import``: results of other benchmarks as run directories."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .derived import typed_command


def import_run(
    files: Annotated[
        list[Path],
        typer.Argument(help="Files of `vllm bench serve --save-result --save-detailed`.", metavar="FILES..."),
    ],
    output_dir: Annotated[Path, typer.Option("--output-dir", "-o", help="Parent of the run directories.")] = Path(
        "runs"
    ),
    label: Annotated[str, typer.Option(help="Name of the arm. Default: the file's label or backend.")] = "",
) -> None:
    """Turn result files of `vllm bench serve` into run directories. TTFT, TPOT, ITL and throughput are recomputed with
    our definitions; figures that the file cannot give are listed as missing.

    Examples:

      specbench import openai-infqps-concurrency1-llama-20260102-030405.json -o runs/
    """
    from specbench.harness.experiments.import_serve import import_result, read_results

    errors = 0
    for file in files:
        try:
            for found in read_results(file):
                typer.echo(str(import_result(found, file, output_dir, typed_command(), label)))
        except (ValueError, OSError) as error:
            errors += 1
            reason = f"{file}: {error.strerror}" if isinstance(error, OSError) and error.strerror else str(error)
            typer.echo(f"specbench: not imported: {reason}", err=True)
    if errors:
        raise ValueError(f"{errors} of {len(files)} files were not imported")
