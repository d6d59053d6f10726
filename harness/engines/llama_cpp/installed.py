"""The llama.cpp of this machine: its server, and its converter of models and heads."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from specbench.harness.engines.process.log_tail import LONGEST
from specbench.workloads.assets.cache import cache_root

_CONVERTER = Path("sources/vendor/llama.cpp/convert_hf_to_gguf.py")
_CONVERT_S = 1800
_OUT_TYPES = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Installed:
    """`converter`: None if llama-server came without one; models must then be .gguf files. `packages`: the converter's
    dependencies beyond ours."""

    binary: Path
    converter: Path | None
    packages: Path

    def as_gguf(self, model: Path, dtype: str, target: Path | None = None) -> Path:
        """A model's directory as a file, converted once and kept in the cache; `target`: of a head.

        ValueError if it cannot be converted.
        """
        if model.suffix == ".gguf":
            return model
        if self.converter is None:
            raise ValueError(
                f"model: {model} is not allowed; allowed: a .gguf file, since {self.binary} comes without a converter; "
                "`make engines ENGINE=llama.cpp` installs one"
            )
        of = f"{model.resolve()} {_stamp(model)} {target.resolve() if target else ''} {dtype}"
        folder = cache_root() / "gguf"
        made = folder / f"{model.name}-{hashlib.sha256(of.encode()).hexdigest()[:12]}.gguf"
        if not made.exists():
            folder.mkdir(parents=True, exist_ok=True)
            self._convert(model, made, dtype, target)
        return made

    def _convert(self, model: Path, made: Path, dtype: str, target: Path | None) -> None:
        part = made.with_suffix(f".{os.getpid()}.part")
        command = [sys.executable, str(self.converter), str(model), "--outfile", str(part)]
        command += [
            "--outtype",
            _OUT_TYPES.get(dtype, "auto"),
            *(["--target-model-dir", str(target)] if target else []),
        ]
        try:
            environment = {**os.environ, "PYTHONPATH": str(self.packages)}
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_CONVERT_S)
            if done.returncode:
                last = (done.stderr.strip().splitlines() or ["it wrote nothing"])[-1]
                raise ValueError(f"model: llama.cpp cannot convert {model}: {last[:LONGEST]}")
            part.rename(made)
        finally:
            part.unlink(missing_ok=True)


def find(given: str) -> Installed:
    """`given`: a directory made by `make engines ENGINE=llama.cpp`, a llama-server, or nothing: the one in PATH.

    ValueError where there is none.
    """
    path = Path(given or shutil.which("llama-server") or "llama-server").expanduser()
    binary = path / "bin" / "llama-server" if path.is_dir() else path
    if not (binary.is_file() and os.access(binary, os.X_OK)):
        raise ValueError(
            f"python: {given or 'PATH'!r} has no llama-server; `make engines ENGINE=llama.cpp` makes one: "
            "--engine-python .engines/llama.cpp"
        )
    root = binary.absolute().parent.parent
    converter = root / _CONVERTER
    return Installed(
        binary=binary.absolute(), converter=converter if converter.is_file() else None, packages=root / "packages"
    )


def _stamp(model: Path) -> str:
    """Identifies the files of a directory, so that a changed model is converted again."""
    return " ".join(
        f"{p.name}:{p.stat().st_size}:{p.stat().st_mtime_ns}" for p in sorted(model.iterdir()) if p.is_file()
    )
