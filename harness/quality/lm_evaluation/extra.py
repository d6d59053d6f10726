"""lm-eval is optional: where it is missing, the user is told how to get it."""

from __future__ import annotations

from importlib.util import find_spec


def require_lm_eval() -> None:
    """ValueError with the command that installs it, where lm-eval is not there."""
    if find_spec("lm_eval") is None:
        raise ValueError(
            "accuracy: lm-eval is not installed; install it with: pip install 'specbench-harness[accuracy]'"
        )
