"""``specbench env``: what every run records about the machine and the software."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Annotated

import typer

from specbench.workloads.json_values import JsonObject

from .output import format_option, print_json


def env(format: Annotated[str, format_option("table", "json")] = "table") -> None:
    """Print hardware, software versions, git state, threads and the environment variables that a run records.

    Nothing else about the environment is recorded. Paste the output into bug reports and pull requests.

    Examples:

      specbench env

      specbench env --format json
    """
    from specbench.harness.store.environment import collect_environment, git_state
    from specbench.harness.store.files import to_plain

    environment = {"git": to_plain(git_state()), **asdict(collect_environment())}
    if format == "json":
        print_json(environment)
        return
    from rich.console import Console

    from specbench.reports.terminal import sentence_lines

    console = Console()
    for name, value in flat(environment):
        typer.echo(sentence_lines(value, console, f"{name}: "))


def flat(values: JsonObject, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested values as dotted names, with `unknown` for missing values and `none` for empty ones."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}.")
        elif isinstance(value, (list, tuple)) and value and isinstance(value[0], Mapping):
            for i, item in enumerate(value):
                yield from flat(item, f"{prefix}{key}.{i}.")
        elif isinstance(value, (list, tuple)):
            yield f"{prefix}{key}", " ".join(map(str, value)) or "none"
        else:
            yield f"{prefix}{key}", "unknown" if value is None else str(value) or "none"
