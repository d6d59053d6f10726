"""The C files of this folder, compiled at first use by the C compiler of the machine; without one, torch's
operations do the same.

A decode round on a CPU is matrix products and some hundred small operations between them, each of which costs torch
more for its dispatch than for its arithmetic: in bfloat16, rope with the KV write takes 27 µs a layer, and 3 µs here.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from torch import Tensor

_SOURCES = tuple(Path(__file__).with_name(name) for name in ("few_rows.c", "attend.c", "products.c", "layers.c"))
_HEADER = Path(__file__).with_name("rows.h")
# Sums may be reordered, so that they become vector instructions; infinities and NaN stay what they are (no -ffast-math,
# which would also change how the whole process rounds).
_FLAGS = (
    "-O3 -march=native -fno-math-errno -fno-trapping-math -fassociative-math -fno-signed-zeros -shared -fPIC".split()
)
_TIMEOUT_S = 60
_P, _I, _F = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float
_ARGUMENTS = {
    "specbench_uniform": [*[_P] * 3, *[_I] * 3],
    "specbench_rms_norm": [*[_P] * 4, *[_I] * 5, _F],
    "specbench_silu_and_mul": [_P, _P, _I, _I, _I],
    "specbench_rope_store_kv": [*[_P] * 8, *[_I] * 5, _F],
    "specbench_attention": [*[_P] * 8, *[_I] * 11, _F, _I],
    "specbench_product": [*[_P] * 4, *[_I] * 4, _P, _I],
    "specbench_after_attention": [*[_P] * 8, *[_I] * 6, _F, _P, _I],
    "specbench_product_panel": [],
    "specbench_layers": [*[_P] * 12, *[_I] * 15, _F, _F, _P, _I],
}
WIDEST_HEAD = 256  # as in the file
MAX_ROWS = 256
"""Beyond these a second core pays, which only torch's operations use."""


def takes(rows: Tensor) -> bool:
    """Whether an operation on these rows of a step runs compiled: few, bfloat16, on a CPU, without gradients."""
    return (
        rows.dtype == torch.bfloat16
        and rows.device.type == "cpu"
        and 0 < rows.shape[0] <= MAX_ROWS
        and not rows.requires_grad
        and library() is not None
    )


@functools.cache
def compiler() -> str | None:
    """First line of the compiler's version; None: there is no compiler, or it cannot compile the file."""
    found = _compiler_path()
    if found is None or library() is None:
        return None
    return subprocess.run([found, "--version"], capture_output=True, text=True, timeout=_TIMEOUT_S).stdout.split("\n")[
        0
    ]


@functools.cache
def library() -> ctypes.CDLL | None:
    """The compiled functions; None where they cannot be had."""
    found = _compiler_path()
    if found is None or sys.platform == "win32":
        return None
    try:
        loaded = ctypes.CDLL(str(_built(found)))
    except (OSError, subprocess.SubprocessError):
        return None
    for name, arguments in _ARGUMENTS.items():
        getattr(loaded, name).argtypes = arguments
    return loaded


def _compiler_path() -> str | None:
    names = filter(None, (os.environ.get("CC"), "cc", "gcc", "clang"))
    return next(filter(None, map(shutil.which, names)), None)


def _built(found: str) -> Path:
    """The shared object in the cache of this user, made where it is missing."""
    root = Path(os.environ.get("SPECBENCH_CACHE") or Path.home() / ".cache" / "specbench").expanduser()
    sources = [source.read_text(encoding="utf-8") for source in (_HEADER, *_SOURCES)]
    of = "\n".join([*sources, *_FLAGS, found, platform.platform(), _cpu_flags()])
    target = root / "compiled" / f"few_rows-{hashlib.sha256(of.encode()).hexdigest()[:16]}.so"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".") as folder:
            made = Path(folder) / target.name
            command = [found, *_FLAGS, *map(str, _SOURCES), "-o", str(made), "-lm"]
            subprocess.run(command, capture_output=True, check=True, timeout=_TIMEOUT_S)
            os.replace(made, target)
    seen = target.stat()
    if seen.st_uid != os.getuid() or seen.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise OSError(f"{target}: other users can write it")  # it would be loaded into this process
    return target


def _cpu_flags() -> str:
    """A cache may lie on a disk that several machines share, and the code is made for one kind of processor."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(errors="replace").splitlines() if info.exists() else []
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")
