"""Which folder may import which: the table of the design, enforced over every import statement of the package."""

from __future__ import annotations

import ast
import runpy
import subprocess
import sys
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("kernels", "workloads", "harness", "strategies", "reports")

# What a folder may import of ours besides itself, as module prefixes. Strategies and reports are named to the harness
# by its registry and imported there lazily; only the command line and the Python API may import reports.
_TOP = ("harness/cli", "harness/api")
ALLOWED: dict[str, tuple[str, ...]] = {
    "kernels": (),
    "workloads": (),
    "harness": ("kernels", "workloads"),
    "harness/cli": ("kernels", "workloads", "strategies", "reports"),
    "harness/api": ("kernels", "workloads", "strategies", "reports"),
    "strategies": (
        "kernels",
        # The engine's protocol: what a strategy is given, and the layouts that its passes run over.
        *(f"harness.engines.native.core.{n}" for n in ("strategy", "batch", "host_view", "planning", "state")),
        *(f"harness.engines.native.core.{n}" for n in ("tree", "draft_counts", "upload")),
        *(f"harness.engines.native.models.{n}" for n in ("features", "forward", "llama")),
    ),
    # What was measured, and what was made of it: never what measures.
    "reports": (
        "harness.judge",
        "harness.metrics",
        "harness.stats",
        "harness.store",
        "harness.profiling.record",
        "harness.profiling.profile_file",
        "harness.registry",
        "harness.exit_codes",
        "harness.text",
        "harness.roofline.machines",
        "harness.roofline.of_run",
        "harness.spec.table_records",
        "workloads.assets.cache",
        "workloads.json_values",
    ),
}


# Our own engine, behind the interface of harness/engines/base.py; and the files that may look behind it.
NATIVE = ("harness.engines.native",)
BEHIND_THE_INTERFACE = (
    "harness/engines/native/",
    "harness/training/",
    "harness/roofline/",
    # `specbench list` shows the support matrix, which asks the readers of config.json what they take.
    "harness/cli/list.py",
    # The published shapes, which other engines get as a config.json.
    "harness/engines/served/model.py",
    # The certificate's fp32 reference: the target's own weights, multiplied without the engine.
    *(f"harness/quality/certificate/{n}.py" for n in ("certify", "distribution", "scores", "session", "texts")),
    "harness/quality/certificate/tolerance.py",
)


def _rule(path: Path) -> str:
    relative = path.relative_to(ROOT).as_posix()
    return next((rule for rule in _TOP if relative.startswith(f"{rule}/")), relative.split("/")[0])


def _imports(path: Path) -> Iterator[tuple[int, str]]:
    """(line, module below `specbench.`) of every import of ours, relative ones resolved; inside functions too."""
    package = path.relative_to(ROOT).parent.parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = list(package[: len(package) - node.level + 1]) if node.level else []
            module = ".".join([*(["specbench", *base] if node.level else []), *([node.module] if node.module else [])])
            # `from specbench.harness.engines.native.core import engine` names a module by its alias.
            names = [module, *(f"{module}.{alias.name}" for alias in node.names)]
        else:
            continue
        for name in names:
            if name == "specbench" or name.startswith("specbench."):
                yield node.lineno, name.removeprefix("specbench").removeprefix(".")


def _violations(path: Path) -> list[str]:
    rule = _rule(path)
    own = rule.split("/")[0]
    found = []
    for line, module in _imports(path):
        prefixes = (own, *ALLOWED[rule])
        # A package above an allowed module (`specbench.harness.engine`) is no import of its own when an alias follows.
        is_parent = any(p.startswith(f"{module}.") for p in prefixes) or module == ""
        if not is_parent and not any(module == p or module.startswith(f"{p}.") for p in prefixes):
            found.append(f"{path.relative_to(ROOT)}:{line} imports specbench.{module}")
    return found


def _is_in(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == p or module.startswith(f"{p}.") for p in packages)


def _looks_behind(path: Path) -> list[str]:
    relative = path.relative_to(ROOT).as_posix()
    if relative.startswith(BEHIND_THE_INTERFACE):
        return []
    return [
        f"{relative}:{line} imports specbench.{module}" for line, module in _imports(path) if _is_in(module, NATIVE)
    ]


def test_our_own_engine_is_one_of_several():
    """Runs, experiments, judges, reports and commands see the interface; what can look behind it is listed above."""
    files = [path for folder in ("harness", "reports", "workloads") for path in sorted((ROOT / folder).rglob("*.py"))]
    assert not [found for path in files for found in _looks_behind(path)]
    unused = [name for name in BEHIND_THE_INTERFACE if not (ROOT / name).exists()]
    assert not unused, "a file that has moved takes its leave with it"


@pytest.mark.parametrize(
    ("where", "code", "bad"),
    [
        ("harness/run/x.py", "from specbench.harness.engines.native.core.request import Request", True),
        (
            "harness/experiments/x.py",
            "def f():\n    from specbench.harness.engines.native.models.llama import LlamaModel",
            True,
        ),
        ("harness/cli/x.py", "import specbench.harness.engines.native.adapter", True),
        ("harness/judge/x.py", "from ..engines.native.core import batch", True),
        ("harness/run/x.py", "from specbench.harness.engines.base import Engine", False),
        ("harness/training/x.py", "from specbench.harness.engines.native.core.request import Request", False),
        (
            "harness/quality/certificate/scores.py",
            "from specbench.harness.engines.native.models.llama import LlamaModel",
            False,
        ),
    ],
)
def test_that_check_itself(tmp_path, monkeypatch, where, code, bad):
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    path = tmp_path / where
    path.parent.mkdir(parents=True)
    path.write_text(code)
    assert bool(_looks_behind(path)) is bad


@pytest.mark.parametrize("folder", FOLDERS)
def test_imports_point_in_the_allowed_directions(folder):
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files
    assert not [v for path in files for v in _violations(path)]


def _packages() -> list[Path]:
    """Folders with Python files, below the root folders (which have no __init__.py: tests/test_layout.py)."""
    folders = {path.parent for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")}
    return sorted(folders - {ROOT / folder for folder in FOLDERS} - {ROOT / "harness/api"})


def _imported_files() -> dict[Path, set[Path]]:
    """By file of ours: the other files of ours that it imports, inside functions too."""
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    homes = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in files}
    return {path: {homes[module] for _, module in _imports(path) if module in homes} - {path} for path in files}


def _importers() -> dict[Path, set[str]]:
    """By package: the other packages whose files import one of its files."""
    importers: dict[Path, set[str]] = {package: set() for package in _packages()}
    for path, imported in _imported_files().items():
        for home in {file.parent for file in imported} - {path.parent, *path.parents}:
            importers.setdefault(home, set()).add(path.parent.relative_to(ROOT).as_posix())
    return importers


def _package(path: Path) -> str:
    """A root folder, a folder of harness, or one engine: what lies below it is its own affair."""
    parts = path.relative_to(ROOT).parent.parts
    depth = {"harness": 3 if parts[1:2] == ("engines",) else 2}.get(parts[0], 1)
    return "/".join(parts[:depth])


def _circle(imported: Mapping[Any, set[Any]]) -> list[Any]:
    """The first circle of imports, or nothing."""
    try:
        TopologicalSorter(imported).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def _circles() -> list[Any]:
    """The first circle of files and the first one of packages."""
    files = _imported_files()
    packages: dict[str, set[str]] = {}
    for path, imported in files.items():
        packages.setdefault(_package(path), set()).update({_package(file) for file in imported} - {_package(path)})
    return _circle(files) + _circle(packages)


def test_there_is_no_circle_of_imports():
    assert not _circles()


@pytest.mark.parametrize(
    ("files", "bad"),
    [
        ({"kernels/a.py": "from .b import f", "kernels/b.py": "def f():\n    from .a import g"}, True),
        ({"harness/run/a.py": "import specbench.harness.store.b", "harness/store/b.py": "from ..run import c"}, True),
        ({"harness/engines/a.py": "from .native import b", "harness/engines/native/b.py": "from .. import c"}, True),
        ({"reports/a.py": "from .run import b", "reports/run/b.py": "from .. import c"}, False),
    ],
)
def test_that_circles_are_found(tmp_path, monkeypatch, files, bad):
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    for where, code in ({"harness/run/c.py": "", "harness/engines/c.py": "", "reports/c.py": ""} | files).items():
        (tmp_path / where).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / where).write_text(code)
    assert bool(_circles()) is bad


def test_every_package_says_what_it_holds_and_who_imports_it():
    """`Imported by:` names packages or folders above them; each importer is covered, and each name has an importer."""
    importers = _importers()
    for package in _packages():
        about = ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""
        holds, _, by = about.partition("\n\nImported by: ")
        assert holds and by, package
        named = [] if by == "nothing of ours." else by.rstrip(".").replace("\n", " ").split(", ")
        covered = {name: {user for user in importers[package] if f"{user}/".startswith(f"{name}/")} for name in named}
        inside = {user for user in importers[package] if user.startswith(package.relative_to(ROOT).as_posix())}
        assert set().union(*covered.values(), inside) == importers[package], (package, importers[package])
        assert all(covered.values()), (package, covered)


@pytest.mark.parametrize("folder", ["harness/experiments", "harness/run", "harness/api"])
def test_what_measures_prints_nothing(folder):
    """So that the command line and the Python API stand on the same code."""
    for path in (ROOT / folder).rglob("*.py"):
        imported = {word for line in path.read_text().splitlines() if "import " in line for word in line.split()[1:2]}
        assert not {name.partition(".")[0] for name in imported} & {"typer", "rich", "click"}, path


@pytest.mark.parametrize(
    ("where", "code", "bad"),
    [
        ("kernels/x.py", "from specbench.harness.engines.native.core import batch", True),
        ("kernels/x.py", "from specbench.kernels.philox import uniform", False),
        ("kernels/attention/x.py", "from .base import A\nfrom ..philox import uniform", False),
        ("harness/engines/native/core/x.py", "from specbench.strategies.eagle import Eagle", True),
        ("harness/engines/native/core/x.py", "def f():\n    import specbench.reports.terminal", True),
        ("harness/cli/x.py", "from specbench.reports.terminal import f", False),
        ("harness/metrics/x.py", "from ...reports import table", True),
        ("strategies/x.py", "from specbench.harness.engines.native.core.engine import Engine", True),
        ("strategies/x.py", "from specbench.harness.engines.native.core.state import RoundState", False),
        ("strategies/x.py", "from specbench.harness.engines.native.core import engine", True),
        ("reports/x.py", "from specbench.harness.metrics.metrics import f", False),
        ("reports/x.py", "from specbench.harness.profiling.record import Profile", False),
        ("reports/x.py", "from specbench.harness.profiling.rules import Rule", True),
        ("reports/x.py", "from specbench.harness.engines.native.core.request import R", True),
        ("workloads/x.py", "import specbench.kernels.sample", True),
    ],
)
def test_the_check_itself(tmp_path, monkeypatch, where, code, bad):
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    path = tmp_path / where
    path.parent.mkdir(parents=True)
    path.write_text(code)
    assert bool(_violations(path)) is bad


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("specbench.harness.registry", "torch"),
        ("specbench.harness.spec.legality", "torch"),
        ("specbench.harness.store.sweep_directory", "torch"),
        ("specbench.reports.terminal", "torch"),
        ("specbench.reports.site.build", "matplotlib"),
        ("specbench.reports.site.build", "torch"),
        ("specbench", "torch"),
        ("specbench", "pandas"),
    ],
)
def test_light_modules_do_not_load_heavy_ones(module, heavy):
    """`specbench list`, `show`, `report` and `--help` start without them."""
    code = f"import sys, {module}; sys.exit({heavy!r} in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(ROOT / ".ns"), "PATH": "/usr/bin"}, check=False
    )
    assert done.returncode == 0


def test_toml_is_read_on_the_oldest_python_too(monkeypatch):
    """Python 3.10 has no tomllib; the package tomli is required there."""
    tomli = ModuleType("tomli")
    monkeypatch.setitem(sys.modules, "tomli", tomli)
    monkeypatch.setattr(sys, "version_info", (3, 10))
    assert runpy.run_path(str(ROOT / "workloads" / "guarded.py"))["tomllib"] is tomli
