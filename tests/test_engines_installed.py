"""What `make engines` would install: pinned by hash, and refused in one line where it cannot run."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

ENGINES = Path(__file__).resolve().parent.parent / ".ci" / "engines"


@pytest.mark.parametrize("pins", sorted(ENGINES.glob("*.txt")), ids=lambda path: path.stem)
def test_everything_is_pinned_by_version_and_hash(pins):
    text = re.sub(r"^#.*\n", "", pins.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    lines = text.splitlines()
    assert lines and not [x for x in lines if not re.fullmatch(r"[\w.-]+==[\w.]+ +--hash=sha256:[0-9a-f]{64}", x)]
    names = [line.partition("==")[0].lower().replace("_", "-") for line in lines]
    assert names == sorted(set(names)) and (ENGINES / f"{pins.stem}.sh").exists()


@pytest.mark.parametrize(
    ("flags", "python", "said"),
    [
        ("flags: fpu sse2", "python3.11", "needs AVX-512, which this machine does not have"),
        ("flags: avx512f", "no-such-python", "is pinned for Python 3.11; name one in ENGINE_PYTHON"),
    ],
)
def test_a_machine_that_cannot_run_vllm_is_told_in_one_line(tmp_path, flags, python, said):
    cpus = tmp_path / "cpuinfo"
    cpus.write_text(flags)
    environment = {"PATH": os.environ["PATH"], "CPUINFO": str(cpus), "ENGINE_PYTHON": python}
    script = [str(ENGINES / "vllm.sh"), str(tmp_path / "made")]
    done = subprocess.run(script, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 3 and done.stdout == "" and not (tmp_path / "made").exists()
    assert done.stderr == f"engines: vLLM for a CPU {said}\n"
