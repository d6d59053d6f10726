"""Silence lm-eval's progress bars and warnings, for `--quiet`; errors are still logged."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from tqdm import tqdm


@contextmanager
def lm_eval_noise(is_heard: bool) -> Iterator[None]:
    """Wraps all calls of lm-eval, which has no option for either. No tqdm bar is drawn in this process, and only errors
    are logged."""
    if is_heard:
        yield
        return
    import lm_eval.evaluator

    draw, commit_hash = tqdm.__init__, lm_eval.evaluator.get_git_commit_hash

    def draw_nothing(bar: tqdm, *args: object, **options: object) -> None:
        draw(bar, *args, **options | {"disable": True})

    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        tqdm.__init__ = draw_nothing
        # The commit is a field of its results that we do not read; outside a checkout git complains.
        lm_eval.evaluator.get_git_commit_hash = lambda: None
        yield
    finally:
        tqdm.__init__, lm_eval.evaluator.get_git_commit_hash = draw, commit_hash
        logging.disable(disabled)
