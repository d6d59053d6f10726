"""lm-eval without its bars and remarks, for `--quiet`: what anybody logs as an error is still said."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType

from tqdm import tqdm


@contextmanager
def lm_eval_noise(is_heard: bool) -> Iterator[None]:
    """Around all that calls lm-eval. Where it is not heard, this process draws no tqdm bar and logs errors only.

    lm-eval has no options for either: its bars are drawn always, and a logger without a handler says its warnings.
    """
    if is_heard:
        yield
        return
    import lm_eval.evaluator

    with ExitStack() as stack:
        stack.callback(logging.disable, logging.root.manager.disable)
        logging.disable(logging.WARNING)
        draws = tqdm.__init__

        def draws_nothing(bar: tqdm, *args: object, **options: object) -> None:
            draws(bar, *args, **options | {"disable": True})

        _replace(stack, tqdm, "__init__", draws_nothing)
        # For a field of its results that nobody reads here; outside a checkout git says that it is none.
        _replace(stack, lm_eval.evaluator, "get_git_commit_hash", lambda: None)
        yield


def _replace(stack: ExitStack, owner: type | ModuleType, name: str, value: object) -> None:
    """Until the stack is left."""
    stack.callback(setattr, owner, name, getattr(owner, name))
    setattr(owner, name, value)
