"""``specbench env``: what every run records about the machine and the software."""

from __future__ import annotations

import json as json_module
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer


def env(json: Annotated[bool, typer.Option("--json", help="Print JSON, as run.json holds it.")] = False) -> None:
    """Print hardware, software versions, git state, threads and the environment variables that a run records.

    Nothing else of the environment is ever recorded. Paste the output into bug reports and pull requests.

    Examples:

      specbench env

      specbench env --json
    """
    from specbench.harness.store.environment import collect_environment

    environment = collect_environment()
    if json:
        typer.echo(json_module.dumps(environment, indent=2))
        return
    for name, value in flat(environment):
        typer.echo(f"{name}: {value}")


def flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested values as dotted names, `unknown` for what could not be found out."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}.")
        elif isinstance(value, list) and value and isinstance(value[0], Mapping):
            for i, item in enumerate(value):
                yield from flat(item, f"{prefix}{key}.{i}.")
        elif isinstance(value, list):
            yield f"{prefix}{key}", " ".join(map(str, value)) or "none"
        else:
            yield f"{prefix}{key}", "unknown" if value is None else str(value)
