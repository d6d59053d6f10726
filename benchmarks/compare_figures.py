"""Whether two versions of this code derive the same figures from what is stored.

    python benchmarks/compare_figures.py OLD NEW      OLD: a checkout, or a file that --freeze made; NEW: a checkout
    python benchmarks/compare_figures.py --freeze FILE.json.xz CHECKOUT

Each side reads the stored runs and traces of its own checkout, or those of --data. Exit code 1 where a figure differs,
is missing or is new.
"""

from __future__ import annotations

import argparse
import json
import lzma
import re
import sys
from pathlib import Path

from figures_of import NUMBER, OF_BYTES, Figures, Readings, figures_of

RENAMED_VALUES = {"specbench.run/1": "specbench.run/2"}
RENAMED = {
    "/run/ab/first_manifests/": "/run/ab/sides/",
    r"/run/(sweep|acceptance)(?=[/#]|$)": r"/run/purpose/\1",
    r"(/run/arms/\d+)/config/warmup": r"\1/warmup",
    r"(/run/files/[^/]+)/sha256$": r"\1",
    r"/config/workload/(name|path)$": r"/config/dataset_\1",
    "/config/workload/": "/config/",
}
"""Regular expressions of old paths: the new path."""
GONE = (
    "/plan/order/",  # follows from its seed, which stays
    "/run/config/measured_by$",
    r"/run/(ab/sides/./)?config/(vocab_size|kind)$",
)
"""Regular expressions of old paths that were dropped on purpose."""
ADDED = (
    r"/run/(results|profile|imported|ab)$",  # null: nothing of the kind
    r"/run/purpose/\w+$",
    r"\.html/shows ",  # a page may show more than it did
    r"/run/arms/\d+/(graph_parts|engine)$",
    r"/config/(hf_\w+|dataset_path|engine)$",
    "/code_state$",
)
"""Regular expressions of new paths that were added on purpose."""

# How both sides are asked.
_SHOWN = (("show", "show {run} --format json"), ("report", "show {run} --format md"))
_JUDGED = ("{run}/ab.json", "{run}/ab.md")
_GATE = "gate {run} --policy policy.toml"
READINGS: Readings = {
    "run": (*_SHOWN, ("compare", "compare {run} --format json")),
    "experiment": (("judge", "ab --resume {run} --format json -q", *_JUDGED),),
    "noise": (("noise", "power --resume {run} --format json -q", *_JUDGED, "{run}/noise.json"),),
    "gates": (
        ("gate", f"{_GATE} --format json"),
        ("junit", f"{_GATE} --junit {{out}}/j.xml --comment {{out}}/c.md", "{out}/j.xml", "{out}/c.md"),
    ),
    "pair": (
        ("pair", "compare {base} {run} --format json --allow-mismatch"),
        ("pair table", "compare {base} {run} --format md --allow-mismatch"),
        ("gate pair", "gate {run} --against {base} --policy policy.toml --format json --allow-mismatch"),
    ),
    "sweep": _SHOWN,
    "trace": (
        ("profile", "profile import {trace} -f json"),
        ("profile table", "profile import {trace} -f md"),
        ("page", "profile import {trace} -f html"),
    ),
    "history": (
        ("add", "history add history commits/*"),
        ("steps", "history show history --format json"),
        ("suspects", "history suspects history --format json"),
        ("site", "report history -o {out}/site", "{out}/site/*.html"),
    ),
    "all": (("site", "report runs/* -o {out}/site", "{out}/site/**/*.html", "{out}/site/site.json"),),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--freeze", type=Path, metavar="FILE", help="write the figures of one checkout there")
    parser.add_argument("--data", type=Path, help="a checkout whose stored runs both sides read")
    parser.add_argument("places", nargs="+", type=Path, metavar="CHECKOUT")
    options = parser.parse_args()
    *old, new = options.places
    figures = figures_of(new, options.data or new, READINGS)
    if options.freeze:
        text = json.dumps(figures, sort_keys=True, separators=(",", ":"))
        options.freeze.write_bytes(lzma.compress(text.encode(), preset=9))
        return 0
    if old[0].is_file():
        return compare(json.loads(lzma.decompress(old[0].read_bytes())), figures)
    readings = {kind: tuple((n, _as_before(c), *files) for n, c, *files in some) for kind, some in READINGS.items()}
    return compare(figures_of(old[0], options.data or old[0], readings), figures)


def _as_before(command: str) -> str:
    """As commit 7b09c06 spells the command."""
    if command.startswith(("compare", "profile")):
        return command
    return command.replace("--format json", "--json").replace("--format md", "--markdown")


def compare(old: Figures, new: Figures) -> int:
    """Prints every difference and their number; the exit code."""
    of_bytes = {path for path, value in new.items() if value == OF_BYTES}
    of_bytes |= {path for path, value in old.items() if value == OF_BYTES}
    old = {_renamed(path): RENAMED_VALUES.get(str(value), value) for path, value in old.items()}
    old, new = (_shown(figures) for figures in (old, new))
    old, new = ({p: v for p, v in f.items() if p.partition("#")[0] not in of_bytes} for f in (old, new))
    both = old.keys() & new.keys()
    differences = [f"gone: {p}: {old[p]!r}" for p in old.keys() - both if not any(re.search(g, p) for g in GONE)]
    differences += [f"new: {p}: {new[p]!r}" for p in new.keys() - both if not any(re.search(a, p) for a in ADDED)]
    differences += [f"changed: {p}: {old[p]!r} -> {new[p]!r}" for p in both if not _is_same(old[p], new[p])]
    print(*sorted(differences), sep="\n", end="\n" if differences else "")
    print(f"{len(both)} figures compared, {len(differences)} differences")
    return int(bool(differences) or not both)


def _shown(figures: Figures) -> Figures:
    """A page is the set of numbers in its tables and charts: where they are on it is a matter of layout."""
    shown: Figures = {}
    for path, value in figures.items():
        page, is_page, place = path.partition(".html/")
        if not is_page:
            shown[path] = value
        elif (
            isinstance(value, (int, float)) and not isinstance(value, bool) and not place.endswith(("cells", "length"))
        ):
            shown[f"{page}.html/shows {value:.9g}"] = True
        elif isinstance(value, str) and NUMBER.fullmatch(value):
            shown[f"{page}.html/shows {value}"] = True
    return shown


def _renamed(path: str) -> str:
    for pattern, new in RENAMED.items():
        path = re.sub(pattern, new, path)
    return path


def _is_same(a: object, b: object) -> bool:
    return a == b or (a != a and b != b)  # not a number, twice


if __name__ == "__main__":
    sys.exit(main())
