"""specbench from Python: measure, compare, and read what was measured.

    import specbench

    run = specbench.run(strategy=["no-spec", "ngram:k=4"], dataset_name="sharegpt-held-out", num_prompts=20)
    print(run.table()[["tps", "speedup", "acceptance_length"]])
    steps = specbench.open_run("runs/20260101T000000Z-run-1a2b3c4d").steps

Importing it loads neither torch nor pandas; the first call that needs them does.
"""

from pathlib import Path

if __name__ != "specbench":
    raise ImportError("harness/api is installed as the package `specbench`; import that")

# An editable install knows only this folder as `specbench`; what lies below is linked in the checkout's `.ns`.
_links = Path(__file__).resolve().parents[2] / ".ns" / "specbench"
if _links.is_dir() and str(_links) not in __path__:
    __path__.append(str(_links))

from specbench.harness.run.progress import NullProgress, Progress  # noqa: E402
from specbench.harness.spec.commands import SweepOptions  # noqa: E402
from specbench.harness.spec.options import RunOptions  # noqa: E402

from .measure import ab, run, sweep  # noqa: E402
from .results import AbResult, Run, Sweep, open_ab, open_run, open_sweep  # noqa: E402

__all__ = [
    "AbResult",
    "NullProgress",
    "Progress",
    "Run",
    "RunOptions",
    "Sweep",
    "SweepOptions",
    "ab",
    "open_ab",
    "open_run",
    "open_sweep",
    "run",
    "sweep",
]
