"""Every figure that one checkout derives from stored runs, as {path: number or word}.

Figures are taken from what the command line prints and writes: JSON, the numbers of Markdown and HTML tables, the data
of charts, JUnit. Sentences are left alone, but for their numbers. Commands run in a copy of the data, in a process of
their own, on the code of the checkout.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import lzma
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pyarrow
import pyarrow.parquet

Figure = float | str | bool | None
Figures = dict[str, Figure]

# What is different each time: where and when, and how long it took to say so.
_VOLATILE = re.compile(r"/(path|noise_file)$|/testsuites?(/\d+)?/time(stamp)?$")
_NUMBER = re.compile(r"[-+−]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
# Commits of a made-up history: a step of 5 % after six of them, and a last one that stands out.
_STRETCHED = (1, 1.002, 0.999, 1.001, 1, 0.998, 1.05, 1.052, 1.049, 1.051, 1.05, 1.049, 1.3)
_MOST_WORDS = 3  # more is a sentence
_LONG_NAME = re.compile(r"/(timeline|kernels)/\d+/name$")  # of kernels, with the arguments of their templates


@dataclass(frozen=True, slots=True)
class Reading:
    """One command: words with {run} and other names in braces; `files` that it writes are read as its output is."""

    name: str
    command: str
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Readings:
    """How a checkout is asked. `policy`: gates, as `gate` reads them; `traces`: folder of traces in the checkout."""

    runs: str
    traces: str
    policy: str
    of_run: tuple[Reading, ...]
    of_experiment: tuple[Reading, ...]
    of_noise: tuple[Reading, ...]
    of_gates: tuple[Reading, ...]
    of_sweep: tuple[Reading, ...]
    of_pair: tuple[Reading, ...]
    of_trace: tuple[Reading, ...]
    of_history: tuple[Reading, ...]
    of_all: tuple[Reading, ...]


class Asked:
    """A process that runs commands on the code of a checkout, in `folder`."""

    def __init__(self, checkout: Path, folder: Path):
        own = dict(PYTHONPATH=str(checkout / ".ns"), SPECBENCH_CACHE=str(folder / "cache"), COLUMNS="200", TERM="dumb")
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("ask_checkout.py"))],
            cwd=folder,
            env={**os.environ, **own, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(self, words: list[str]) -> tuple[int, str]:
        """Exit code and what it printed."""
        assert self._process.stdin and self._process.stdout
        print(json.dumps(words), file=self._process.stdin, flush=True)
        answer = json.loads(self._process.stdout.readline())
        return answer["code"], answer["said"]

    def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()


class Bench:
    """A folder with a copy of the data, and the checkout whose code reads it."""

    def __init__(self, checkout: Path, readings: Readings, data: Path, folder: Path):
        self._readings, self._folder = readings, folder
        shutil.copytree(data / readings.runs, folder / "runs")
        self._runs = sorted(path.parent for path in (folder / "runs").rglob("run.json"))
        self._sweeps = sorted(path.parent for path in (folder / "runs").rglob("sweep.json"))
        self._traces = list(_unpacked(data / readings.traces, folder / "traces"))
        (folder / "policy.toml").write_text(readings.policy, encoding="utf-8")
        self._ask = Asked(checkout, folder)

    def figures(self) -> Figures:
        """What reads all runs comes last, since readings of one add files to it."""
        with contextlib.closing(self._ask):
            found = dict(figure for figures in self._parts() for figure in figures.items())
        return {path: value for path, value in found.items() if not _VOLATILE.search(path)}

    def _parts(self) -> Iterator[Figures]:
        kinds = self._readings
        bases: dict[Path, Path] = {}
        for run in self._runs:
            base = bases.setdefault(run.parent, run)
            readings = kinds.of_run
            if (run / "ab.json").exists():
                readings += kinds.of_noise if (run / "noise.json").exists() else kinds.of_experiment
                readings += kinds.of_gates
            if run != base:
                readings += kinds.of_pair
            yield self._read(readings, run.name, run=self._name(run), base=self._name(base))
        for sweep in self._sweeps:
            yield self._read(kinds.of_sweep, sweep.name, run=self._name(sweep))
        for trace in self._traces:
            yield self._read(kinds.of_trace, self._name(trace), trace=self._name(trace))
        self._make_commits()
        yield self._read(kinds.of_history, "history", runs="commits/*")
        yield self._read(kinds.of_all, "all", runs="runs/*")

    def _name(self, path: Path) -> str:
        return str(path.relative_to(self._folder))

    def _make_commits(self) -> None:
        """Copies of one stored run as if commits had made it slower: the stored ones are too few for a history."""
        run = next(run for run in self._runs if not (run / "ab.json").exists())
        for index, factor in enumerate(_STRETCHED):
            _as_commit(run, self._folder / "commits", index, factor)

    def _read(self, readings: tuple[Reading, ...], name: str, **names: str) -> Figures:
        found: Figures = {}
        for reading in readings:
            start = time.monotonic()
            out = self._folder / "out" / name.replace("/", "-") / reading.name.replace(" ", "-")
            out.mkdir(parents=True)
            command = reading.command.format(out=self._name(out), **names)
            place = f"{name}/{reading.name}"
            words = (self._matching(word) if "*" in word else [word] for word in command.split())
            found[f"{place}/exit code"], said = self._ask([word for some in words for word in some])
            found.update(_of_text(f"{place}/stdout", said))
            for pattern in reading.files:
                for file in self._matching(pattern.format(out=self._name(out), **names)):
                    found.update(_of_text(f"{place}/{file}", (self._folder / file).read_text(encoding="utf-8")))
            print(f"{time.monotonic() - start:5.1f} s  {command}", file=sys.stderr, flush=True)
        return found

    def _matching(self, pattern: str) -> list[str]:
        return sorted(map(self._name, self._folder.glob(pattern)))


def figures_of(checkout: Path, readings: Readings, data: Path) -> Figures:
    """`data`: the checkout whose stored runs and traces are read."""
    with tempfile.TemporaryDirectory(prefix="figures-") as folder:
        return Bench(checkout.resolve(), readings, data.resolve(), Path(folder)).figures()


def _unpacked(traces: Path, folder: Path) -> Iterator[Path]:
    for file in sorted(traces.rglob("*")):
        target = folder / file.relative_to(traces)
        target.parent.mkdir(parents=True, exist_ok=True)
        if file.name.endswith(".sqlite.xz"):
            target = target.with_suffix("")
            target.write_bytes(lzma.decompress(file.read_bytes()))
            yield target
        elif file.name.endswith(".json.gz"):
            yield Path(shutil.copy(file, target))


def _as_commit(run: Path, folder: Path, index: int, factor: float) -> None:
    """A copy of `run` as of another commit and day, its times stretched."""
    name = f"202601{index + 1:02d}T000000Z-commit-{index:08d}"
    shutil.copytree(run, folder / name)
    raw = json.loads((run / "run.json").read_text(encoding="utf-8"))
    raw |= {"run_id": name, "started_utc": f"2026-01-{index + 1:02d}T00:00:00Z"}
    raw["git"]["sha"] = hashlib.sha1(name.encode()).hexdigest()
    (folder / name / "run.json").write_text(json.dumps(raw), encoding="utf-8")
    for file in ("steps.parquet", "requests.parquet"):
        table = pyarrow.parquet.read_table(run / file)
        for index, column in enumerate(table.schema):
            if re.fullmatch(r"t_\w*ns", column.name):
                stretched = [None if t is None else round(t * factor) for t in table[column.name].to_pylist()]
                table = table.set_column(index, column, pyarrow.array(stretched, column.type))
        pyarrow.parquet.write_table(table, folder / name / file)


# -- figures of a text -------------------------------------------------------------------------------------------------


def _of_text(place: str, text: str) -> Iterator[tuple[str, Figure]]:
    start = text.lstrip()[:1]
    if start in ("{", "["):
        yield from _of_json(place, json.loads(text))
    elif text.startswith("<?xml"):
        yield from _of_xml(place, ElementTree.fromstring(text))
    elif start == "<":
        yield from _of_html(place, text)
    else:
        rows = [line for line in text.splitlines() if line.startswith("|")]
        for index, row in enumerate(rows):
            yield from _numbers(f"{place}/row {index}", row)


def _of_json(place: str, value: object) -> Iterator[tuple[str, Figure]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _of_json(f"{place}/{key}", item)
    elif isinstance(value, list):
        yield f"{place}/length", len(value)
        for index, item in enumerate(value):
            yield from _of_json(f"{place}/{index}", item)
    elif isinstance(value, str) and _LONG_NAME.search(place):
        yield place, hashlib.sha1(value.encode()).hexdigest()[:8]
    elif isinstance(value, str) and len(value.split()) > _MOST_WORDS:
        yield from _numbers(place, value)
    else:
        yield place, value  # type: ignore[misc]


def _numbers(place: str, text: str) -> Iterator[tuple[str, Figure]]:
    for index, found in enumerate(_NUMBER.findall(text)):
        yield f"{place}#{index}", found


def _of_xml(place: str, node: ElementTree.Element) -> Iterator[tuple[str, Figure]]:
    for key, value in node.attrib.items():
        yield from _of_json(f"{place}/{node.tag}/{key}", value)
    for index, child in enumerate(node):
        yield from _of_xml(f"{place}/{node.tag}/{index}", child)


class _Page(HTMLParser):
    """Texts of table cells, and the JSON of charts."""

    def __init__(self) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.charts: list[str] = []
        self._into: list[str] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("td", "th"):
            self._into = self.cells
        elif tag == "script" and ("type", "application/json") in attrs:
            self._into = self.charts
        else:
            return
        self._into.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th", "script"):
            self._into = None

    def handle_data(self, data: str) -> None:
        if self._into is not None:
            self._into[-1] += data


def _of_html(place: str, text: str) -> Iterator[tuple[str, Figure]]:
    page = _Page()
    page.feed(text)
    yield f"{place}/cells", len(page.cells)
    for index, cell in enumerate(page.cells):
        yield from _numbers(f"{place}/cell {index}", cell)
    for index, chart in enumerate(page.charts):
        yield from _of_json(f"{place}/chart {index}", _data_of(json.loads(chart)))


def _data_of(spec: object) -> list:
    """The values of a chart, without its colours, titles and sizes."""
    if isinstance(spec, Mapping):
        data = [spec["data"]["values"]] if isinstance(spec.get("data"), Mapping) and "values" in spec["data"] else []
        return data + [x for key, item in spec.items() if key != "data" for x in _data_of(item)]
    return [x for item in spec for x in _data_of(item)] if isinstance(spec, list) else []
