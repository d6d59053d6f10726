"""Every figure that one checkout derives from stored runs and traces, as {path: number or word}.

Figures are taken from what the command line prints and writes: JSON, the numbers of Markdown and HTML tables, the data
of charts, JUnit. Of sentences only the numbers count.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import lzma
import multiprocessing
import os
import re
import runpy
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from html import unescape
from pathlib import Path
from xml.etree import ElementTree

import pyarrow
import pyarrow.parquet

Figures = dict[str, float | str | bool | None]
Readings = Mapping[str, tuple[tuple[str, ...], ...]]
"""By kind of data: (name, command, files that it writes)."""

OF_BYTES = "a size or hash of bytes that this version wrote"
"""The place of such a figure: it depends on the schema and cannot be compared."""

POLICY = """
missing = "warn"
baseline = "A"
gate.failed_requests.max = 0
gate.syncs_per_round.max = 1
gate.acceptance_length.min_of_reference = "95%"
gate.same_output.min = "99%"
gate.graph_share.min = "100%"
gate.launches_per_round.max = 100
gate.step_ms.min_effect = "1%"
gate.tpot_ms.min_effect = "5%"
gate.tps.min_effect = "5%"
"""

# What is different each time: where and when, and how long it took to say so.
_VOLATILE = re.compile(r"/(path|noise_file)$|/testsuites?(/\d+)?/time(stamp)?$")
NUMBER = re.compile(r"[-+−]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}\b)")  # commas that only make a number easier to read
_LONG_NAME = re.compile(r"/(timeline|kernels)/\d+/name$")  # of kernels, with the arguments of their templates
# Name, size and hash of a file; stored tables are never written again, so that theirs are the same.
_FILE_ROW = re.compile(r"[^|]*(?<!\.parquet)\|[\d,]+\|[0-9a-f]{64}")
_CELL = re.compile(r"<t[dh]\b[^>]*>(.*?)</t[dh]>", re.DOTALL)
_CHART = re.compile(r'<script[^>]*type="application/json"[^>]*>(.*?)</script>', re.DOTALL)
# Commits of a made-up history: a step of 5 % after six of them, and a last one that stands out.
_STRETCHED = (1, 1.002, 0.999, 1.001, 1, 0.998, 1.05, 1.052, 1.049, 1.051, 1.05, 1.049, 1.3)


def figures_of(checkout: Path, data: Path, readings: Readings) -> Figures:
    """`data`: the checkout whose stored runs and traces are read. Commands run in a copy of them, in one process."""
    figures: Figures = {}
    with tempfile.TemporaryDirectory(prefix="figures-") as name:
        folder = Path(name)
        _copy_data(data, folder)
        process = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, process, _enter, (checkout.resolve(), folder)) as child:
            for kind, place, names in _subjects(folder):
                for reading, command, *files in readings[kind]:
                    out = Path("out", place.replace("/", "-"), reading.replace(" ", "-"))
                    read = _read(child, folder, command, files, {"out": out, **names})
                    figures |= {f"{place}/{reading}/{path}": value for path, value in read}
    return {path: value for path, value in figures.items() if not _VOLATILE.search(path)}


def _copy_data(data: Path, folder: Path) -> None:
    """The stored runs, traces unpacked, and copies of one run as if commits had made it slower: the stored ones are too
    few for a history."""
    shutil.copytree(data / "benchmarks/runs", folder / "runs")
    (folder / "policy.toml").write_text(POLICY, encoding="utf-8")
    traces = data / "tests/harness/profiling/golden"
    for file in sorted(traces.rglob("*")):
        target = folder / "traces" / file.relative_to(traces)
        target.parent.mkdir(parents=True, exist_ok=True)
        if file.name.endswith(".sqlite.xz"):
            target.with_suffix("").write_bytes(lzma.decompress(file.read_bytes()))
        elif file.name.endswith(".json.gz"):
            shutil.copy(file, target)
    run = next(run for run in _holders(folder, "run.json") if not (run / "ab.json").exists())
    for day, factor in enumerate(_STRETCHED, 1):
        _copy_commit(run, folder / "commits" / f"202601{day:02d}T000000Z-commit-{day - 1:08d}", day, factor)


def _copy_commit(run: Path, copy: Path, day: int, factor: float) -> None:
    """A copy of `run` as of another commit and day, its times stretched."""
    shutil.copytree(run, copy)
    raw = json.loads((run / "run.json").read_text(encoding="utf-8"))
    raw |= {"run_id": copy.name, "started_utc": f"2026-01-{day:02d}T00:00:00Z"}
    raw["git"]["sha"] = hashlib.sha1(copy.name.encode()).hexdigest()
    (copy / "run.json").write_text(json.dumps(raw), encoding="utf-8")
    for file in ("steps.parquet", "requests.parquet"):
        table = pyarrow.parquet.read_table(run / file)
        for index, column in enumerate(table.schema):
            if re.fullmatch(r"t_\w*ns", column.name):
                stretched = [None if t is None else round(t * factor) for t in table[column.name].to_pylist()]
                table = table.set_column(index, column, pyarrow.array(stretched, column.type))
        pyarrow.parquet.write_table(table, copy / file)


def _holders(folder: Path, file: str) -> list[Path]:
    return sorted(path.parent for path in (folder / "runs").rglob(file))


def _subjects(folder: Path) -> Iterator[tuple[str, str, dict[str, Path]]]:
    """(kind, name, names for its commands). What reads all runs comes last, since readings of one add files to it."""
    bases: dict[Path, Path] = {}
    for path in _holders(folder, "run.json"):
        run = path.relative_to(folder)
        names = {"run": run, "base": bases.setdefault(run.parent, run)}
        kinds = ["run"]
        if (path / "ab.json").exists():
            kinds += ["noise" if (path / "noise.json").exists() else "experiment", "gates"]
        kinds += ["pair"] if names["base"] != run else []
        yield from ((kind, run.name, names) for kind in kinds)
    for path in _holders(folder, "sweep.json"):
        yield "sweep", path.name, {"run": path.relative_to(folder)}
    for path in sorted((folder / "traces").rglob("*.*")):
        yield "trace", str(path.relative_to(folder)), {"trace": path.relative_to(folder)}
    yield from (("history", "history", {}), ("all", "all", {}))


def _read(
    child: ProcessPoolExecutor, folder: Path, command: str, files: list[str], names: Mapping[str, Path]
) -> Iterator[tuple[str, object]]:
    """One command: its exit code, and the figures of what it prints and writes."""

    def expanded(word: str) -> list[str]:
        word = word.format(**names)
        return sorted(str(path.relative_to(folder)) for path in folder.glob(word)) if "*" in word else [word]

    start = time.monotonic()
    (folder / names["out"]).mkdir(parents=True)
    words = [word for pattern in command.split() for word in expanded(pattern)]
    code, text = child.submit(_run, words).result()
    yield "exit code", code
    yield from _of_text("stdout", text)
    for file in (file for pattern in files for file in expanded(pattern)):
        yield from _of_text(file, (folder / file).read_text(encoding="utf-8"))
    print(f"{time.monotonic() - start:5.1f} s  {' '.join(words)}", file=sys.stderr, flush=True)


def _enter(checkout: Path, folder: Path) -> None:
    """Makes a process one of the checkout. Imports take most of a short command's time; here they are done once."""
    os.chdir(folder)
    os.environ |= {"PYTHONPATH": str(checkout / ".ns"), "SPECBENCH_CACHE": str(folder / "cache")}
    os.environ |= {"COLUMNS": "200", "TERM": "dumb", "OMP_NUM_THREADS": "1"}
    sys.path.insert(0, str(checkout / ".ns"))


def _run(words: list[str]) -> tuple[int, str]:
    """Exit code and stdout of one command of `specbench`; 70 where it breaks."""
    sys.argv = ["specbench", *words]
    code, out = 0, io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()) as errors:
        try:
            runpy.run_module("specbench.harness.cli.main", run_name="__main__")
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except Exception:
            traceback.print_exc()
            code = 70
    if code == 70 or "Traceback" in errors.getvalue():
        print(" ".join(words), errors.getvalue(), sep="\n", file=sys.stderr, flush=True)
    return code, out.getvalue()


# -- figures of a text -------------------------------------------------------------------------------------------------


def _of_text(place: str, text: str) -> Iterator[tuple[str, object]]:
    start = text.lstrip()[:1]
    if start in ("{", "["):
        yield from _of_json(place, json.loads(text))
    elif text.startswith("<?xml"):
        yield from _of_xml(place, ElementTree.fromstring(text))
    elif start == "<":
        yield from _of_html(place, text)
    else:
        for index, row in enumerate(line for line in text.splitlines() if line.startswith("|")):
            yield from _numbers(f"{place}/row {index}", row)


def _of_json(place: str, value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _of_json(f"{place}/{key}", item)
    elif isinstance(value, list):
        yield f"{place}/length", len(value)
        for index, item in enumerate(value):
            yield from _of_json(f"{place}/{index}", item)
    elif place.endswith("/fingerprint"):
        yield place, OF_BYTES
    elif isinstance(value, str) and _LONG_NAME.search(place):
        yield place, hashlib.sha1(value.encode()).hexdigest()[:8]
    elif isinstance(value, str) and len(value.split()) > 3:  # a sentence
        yield from _numbers(place, value)
    else:
        yield place, value


def _numbers(place: str, text: str) -> Iterator[tuple[str, object]]:
    found = (_THOUSANDS.sub("", number) for number in NUMBER.findall(text))
    return ((f"{place}#{index}", number) for index, number in enumerate(found))


def _of_xml(place: str, node: ElementTree.Element) -> Iterator[tuple[str, object]]:
    for key, value in node.attrib.items():
        yield from _of_json(f"{place}/{node.tag}/{key}", value)
    for index, child in enumerate(node):
        yield from _of_xml(f"{place}/{node.tag}/{index}", child)


def _of_html(place: str, text: str) -> Iterator[tuple[str, object]]:
    """Cells of tables, and the data of charts."""
    cells = [unescape(re.sub("<[^>]*>", "", cell)) for cell in _CELL.findall(text)]
    yield f"{place}/cells", len(cells)
    rows = zip(cells, cells[1:], cells[2:], strict=False)
    sums = {n for n, row in enumerate(rows, 2) if _FILE_ROW.fullmatch("|".join(row))}
    for index, cell in enumerate(cells):
        if index in sums or index + 1 in sums:
            yield f"{place}/cell {index}", OF_BYTES
        else:
            yield from _numbers(f"{place}/cell {index}", cell)
    for index, chart in enumerate(_CHART.findall(text)):
        yield from _of_json(f"{place}/chart {index}", _data_of(json.loads(chart)))


def _data_of(spec: object) -> list:
    """The values of a chart, without its colours, titles and sizes."""
    if isinstance(spec, Mapping):
        data = [spec["data"]["values"]] if isinstance(spec.get("data"), Mapping) and "values" in spec["data"] else []
        return data + [x for key, item in spec.items() if key != "data" for x in _data_of(item)]
    return [x for item in spec for x in _data_of(item)] if isinstance(spec, list) else []
