"""Traces of real engines on an H200, as harness/profiling/golden/README.md tells them apart."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path

from specbench.harness.profiling.analysis import analyse_trace
from specbench.harness.profiling.record import Profile
from specbench.harness.profiling.rules import PhaseRules

GOLDEN = Path(__file__).parent / "harness" / "profiling" / "golden"


def unpacked(name: str, folder: Path) -> Path:
    """`name` below golden/; a file that can be imported."""
    packed, path = (GOLDEN / name).read_bytes(), folder / Path(name).name.removesuffix(".xz").removesuffix(".gz")
    path.write_bytes(lzma.decompress(packed) if name.endswith(".xz") else gzip.decompress(packed))
    return path


def analysed(name: str, folder: Path, **claims: str) -> Profile:
    return analyse_trace(unpacked(name, folder), rules=PhaseRules.shipped(), claims=claims)
