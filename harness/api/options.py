"""From keyword options to what the command line would have made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from specbench.harness.ab.plan import LABELS, Side
from specbench.harness.cli.ab_sides import parse_side, side_config
from specbench.harness.cli.main import app
from specbench.harness.cli.run_options import requested, run_config
from specbench.harness.cli.sweep import _grid
from specbench.harness.experiments.session import Output
from specbench.harness.sweep.grid import Grid, parse_numbers

if TYPE_CHECKING:
    from specbench.harness.run_config import RunConfig

Value = str | int | float | bool | Path | Sequence[str] | Sequence[int] | None
_REPEATED = ("strategy", "factor", "stop_token_id")
_USAGE: Any = typer.BadParameter.__base__


def words_of(options: Mapping[str, Value]) -> list[str]:
    """As they would be typed: `--name value`."""
    words: list[str] = []
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if value is None or value is False:
            continue
        if value is True:
            words.append(flag)
        elif isinstance(value, (str, int, float, Path)):
            words += [flag, str(value)]
        elif name in _REPEATED:
            words += [word for item in value for word in (flag, str(item))]
        else:
            words += [flag, ",".join(map(str, value))]
    return words


def output_of(command: str, options: Mapping[str, Value], words: Sequence[str]) -> Output:
    folder, label = Path(str(options.get("output_dir", "runs"))), str(options.get("label", command))
    return Output(folder, label, ("specbench", command, *words))


def asked_run(words: Sequence[str]) -> tuple[RunConfig, dict[str, Any]]:
    asked = requested(_context("run", words))
    return asked.config, asked.record


def asked_sweep(words: Sequence[str]) -> tuple[RunConfig, list[int], Grid, dict[str, Any]]:
    ctx = _context("sweep", words)
    drafts = parse_numbers("num_drafts", ctx.params["num_drafts"], "1,2,4")
    grid, record = _grid(ctx, ctx.params["strategy"], drafts)
    loads = parse_numbers("max_concurrency", ctx.params["loads"], "1,4,16")
    return run_config(ctx, grid.arms), loads, grid, record


def asked_sides(
    sides: Sequence[str | Mapping[str, Value]], words: Sequence[str]
) -> tuple[tuple[Side, Side], tuple[RunConfig, RunConfig]]:
    def parsed(label: str, side: str | Mapping[str, Value]) -> Side:
        if isinstance(side, str):
            return parse_side(label, side, None, words)
        own = words_of(side)
        return Side(label=label, text=" ".join(own), words=(*words, *own))

    a, b = (parsed(label, side) for label, side in zip(LABELS, sides, strict=True))
    return (a, b), (side_config(a), side_config(b))


def _context(command: str, words: Sequence[str]) -> Any:
    found: Any = typer.main.get_command(app)
    try:
        return found.commands[command].make_context(f"specbench {command}", list(words))
    except _USAGE as error:
        raise ValueError(error.format_message()) from error
