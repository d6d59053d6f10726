"""state_update=torch says and counts what state_update=fused does, in whole runs."""

from __future__ import annotations

import pytest
from toy.engines import decode_rows, generate, make_engine, named_strategy, outputs, request
from toy.plans import Plan
from toy.prompts import text_prompt

from specbench.harness.engines.native.core.engine import Engine
from specbench.harness.engines.native.core.synthetic import SyntheticAcceptance
from specbench.kernels.state_update import StateUpdate
from specbench.kernels.torch_update import TorchStateUpdate

STRATEGIES = {
    "no-spec": ("no-spec", {}),
    "eagle": ("eagle", dict(k="4", head="random")),
    "eagle-1": ("eagle", dict(k="3", head="random-eagle1")),
    "naive-eagle": ("naive-eagle", dict(k="2", head="random")),
    "parallel-eagle": ("parallel-eagle", dict(k="3", head="random")),
    "draft-model": ("draft-model", dict(k="4", draft="self:1")),
}


def _run(plan: Plan, name: str, update: StateUpdate, forced: bool) -> Engine:
    kind, options = STRATEGIES[name]
    strategy = named_strategy(kind, **options)
    acceptance = SyntheticAcceptance((0.8, 0.6, 0.4, 0.3)[: strategy.num_drafts], "varied") if forced else None
    return make_engine(plan, strategy, acceptance=acceptance, update=update, page_size=3, max_num_batched_tokens=9)


@pytest.mark.parametrize(
    ("name", "forced"),
    [(name, forced) for name in STRATEGIES for forced in (False, True) if name != "no-spec" or not forced],
)
def test_both_updates_agree_in_whole_runs(plan, name, forced):
    seen = []
    for update in (StateUpdate(), TorchStateUpdate()):
        requests = [
            request(i, text_prompt(i, n), max_tokens=20, temperature=0.7 * (i % 2), seed=i, stop_token_ids=(101,))
            for i, n in enumerate((1, 2, 7, 19, 12))
        ]
        engine = _run(plan, name, update, forced)
        finished = generate(engine, requests)
        accepted = sorted((r.request_id, r.step, r.num_accepted, r.num_emitted) for r in decode_rows(engine))
        seen.append((outputs(finished), {i: r.finish_reason for i, r in finished.items()}, accepted))
    assert seen[0] == seen[1]
