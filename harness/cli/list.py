"""`specbench list`: strategies, backends, workloads, recipes, figures; what works on this machine, and why not."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from specbench.harness.metrics.figures import OWN
from specbench.harness.registry import ATTENTION_BACKENDS, STRATEGIES, WORKLOADS, foreign_figures, plug_ins
from specbench.harness.spec.legality import ALLOWED, PART_MODES, RULES, Choices, Refused, allowed, resolve
from specbench.harness.spec.plans import PARTS, PLANS
from specbench.harness.spec.recipe_files import base_summaries, recipe_summaries

from .formats import format_option


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
    device: Annotated[str, typer.Option(help="Answer for cpu or cuda; auto: this machine.")] = "auto",
) -> None:
    """List strategies, workloads, recipes, switches and figures, and what can be combined on this machine.

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
        "plug_ins": plug_ins(),
        "recipes": recipe_summaries(),
        "bases": base_summaries(),
        "attention_backends": list(ATTENTION_BACKENDS),
        "switches": _availability(device),
        "graph_plans": {name: {part: getattr(plan, part) for part in PARTS} for name, plan in PLANS.items()},
        "graph_parts": PART_MODES,
        "refused": {rule.choice: rule.reason for rule in RULES},
        "figures": {
            f.key: {"unit": f.unit, "better": f.better, "definition": f.definition, "source": f.source}
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
    from rich.table import Table

    console = Console()
    console.print(f"device: [bold]{content['device']}[/]")
    console.print(f"strategies: {', '.join(content['strategies'])}")
    console.print(f"workloads: {', '.join(content['workloads'])}")
    for line in content["plug_ins"]:
        console.print(f"plug-in, {line}")
    for title, key in (("recipes (--recipe NAME)", "recipes"), ("bases (--base NAME)", "bases")):
        files = Table(title=title, title_justify="left", show_header=False)
        for name, summary in content[key].items():
            files.add_row(name, summary)
        console.print(files)
    switches = Table(title="switches (strategy:switch=value, or --switch for all arms)", title_justify="left")
    for column in ("switch", "value", "here"):
        switches.add_column(column, overflow="fold")
    for switch, values in content["switches"].items():
        for value, here in values.items():
            switches.add_row(switch, value, here)
    console.print(switches)
    plans = Table(title="graph plans (graph=PLAN; graph_PART=MODE replaces one part)", title_justify="left")
    for column in ("plan", *PARTS):
        plans.add_column(column)
    for name, modes in content["graph_plans"].items():
        plans.add_row(name, *modes.values())
    plans.add_row("modes of a part", *("\n".join(modes) for modes in content["graph_parts"].values()))
    console.print(plans)
    refused = Table(title="refused combinations", title_justify="left")
    for column in ("choice", "because"):
        refused.add_column(column, overflow="fold")
    for choice, reason in content["refused"].items():
        refused.add_row(choice, reason)
    console.print(refused)
    figures = Table(title="figures", title_justify="left")
    for column in ("figure", "unit", "better", "definition"):
        figures.add_column(column, overflow="fold")
    for key, about in content["figures"].items():
        figures.add_row(key, about["unit"], about["better"], about["definition"])
    console.print(figures)
