"""`specbench list`: strategies, backends, workloads, recipes and figures; what is supported here, and why not."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from specbench.harness.engines.native import support
from specbench.harness.metrics.figures import OWN
from specbench.harness.metrics.registered import figure, foreign_figures
from specbench.harness.registry import ATTENTION_BACKENDS, FIGURES, STRATEGIES, WORKLOADS, plug_ins, strategy_class
from specbench.harness.spec.choices import ALLOWED, PART_MODES, Choices, allowed
from specbench.harness.spec.legality import RULES, Refused, resolve
from specbench.harness.spec.plans import PARTS, PLANS
from specbench.harness.spec.recipe_files import base_summaries, recipe_summaries

from .output import format_option, print_tables

_VARIABLES = {"vllm": "SPECBENCH_VLLM_PYTHON", "sglang": "SPECBENCH_SGLANG_PYTHON"}


def _has_gpu() -> bool:
    """Whether the driver's device node exists; does not import torch."""
    return Path("/dev/nvidiactl").exists()


def _availability(device: str) -> dict[str, dict[str, str]]:
    """`yes`, or why not, for each switch and value."""
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
    """List what works on this machine, then models, recipes, what does not work and why, refused combinations, figures.

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
        "engines": _engines(),
        "workloads": list(WORKLOADS),
        "plug_ins": plug_ins({STRATEGIES.group: strategy_class, FIGURES.group: figure}),
        "recipes": recipe_summaries(),
        "bases": base_summaries(),
        "models": support.models(),
        "attention_backends": list(ATTENTION_BACKENDS),
        "plans_by_drafts": {drafts: support.backends(choices) for drafts, choices in support.DRAFTS.items()},
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


def _engines() -> dict[str, str]:
    """`yes`, or what is needed, for each engine. Nothing is imported or started."""
    return {
        "specbench": "yes",
        **{name: _in_environment(name, variable) for name, variable in _VARIABLES.items()},
        "llama.cpp": "no: compile it with make engines ENGINE=llama.cpp, name it with --engine-python",
        "openai": "no: name a running server with --base-url",
    }


def _in_environment(name: str, variable: str) -> str:
    if importlib.util.find_spec(name) or os.environ.get(variable):
        return "yes"
    return f"no: name an environment that has it with --engine-python or {variable}"


def _print_tables(content: dict) -> None:
    from specbench.reports.document import Table

    def show(title: str, headers: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        print_tables(Table(title=title, headers=tuple(headers), rows=tuple(map(tuple, rows))))

    typer.echo(f"device: {content['device']}")
    switches = {"engine": content["engines"], **content["switches"]}
    ready = {switch: [v for v, note in values.items() if note == "yes"] for switch, values in switches.items()}
    ready = {"strategy": content["strategies"], "data set": content["workloads"], **ready}
    supported = [(name, ", ".join(values)) for name, values in ready.items() if values]
    show("supported here (strategy:switch=value, or --switch for all arms)", ("switch", "values"), supported)
    for line in content["plug_ins"]:
        typer.echo(f"plug-in, {line}")
    stored = [(name, _forms(forms)) for name, forms in content["models"].items()]
    show("models of our own engine, and the formats of their weights", ("model", "formats"), stored)
    by_drafts = content["plans_by_drafts"]
    backends = [(name, *(by_drafts[drafts][name] for drafts in by_drafts)) for name in next(iter(by_drafts.values()))]
    title = "graph plans by attention backend and drafts, on a GPU (on a CPU: torch, without graphs)"
    show(title, ("attention", *by_drafts), backends)
    show("recipes (--recipe NAME)", ("recipe", "what it is"), content["recipes"].items())
    show("bases (--base NAME)", ("base", "what it is"), content["bases"].items())
    absent = [
        (f"{switch}={', '.join(values)}", why)
        for switch, notes in switches.items()
        for why, values in _by_reason(notes).items()
    ]
    show("not supported here", ("choice", "because"), absent)
    plans = [(name, *modes.values()) for name, modes in content["graph_plans"].items()]
    plans.append(("modes of a part", *(", ".join(modes) for modes in content["graph_parts"].values())))
    show("graph plans (graph=PLAN; graph_PART=MODE replaces one part)", ("plan", *PARTS), plans)
    show("refused combinations", ("choice", "because"), content["refused"].items())
    figures = [(key, own["unit"], own["better"], own["definition"]) for key, own in content["figures"].items()]
    show("figures", ("figure", "unit", "better", "definition"), figures)


def _forms(forms: Mapping[str, str]) -> str:
    """The supported formats, then the others with their note. Refused formats have their reason in --format json."""
    supported = [form for form, note in forms.items() if note == support.YES]
    others = [f"{form} {note}" for form, note in forms.items() if note != support.YES and not note.startswith("no: ")]
    return ", ".join([*supported, *others])


def _by_reason(values: Mapping[str, str]) -> dict[str, list[str]]:
    values_by_reason: dict[str, list[str]] = {}
    for value, note in values.items():
        if note != "yes":
            values_by_reason.setdefault(note.removeprefix("no: "), []).append(value)
    return values_by_reason
