"""Builds the example site: the runs that are stored here, the Benchmarks page, and whatever runs are given besides.

PYTHONPATH=.ns python benchmarks/example_site.py [RUNS...] -o site/
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks_page import benchmarks_page
from kept import HERE

from specbench.reports.site.build import Built, build_site

STORED = (*sorted((HERE / "runs").iterdir()), HERE / "engines")


def build(runs: list[Path], output: Path) -> Built:
    return build_site([*runs, *STORED], output, more=lambda found: [benchmarks_page(found)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="*", type=Path)
    parser.add_argument("-o", "--output", type=Path, default=Path("site"))
    given = parser.parse_args()
    built = build(given.runs, given.output)
    for problem in built.problems:
        print(f"problem: {problem.reason}")
    print(built.index)


if __name__ == "__main__":
    main()
