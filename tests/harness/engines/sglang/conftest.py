"""A virtual environment with the package that answers as SGLang does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import toy

FAKE = Path(toy.__file__).with_name("fake_sglang")


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sglang-venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "fake_sglang.pth").write_text(f"{FAKE}\n")
    about = site / "sglang-0.5.16.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: sglang\nVersion: 0.5.16\n")
    return folder
