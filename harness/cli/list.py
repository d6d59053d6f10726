"""`specbench list`: strategies, backends, workloads, recipes, figures; what works on this machine, and why not."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specbench.harness.metrics.figures import OWN
from specbench.harness.metrics.registered import figure, foreign_figures
from specbench.harness.registry import ATTENTION_BACKENDS, FIGURES, STRATEGIES, WORKLOADS, plug_ins, strategy_class
from specbench.harness.spec.legality import ALLOWED, PART_MODES, RULES, Choices, Refused, allowed, resolve
from specbench.harness.spec.plans import PARTS, PLANS
from specbench.harness.spec.recipe_files import base_summaries, recipe_summaries

from .output import format_option

if TYPE_CHECKING:
    from rich.console import Console


def _has_gpu() -> bool:
    """Without importing torch: the driver's device node."""
    return Path("/dev/nvidiactl").exists()


def _availability(device: str) -> dict[str, dict[str, str]]:
    """For each switch and value: `yes`, or why not."""
    table: dict[str, dict[str, str]] = {}
    for switch in ALLOWED:
        table[switch] = {}
        for value in allowed(switch):
            if value == "auto":
                continue
            try:
                asked: dict[str, Any] = {"device": device, switch: value}
                resolve(Choices(**asked))
                table[switch][value] = "yes"
            except Refused as error:
                table[switch][value] = f"no: {error.reason}"
            except ValueError as error:  # another package's
                table[switch][value] = f"no: {error}"
    return table


def list_choices(
    format: Annotated[str, format_option("table", "json")] = "table",
    device: Annotated[str, typer.Option(help="cpu or cuda; auto: this machine.")] = "auto",
) -> None:
    """List strategies, workloads, recipes, switches and figures, and which combinations are legal on this machine.

    Examples:

      specbench list

      specbench list --device cuda --format json
    """
    if device not in ("auto", "cpu", "cuda"):
        raise ValueError(f"device: {device!r} is not known; allowed: auto, cpu, cuda")
    if device == "auto":
        device = "cuda" if _has_gpu() else "cpu"
    content = {
        "device": device,
        "strategies": list(STRATEGIES),
        "workloads": list(WORKLOADS),
        "plug_ins": plug_ins({STRATEGIES.group: strategy_class, FIGURES.group: figure}),
        "recipes": recipe_summaries(),
        "bases": base_summaries(),
        "attention_backends": list(ATTENTION_BACKENDS),
        "switches": _availability(device),
        "graph_plans": {name: {part: getattr(plan, part) for part in PARTS} for name, plan in PLANS.items()},
        "graph_parts": PART_MODES,
        "refused": {rule.choice: rule.reason for rule in RULES},
        "figures": {
            f.key: {name: getattr(f, name) for name in ("unit", "better", "definition", "source")}
            for f in (*OWN, *foreign_figures())
        },
        "packages": {
            name: bool(importlib.util.find_spec(name)) for name in ("triton", "flashinfer", "nvtx", "lm_eval")
        },
    }
    if format == "json":
        typer.echo(json.dumps(content, indent=2))
        return
    _print_tables(content)


def _print_tables(content: dict) -> None:
    from rich.console import Console

    console = Console()
    console.print(f"device: [bold]{content['device']}[/]")
    console.print(f"strategies: {', '.join(content['strategies'])}")
    console.print(f"workloads: {', '.join(content['workloads'])}")
    for line in content["plug_ins"]:
        console.print(f"plug-in, {line}")
    _print_table(console, "recipes (--recipe NAME)", (), content["recipes"].items())
    _print_table(console, "bases (--base NAME)", (), content["bases"].items())
    switches = [(switch, *row) for switch, values in content["switches"].items() for row in values.items()]
    title = "switches (strategy:switch=value, or --switch for all arms)"
    _print_table(console, title, ("switch", "value", "here"), switches)
    plans = [(name, *modes.values()) for name, modes in content["graph_plans"].items()]
    plans.append(("modes of a part", *("\n".join(modes) for modes in content["graph_parts"].values())))
    _print_table(console, "graph plans (graph=PLAN; graph_PART=MODE replaces one part)", ("plan", *PARTS), plans)
    _print_table(console, "refused combinations", ("choice", "because"), content["refused"].items())
    figures = [(key, own["unit"], own["better"], own["definition"]) for key, own in content["figures"].items()]
    _print_table(console, "figures", ("figure", "unit", "better", "definition"), figures)


def _print_table(console: Console, title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    from rich.table import Table

    table = Table(title=title, title_justify="left", show_header=bool(columns))
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    console.print(table)
