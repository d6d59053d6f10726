"""What may differ between revisions that run the same compiled parts."""

from __future__ import annotations

import pytest

from specbench.harness.engines.source.build_files import build_part, is_of_build


@pytest.mark.parametrize(
    "path",
    [
        *("csrc/attention/kernel.cu", "vllm/x.cpp", "include/a.H", "python/a/jit/b.cuh", "router/src/main.rs", "a.pyx"),
        *("CMakeLists.txt", "cmake/utils.py", "csrc/generate.py", "setup.py", "python/setup_rocm.py", "setup.cfg"),
        *("requirements.txt", "requirements-cuda.txt", "requirements/common.txt", "rust/Cargo.lock", ".gitmodules"),
    ],
)
def test_of_the_build(path):
    assert is_of_build(path)


@pytest.mark.parametrize(
    "path",
    [
        *("vllm/v1/core/scheduler.py", "vllm/model_executor/fused_moe/configs/E=8.json", "docs/setup.md", "LICENSE"),
        *(
            "tests/test_setup.py",
            "vllm/requirements.py",
            "vllm/csrc.py",
            "docker/Dockerfile",
            "pyproject.toml",
            "x.pyi",
        ),
    ],
)
def test_not_of_the_build(path):
    assert not is_of_build(path)


@pytest.mark.parametrize(
    ("more", "is_same"),
    [
        ("[tool.ruff]\nline-length = 120", True),
        ('[tool.pytest.ini_options]\naddopts = "-q"', True),
        ('[tool.setuptools_scm]\nversion_file = "x"', False),
        ('[build-system]\nrequires = ["cmake"]', False),
    ],
)
def test_of_pyproject_the_tools_that_build_nothing_may_differ(more, is_same):
    text = '[project]\nname = "engine"\ndependencies = ["torch==2"]\n'
    assert (build_part(text) == build_part(text + more)) is is_same
    assert build_part(text) != build_part(text.replace("==2", "==3"))
