"""Whether two versions of this code derive the same figures from what is stored.

    python benchmarks/compare_figures.py OLD NEW      OLD: a checkout, or a file that --freeze made; NEW: a checkout
    python benchmarks/compare_figures.py --freeze FILE.json.xz CHECKOUT

Each reads the stored runs and traces of its own checkout, or those of --data. Exit code 1 where a figure differs, is
missing or new.
"""

from __future__ import annotations

import argparse
import json
import lzma
import re
import sys
from dataclasses import fields, replace
from pathlib import Path

from figures_of import Figure, Figures, Reading, Readings, figures_of

RENAMED: dict[str, str] = {
    "specbench.run/1": "specbench.run/2",
    "/run/ab/first_manifests/": "/run/ab/sides/",
    r"/run/(sweep|acceptance)(?=[/#]|$)": r"/run/purpose/\1",
    r"(/run/arms/\d+)/config/warmup": r"\1/warmup",
    r"(/run/files/[^/]+)/sha256$": r"\1",
    r"/config/workload/(name|path)$": r"/config/dataset_\1",
    "/config/workload/": "/config/",
}
"""Old name: new name, of one part of a path or a whole value; with a slash: a regular expression in whole paths."""
GONE: tuple[str, ...] = (
    "/plan/order/",  # follows from its seed, which stays
    "/run/config/measured_by$",
    r"/run/(ab/sides/./)?config/(vocab_size|kind)$",
)
"""Regular expressions of old paths that are left out on purpose."""
ADDED: tuple[str, ...] = (
    r"/run/(results|profile|imported|ab)$",  # null: nothing of the kind
    r"/run/purpose/\w+$",
    r"/run/arms/\d+/(graph_parts|engine)$",
    r"/config/(hf_\w+|dataset_path|engine)$",
    "/code_state$",
)
"""Regular expressions of new paths that are added on purpose."""
OF_BYTES = (
    r"/runs/[^/]+\.html/cell (98[0167]|993|10(0[89]|1[234589]|4[67])|11(2[89]|5[67]|8[89])|12(01|1[23567]))#",
    "/fingerprint$",
)
"""Regular expressions of paths whose values are sizes and sums of files and records: not compared."""

_GATES = """
missing = "warn"
baseline = "A"
[gate.failed_requests]
max = 0
[gate.syncs_per_round]
max = 1
[gate.acceptance_length]
min_of_reference = "95%"
[gate.same_output]
min = "99%"
[gate.graph_share]
min = "100%"
[gate.launches_per_round]
max = 100
[gate.step_ms]
min_effect = "1%"
[gate.tpot_ms]
min_effect = "5%"
[gate.tps]
min_effect = "5%"
"""

_OLD = Readings(
    runs="benchmarks/runs",
    traces="tests/harness/profiling/golden",
    policy=_GATES,
    of_run=(
        Reading("show", "show {run} --json"),
        Reading("report", "show {run} --markdown"),
        Reading("compare", "compare {run} --format json"),
    ),
    of_experiment=(Reading("judge", "ab --resume {run} --json -q", ("{run}/ab.json", "{run}/ab.md")),),
    of_noise=(
        Reading("noise", "power --resume {run} --json -q", ("{run}/ab.json", "{run}/ab.md", "{run}/noise.json")),
    ),
    of_gates=(
        Reading("gate", "gate {run} --policy policy.toml --json"),
        Reading(
            "junit",
            "gate {run} --policy policy.toml --junit {out}/j.xml --comment {out}/c.md",
            ("{out}/j.xml", "{out}/c.md"),
        ),
    ),
    of_sweep=(
        Reading("show", "show {run} --json"),
        Reading("report", "show {run} --markdown"),
    ),
    of_pair=(
        Reading("pair", "compare {base} {run} --format json --allow-mismatch"),
        Reading("pair table", "compare {base} {run} --format md --allow-mismatch"),
        Reading("gate pair", "gate {run} --against {base} --policy policy.toml --json --allow-mismatch"),
    ),
    of_trace=(
        Reading("profile", "profile import {trace} -f json"),
        Reading("profile table", "profile import {trace} -f md"),
        Reading("page", "profile import {trace} -f html"),
    ),
    of_history=(
        Reading("add", "history add history {runs}"),
        Reading("steps", "history show history --json"),
        Reading("suspects", "history suspects history --json"),
        Reading("site", "report history -o {out}/site", ("{out}/site/*.html",)),
    ),
    of_all=(Reading("site", "report {runs} -o {out}/site", ("{out}/site/**/*.html", "{out}/site/site.json")),),
)


def _with_format(command: str) -> str:
    return command.replace("--json", "--format json").replace("--markdown", "--format md")


def _with_formats(readings: Readings) -> Readings:
    """As commands are asked for a format now."""
    changed = {}
    for each in fields(readings):
        if each.name.startswith("of_"):
            found: tuple[Reading, ...] = getattr(readings, each.name)
            words = [_with_format(one.command) for one in found]
            changed[each.name] = tuple(replace(one, command=word) for one, word in zip(found, words, strict=True))
    return replace(readings, **changed)


READINGS = {"old": _OLD, "new": _with_formats(_OLD)}
"""How each side is asked: what NEW spells otherwise is replaced here."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--freeze", type=Path, metavar="FILE", help="write the figures of one checkout there")
    parser.add_argument("--data", type=Path, help="a checkout whose stored runs both sides read")
    parser.add_argument("places", nargs="+", type=Path, metavar="CHECKOUT")
    options = parser.parse_args()
    if options.freeze:
        _freeze(_figures("old", options.places[0], options.data), options.freeze)
        return 0
    old, new = (_figures(s, place, options.data) for s, place in zip(("old", "new"), options.places, strict=True))
    return _compare(_renamed(old), new)


def _figures(side: str, place: Path, data: Path | None) -> Figures:
    if place.is_file():
        return json.loads(lzma.decompress(place.read_bytes()))
    return figures_of(place, READINGS[side], data or place)


def _freeze(figures: Figures, file: Path) -> None:
    text = json.dumps(figures, sort_keys=True, separators=(",", ":"))
    file.write_bytes(lzma.compress(text.encode(), preset=9))
    print(f"{len(figures)} figures in {file}, {file.stat().st_size} bytes")


def _renamed(figures: Figures) -> Figures:
    return {
        _path(path): RENAMED.get(value, value) if isinstance(value, str) else value for path, value in figures.items()
    }


def _path(path: str) -> str:
    words = "/".join(RENAMED.get(word, word) for word in path.split("/"))
    for pattern, new in RENAMED.items():
        words = re.sub(pattern, new, words) if "/" in pattern else words
    return words


def _compare(old: Figures, new: Figures) -> int:
    old, new = _without_sums(old), _without_sums(new)
    gone = [path for path in old.keys() - new.keys() if not any(re.search(p, path) for p in GONE)]
    added = [path for path in new.keys() - old.keys() if not any(re.search(p, path) for p in ADDED)]
    both = old.keys() & new.keys()
    changed = [path for path in both if not _same(old[path], new[path])]
    for word, paths in (("gone", gone), ("new", added), ("changed", changed)):
        for path in sorted(paths):
            print(f"{word}: {path}: {old.get(path)!r} -> {new.get(path)!r}")
    differences = len(gone) + len(added) + len(changed)
    print(f"{len(both)} figures compared, {differences} differences")
    return int(differences > 0 or not both)


def _without_sums(figures: Figures) -> Figures:
    return {path: value for path, value in figures.items() if not any(re.search(p, path) for p in OF_BYTES)}


def _same(a: Figure, b: Figure) -> bool:
    return a == b or (a != a and b != b)  # not a number, twice


if __name__ == "__main__":
    sys.exit(main())
