"""specbench from Python: measure, compare, and read results.

    import specbench

    run = specbench.run(strategy=["no-spec", "ngram:k=4"], dataset_name="sharegpt-held-out", num_prompts=20)
    print(run.table()[["tps", "speedup", "acceptance_length"]])
    steps = specbench.open_run("runs/20260101T000000Z-run-1a2b3c4d").steps

Importing it loads neither torch nor pandas; the first call that needs them does.
"""

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __name__ != "specbench":
    raise ImportError("harness/api is installed as the package `specbench`; import that")

# An editable install maps only this folder to `specbench`; its subpackages are linked in the checkout's `.ns`.
_links = Path(__file__).resolve().parents[2] / ".ns" / "specbench"
if _links.is_dir() and str(_links) not in __path__:
    __path__.append(str(_links))

_HOMES = {
    **dict.fromkeys(("NullProgress", "Progress"), "specbench.harness.run.progress"),
    "SweepOptions": "specbench.harness.spec.commands",
    "RunOptions": "specbench.harness.spec.options",
    **dict.fromkeys(("ab", "run", "sweep"), "specbench.measure"),
    **dict.fromkeys(("AbResult", "Run", "Sweep", "open_ab", "open_run", "open_sweep"), "specbench.results"),
}

if TYPE_CHECKING:
    from specbench.harness.run.progress import NullProgress, Progress
    from specbench.harness.spec.commands import SweepOptions
    from specbench.harness.spec.options import RunOptions

    from .measure import ab, run, sweep
    from .results import AbResult, Run, Sweep, open_ab, open_run, open_sweep

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


def __getattr__(name: str) -> Any:
    """Loads names at first use, because the command imports this package, too, and must handle Ctrl-C from the
    start."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
