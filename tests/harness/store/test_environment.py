import json
import os
import subprocess
import sys
from pathlib import Path

from specbench.harness.store.environment import (
    Cpu,
    Environment,
    GitState,
    Hardware,
    allowed_variables,
    collect_environment,
    git_state,
    parse_gpus,
)
from specbench.harness.store.files import to_plain

ROOT = Path(__file__).resolve().parents[3]


def test_environment_is_plain_and_names_what_figures_depend_on():
    environment = json.loads(json.dumps(to_plain(collect_environment()), allow_nan=False))
    assert environment["hardware"]["cpu"]["logical_cores"] >= 1
    assert environment["software"]["packages"]["torch"] and environment["software"]["python"]
    assert environment["threads"]["torch_intra_op"] >= 1


def test_only_listed_variables_are_recorded():
    others = {"HF_TOKEN": "secret", "HOME": "/x", "TRITON_CACHE_DIR": "/home/someone", "TRITON_API_TOKEN": "secret"}
    found = allowed_variables({**others, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "2"})
    assert found == {"OMP_NUM_THREADS": "2", "TRITON_INTERPRET": "1"}


def test_no_git_state_outside_a_checkout_nor_from_another_project(tmp_path):
    assert git_state(tmp_path) is None
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    assert git_state(tmp_path) is None
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "specbench-harness"\n')
    state = git_state(tmp_path)
    assert state is not None and state.sha is None and state.dirty is True


def test_local_changes_are_told_apart_by_the_code_that_they_make(tmp_path):
    """Edits and new files do; what is not code, a file that git ignores and the same edit again do not."""
    checkout = small_checkout(tmp_path)
    clean = git_state(checkout)
    assert clean is not None and clean.dirty is False and clean.changes == "" and clean.revision == clean.sha
    file, states = checkout / "kernels" / "one.py", []
    for text in ("x = 2\n", "x = 3\n"):
        file.write_text(text)
        states.append(git_state(checkout))
    (checkout / "kernels" / "new.py").write_text("y = 1\n")
    states.append(git_state(checkout))
    (checkout / "notes.txt").write_text("not code")
    (checkout / "kernels" / "one.pyc").write_text("ignored")
    assert git_state(checkout) == states[-1]
    assert len({state.changes for state in states}) == 3 and all(state.changes and state.dirty for state in states)
    (checkout / "kernels" / "new.py").unlink()
    assert git_state(checkout) == states[1], "also with notes"
    assert states[1].revision == f"{clean.sha}+{states[1].changes}"
    assert states[1].describe() == f"{clean.sha} with local changes ({states[1].changes})"


def test_a_state_of_an_older_record_has_no_hash_of_its_changes():
    state = GitState(sha="a" * 40, dirty=True)
    assert state.revision == "a" * 40 + "+" and state.describe() == "a" * 40 + " with local changes"
    assert GitState().revision == "" and GitState().describe() == "no commit"


def small_checkout(folder: Path) -> Path:
    """A commit of one file of code."""
    (folder / "kernels").mkdir()
    (folder / "kernels" / "one.py").write_text("x = 1\n")
    (folder / ".ns" / "specbench").mkdir(parents=True)
    (folder / ".ns" / "specbench" / "kernels").symlink_to("../../kernels")
    (folder / "pyproject.toml").write_text('[project]\nname = "specbench-harness"\n')
    (folder / ".gitignore").write_text("*.pyc\n")
    for words in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-q", "-m", "first")):
        subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@t", *words], check=True, cwd=folder)
    return folder


def test_names_that_are_not_utf8_are_no_error(tmp_path):
    """Of files in the checkout, and in what the project around an installed copy says of itself."""
    checkout = small_checkout(tmp_path)
    (tmp_path / "kernels" / os.fsdecode(b"caf\xe9.py")).write_text("x = 1\n")
    subprocess.run(["git", "config", "core.quotepath", "false"], check=True, cwd=checkout)
    state = git_state(checkout)
    assert state is not None and state.dirty and state.changes
    (tmp_path / "pyproject.toml").write_bytes(b'[project]\nname = "other"\nauthors = ["Andr\xe9"]\n')
    assert git_state(checkout) is None


def test_gpu_lines_with_unknown_values():
    gpus = parse_gpus("NVIDIA H200, 143771, 580.65.06, 1980, 700.00\nNVIDIA H200, [N/A], 580.65.06, 1980, [N/A]\n")
    assert gpus[0].memory_bytes == 143771 * 2**20 and gpus[1].memory_bytes is None
    environment = Environment(hardware=Hardware(gpus=gpus, cpu=Cpu(model="Xeon", logical_cores=16)))
    assert environment.describe_hardware() == "2x NVIDIA H200, Xeon (16 logical cores)"
    assert Environment().describe_hardware() == "unknown hardware"


def test_measuring_modules_and_reports_do_not_import_torch():
    modules = (
        "harness.metrics.metrics",
        "harness.store.run_directory",
        "harness.cli.show",
        "harness.cli.env",
        "reports.terminal",
    )
    code = (
        "import sys; "
        + "; ".join(f"import specbench.{name}" for name in modules)
        + "; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": str(ROOT / ".ns")})
