"""Fills the generated sections of docs/*.md from the option schema and the registries: `python docs/generate.py`.

A section is what lies between `<!-- generated: NAME -->` and `<!-- end -->`. tests/test_docs.py holds them to it.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import click
import typer
from typer.testing import CliRunner

from specbench.harness.cli.main import app
from specbench.harness.engines.native import support
from specbench.harness.engines.native.arms import unasked
from specbench.harness.engines.native.models.shapes import SHAPES
from specbench.harness.registry import ATTENTION_BACKENDS, STRATEGIES, WORKLOADS, StrategyKind, strategy_class
from specbench.harness.spec.choices import ALLOWED
from specbench.harness.store.schema import TABLES

DOCS, WIDTH = Path(__file__).resolve().parent, 128
SECTION = re.compile(r"(<!-- generated: ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def filled(page: str) -> str:
    """The page with every generated section up to date. KeyError for a section that nothing generates."""
    return SECTION.sub(lambda match: f"{match[1]}\n{SECTIONS[match[2]]().strip()}\n\n{match[3]}", page)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def _code(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def _wrapped(text: str, end: str = "", indent: str = "") -> str:
    """In lines as long as those of the pages; a word is never broken. `end`: of a line that the next one continues."""
    lines = textwrap.wrap(
        text, WIDTH - len(end), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return f"{end}\n".join(lines)


def _listed() -> dict:
    """What `specbench list` knows. For a GPU, so that no page depends on the machine that made it."""
    return json.loads(CliRunner().invoke(app, ["list", "--device", "cuda", "--format", "json"]).stdout)


def strategies() -> str:
    rows = []
    for name in STRATEGIES.built_in:
        kind = strategy_class(name)
        options = [f"{f.name}={f.default}" if f.default != "" else f.name for f in dataclasses.fields(kind)]
        about = inspect.getdoc(kind) or ""
        rows.append((f"`{name}`", _code(options) or "none", f"`{kind.graph}`", " ".join(about.split())))
    return _table(("strategy", "options", "graph plan on a GPU", "what the options mean"), rows)


def switches() -> str:
    listed = _listed()
    return _table(
        ("switch", "values"),
        [
            (f"`{switch}`", _code(["auto"] * ("auto" in ALLOWED[switch]) + list(values)))
            for switch, values in listed["switches"].items()
        ],
    )


def plans() -> str:
    listed = _listed()["graph_plans"]
    parts = list(next(iter(listed.values())))
    return _table(("plan", *parts), [(f"`{name}`", *modes.values()) for name, modes in listed.items()])


def refused() -> str:
    return _table(("refused", "because"), _listed()["refused"].items())


def recipes() -> str:
    listed = _listed()
    rows = [(f"`--recipe {name}`", summary) for name, summary in listed["recipes"].items()]
    rows += [(f"`--base {name}`", summary) for name, summary in listed["bases"].items()]
    return _table(("name", "what it compares"), rows)


def workloads() -> str:
    return _wrapped(_code(WORKLOADS.built_in))


def models() -> str:
    found = support.models()
    forms = list(next(iter(found.values())))
    rows = [(f"`{name}`", *(_cell(said[form]) for form in forms)) for name, said in found.items()]
    return _table(("model", *forms), rows)


def _cell(said: str) -> str:
    return "-" if said.startswith("no") else said


def matrix() -> str:
    """A row a strategy and what drafts for it; on a GPU that has all backends."""
    rows = []
    for name in STRATEGIES.built_in:
        kind = strategy_class(name)
        plans = support.backends(unasked(kind.of({}), "cuda"))
        rows += [(f"`{name}`", drafter, *map(_cell, plans.values())) for drafter in _drafters(kind)]
    return _table(("strategy", "drafts from", *(f"`{name}`" for name in ATTENTION_BACKENDS.built_in)), rows)


def _drafters(kind: type[StrategyKind]) -> Sequence[str]:
    if kind.one_pass:
        return ("an EAGLE-3 head for parallel drafting",)
    if kind.takes_head:
        return ("an EAGLE-3 head", "an EAGLE-1 or EAGLE-2 head")
    if "draft" in {field.name for field in dataclasses.fields(kind)}:  # type: ignore[arg-type]
        return ("a model of the same vocabulary", "the target's own first layers")
    return ("-",) if kind.is_baseline else ("prompt and output",)


def shapes() -> str:
    return _wrapped(_code(name for name in SHAPES if name != "toy"))


def figures() -> str:
    rows = [
        (f"`{key}`", figure["unit"], figure["better"], figure["definition"], f"`{figure['source']}`")
        for key, figure in _listed()["figures"].items()
    ]
    return _table(("figure", "unit", "better", "definition", "computed in"), rows)


def columns() -> str:
    parts = []
    for table, own in TABLES.items():
        rows = [(f"`{column.name}`", str(column.type), column.doc) for column in own]
        parts.append(f"### `{table}.parquet`\n\n{_table(('column', 'type', 'meaning'), rows)}")
    return "\n\n".join(parts)


def commands() -> str:
    return "\n\n".join(_command(path, command) for path, command in _walk("specbench", typer.main.get_command(app)))


def _walk(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    children = getattr(command, "commands", None)
    if children is None:
        yield path, command
    for name, child in (children or {}).items():
        yield from _walk(f"{path} {name}", child)


def _command(path: str, command: click.Command) -> str:
    about, examples, *_ = *re.split("^Examples?:$", inspect.cleandoc(command.help or ""), flags=re.MULTILINE), ""
    examples = "\n".join(
        _wrapped(" ".join(line.split()), " \\", "    ") for line in re.split(r"\n\s*\n", examples.strip())
    )
    rows = []
    for parameter in command.params:
        if parameter.param_type_name == "option":
            name = ", ".join(f"`{flag}`" for flag in (*parameter.opts, *parameter.secondary_opts))
            shown = str(parameter.default) not in ("None", "False", "()", "") and not callable(parameter.default)
            default = f"`{parameter.default}`" if shown else ""
            if parameter.name != "help":
                rows.append((name, default, parameter.help or ""))
        else:
            rows.append((f"`{(parameter.name or '').upper()}`", "", getattr(parameter, "help", None) or ""))
    indented = re.compile(r"((?:^  .*\n+)+)", re.MULTILINE)
    parts = [f"## {path}"]
    for text in indented.split(about.strip() + "\n"):
        if text.startswith("  "):
            file = inspect.cleandoc(text).replace("\\[", "[")  # as rich prints it
            parts.append(f"```\n{file}\n```")
        else:
            parts += [_wrapped(part) for part in text.split("\n\n") if part.strip()]
    parts += [f"```\n{examples}\n```"] * bool(examples) + [_table(("option", "default", "meaning"), rows)] * bool(rows)
    return "\n\n".join(parts)


SECTIONS: dict[str, Callable[[], str]] = {
    "strategies": strategies,
    "switches": switches,
    "plans": plans,
    "refused": refused,
    "recipes": recipes,
    "workloads": workloads,
    "models": models,
    "matrix": matrix,
    "shapes": shapes,
    "figures": figures,
    "columns": columns,
    "commands": commands,
}


def main() -> int:
    for path in sorted(DOCS.glob("*.md")):
        path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
