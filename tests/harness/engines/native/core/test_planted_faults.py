"""Conformance tests see a planted fault each: the test itself is called, its engines broken in one way.

More of them, beside the tests that see them: test_edit_faults.py (7, 17, 18), test_logprobs.py (19),
test_sampled_drafts.py (13), test_cannot_occur.py (45), strategies/test_draft_model.py (23) and
strategies/test_eagle3_drafts.py (60, 64). Which check of a certificate sees which fault: quality/fault_table.py.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest
import torch
from engines.native.core import test_acceptance as acceptance
from engines.native.core import test_paging as paging
from engines.native.core import test_sampling as sampling
from engines.native.core import test_shapes as shapes
from engines.native.core import test_stopping as stopping
from quality import faults
from strategies import test_tree_outputs as trees
from toy.engines import make_engine
from toy.oracle import continuations
from toy.plans import CPU

from specbench.harness.engines.native.core.engine import Engine


class _Update:
    """The engine's own state update; `before` is called with what an acceptance gets."""

    def __init__(self, engine: Engine, before: Callable):
        self._real, self._before = engine.builder.update, before

    def __getattr__(self, name: str):
        return getattr(self._real, name)

    def accept_chain(self, sampled_BQ, rows, slots, *rest):
        self._before(sampled_BQ, rows, slots)
        self._real.accept_chain(sampled_BQ, rows, slots, *rest)


def _last_draft_lost(engine: Engine) -> None:
    def lose(sampled_BQ, rows, slots):
        slots.drafts_SK[:, -1] = -1

    engine.builder.update = _Update(engine, lose)  # type: ignore[assignment]


def _a_stop_id_needs_no_verification(engine: Engine) -> None:
    def take(sampled_BQ, rows, slots):
        draft_B1 = slots.drafts_SK[rows.slot_B, :1]
        is_stop_B = (draft_B1 == slots.stop_SE[rows.slot_B]).any(1) & (draft_B1[:, 0] >= 0)
        sampled_BQ[:, 0] = torch.where(is_stop_B & (rows.num_drafts_B > 0), draft_B1[:, 0], sampled_BQ[:, 0])

    engine.builder.update = _Update(engine, take)  # type: ignore[assignment]


def _after_assign(change: Callable[[Engine, int], object]) -> faults.Fault:
    def plant(engine: Engine) -> None:
        assign = engine.state.assign

        def broken(requests, max_model_len):
            assign(requests, max_model_len)
            for request in requests:
                change(engine, request.slot)

        engine.state.assign = broken  # type: ignore[method-assign]

    return plant


def _no_drafts_from_prompts(engine: Engine) -> None:
    launch = engine.launcher.launch_mixed

    def without(*arguments, **named):
        found = launch(*arguments, **named)
        engine.state.drafts_SK.fill_(-1)
        return found

    engine.launcher.launch_mixed = without  # type: ignore[method-assign]


def _pages_in_a_row(engine: Engine) -> None:
    add = engine.state.add_pages

    def in_a_row(slot, first, pages):
        start = min(pages[0], engine._num_pages - len(pages))
        add(slot, first, list(range(start, start + len(pages))))

    engine.state.add_pages = in_a_row  # type: ignore[method-assign]


def _pages_are_kept(engine: Engine) -> None:
    engine.allocator.free = lambda pages: None  # type: ignore[method-assign]


_stops_unknown = _after_assign(lambda engine, slot: engine.state.stop_SE[slot].fill_(-1))
_one_seed = _after_assign(lambda engine, slot: engine.state.seed_S[slot].fill_(7))
_hot = _after_assign(lambda engine, slot: engine.state.temperature_S[slot].fill_(2.0))
_oracles = lambda plan, temperature: continuations(plan, acceptance._requests(temperature))  # noqa: E731
_tree = trees._cases(28)[4]

# By the beginning of the test's name: its module, its arguments, what is broken.
FAULTS: dict[str, tuple[ModuleType, tuple, faults.Fault]] = {
    "c01": (acceptance, (CPU, ("random", 0.0, 3), _oracles), faults.drafts_not_verified),
    "c02": (acceptance, (CPU, _oracles, 3, 0.0), _last_draft_lost),
    "c03": (acceptance, (CPU, _oracles, 4, 0.8), faults.drafts_not_verified),
    "c04": (acceptance, (CPU, _oracles, "random", 2), _last_draft_lost),
    "c05": (stopping, (CPU, "perfect"), _stops_unknown),
    "c06": (stopping, (CPU,), _a_stop_id_needs_no_verification),
    "c09": (stopping, (CPU, "perfect"), faults.one_token_short),
    "c10_a_drafter": (stopping, (CPU, 3), faults.one_token_short),
    "c14": (sampling, (CPU, "cycling"), _hot),
    "c15_seeded": (sampling, (CPU, 1, 3, "ngram"), _one_seed),
    "c24": (shapes, (CPU, 5, "eagle"), faults.late_metadata),
    "c28_c29": (shapes, (CPU, "scripted"), faults.late_metadata),
    "c33_c34": (shapes, (CPU, "scripted", 7), faults.stale_length),
    "c35": (shapes, (CPU, 4), _no_drafts_from_prompts),
    "c37": (paging, (CPU, 4, "eagle"), faults.stale_length),
    "c38_c39": (paging, (CPU, 4, "eagle"), faults.rejected_keys_read),
    "c40": (paging, (CPU, "scripted"), _pages_in_a_row),
    "c43_aborts": (paging, (CPU, "scripted", 2), _pages_are_kept),
    "c47_c48": (trees, (CPU, _tree), faults.no_compaction),
    "c57": (sampling, (CPU,), _one_seed),
}


@pytest.mark.parametrize("item", FAULTS)
def test_a_planted_fault_is_seen(monkeypatch, item):
    module, arguments, plant = FAULTS[item]
    (test,) = (value for name, value in vars(module).items() if name.startswith(f"test_{item}_"))

    def broken(*given, **named) -> Engine:
        engine = make_engine(*given, **named)
        plant(engine)
        return engine

    monkeypatch.setattr(module, "make_engine", broken)
    with pytest.raises(AssertionError):
        test(*arguments)
