"""Conformance 20-22: reduced draft vocabularies, missing drafts and n-gram look-up, seen through the engine."""

from __future__ import annotations

import pytest
import torch
from toy.checkpoints import eagle3_config, llama_config, load_written, write_eagle3, write_llama
from toy.engines import decode_rows, generate, make_engine, named_strategy, request
from toy.oracle import assert_as_oracle, continuations
from toy.plans import CPU
from toy.prompts import text_prompt
from toy.scripted import PATTERNS, Script, Scripted

from specbench.harness.engines.native.core.engine import Engine


def running_drafts(engine: Engine) -> dict[int, list[int]]:
    """What each decoding request is offered next."""
    running = [r for r in engine.scheduler.running if not r.is_prefilling]
    return {r.id: engine.state.drafts_SK[r.slot].tolist() for r in running}


def test_c20_drafts_come_from_the_reduced_vocabulary_and_other_tokens_are_emitted_all_the_same(plan, tmp_path):
    write_llama(tmp_path / "target", llama_config())
    head = write_eagle3(tmp_path / "head", eagle3_config(), llama_config())
    reachable = set((head["d2t"] + torch.arange(48)).tolist())
    target = load_written(tmp_path / "target", plan.device)
    engine = make_engine(plan, named_strategy("eagle", k=3, head=tmp_path / "head"), target=target)
    plain = make_engine(CPU, target=load_written(tmp_path / "target"), max_num_seqs=1)
    requests = [request(i, text_prompt(i, 6 + i), max_tokens=40) for i in range(4)]
    oracle = {i: generate(plain, [request(i, text_prompt(i, 6 + i), max_tokens=40)])[i].output_ids for i in range(4)}
    seen: set[int] = set()

    def look(engine: Engine) -> None:
        if plan.sync == "single":
            seen.update(d for drafts in running_drafts(engine).values() for d in drafts)

    finished = generate(engine, requests, after_step=look)
    assert_as_oracle(engine, finished, oracle)
    assert seen <= reachable
    said = {t for done in finished.values() for t in done.output_ids}
    assert said - reachable, "no token outside the draft vocabulary was ever said; choose other weights"
    for row in decode_rows(engine):
        assert row.num_emitted <= row.num_accepted + 1
    for done in finished.values():
        rows = decode_rows(engine, done.id)
        at = 1
        for row in rows:  # the accepted ones of each round are draftable
            assert set(done.output_ids[at : at + row.num_accepted]) <= reachable
            at += row.num_emitted


@pytest.mark.parametrize("k", [1, 4, 8])
def test_c21_missing_drafts_are_rejected_and_never_looked_up(plan, k):
    requests = [request(i, text_prompt(i, 5 + 4 * i), max_tokens=24) for i in range(6)]
    oracle = continuations(plan, requests)
    engine = make_engine(plan, Scripted(k, Script.of(requests, oracle, PATTERNS["partly-empty"](k))))
    missing = []

    def look(engine: Engine) -> None:
        missing.append(-1 in engine.state.drafts_SK[:-1].flatten().tolist())
        for captured in engine.launcher.rounds():
            assert int(captured.batch.rows.ids_T.min()) >= 0

    assert_as_oracle(engine, generate(engine, requests, after_step=look), oracle)
    assert any(missing)


def lookup_drafts(context: list[int], k: int, min_n: int, max_n: int) -> list[int]:
    """The longest suffix that occurred earlier, the earliest of equals, and what followed it."""
    for n in range(min(max_n, len(context) - 1), min_n - 1, -1):
        suffix = context[-n:]
        for start in range(len(context) - n):
            if context[start : start + n] == suffix:
                follow = context[start + n : start + n + k]
                return follow + [-1] * (k - len(follow))
    return [-1] * k


def test_lookup_by_hand():
    assert lookup_drafts([1, 2, 3, 1, 2], 3, 1, 5) == [3, 1, 2]
    assert lookup_drafts([1, 2, 9, 2, 1, 2], 3, 1, 5) == [9, 2, 1]  # longest (1 2) before earliest (2)
    assert lookup_drafts([7, 8], 2, 1, 3) == [-1, -1]
    assert lookup_drafts([5, 5], 3, 1, 3) == [5, -1, -1]


@pytest.mark.parametrize("k", [1, 3, 8])
@pytest.mark.parametrize(("min_n", "max_n"), [(1, 1), (1, 4), (3, 5)])
def test_c22_ngram_drafts_are_those_of_a_brute_force_search(main_plan, k, min_n, max_n):
    """Prompts shorter than min_n, without a match, and drafting near the model's length among them."""
    if main_plan.sync != "single":
        pytest.skip("drafts are compared round by round, which needs the host to be up to date")
    lengths = [1, 2, 3, 30, 60, 100]
    requests = [request(i, text_prompt(100 + i, n), max_tokens=60) for i, n in enumerate(lengths)]
    oracle = continuations(main_plan, requests)
    engine = make_engine(main_plan, named_strategy("ngram", k=k, min_n=min_n, max_n=max_n), max_model_len=128)
    checked = []

    def look(engine: Engine) -> None:
        for r in engine.scheduler.running:
            if not r.is_prefilling:
                context = [*r.prompt_ids, *r.output_ids]
                drafts = engine.state.drafts_SK[r.slot].tolist()
                assert drafts == lookup_drafts(context, k, min_n, max_n), context
                checked.append(drafts[0] >= 0)

    assert_as_oracle(engine, generate(engine, requests, after_step=look), oracle)
    assert True in checked and False in checked


def test_c21_only_drafts_that_exist_count_as_proposed():
    """A look-up without a match offers nothing, so such rounds must not lower the acceptance rate."""
    requests = [request(i, text_prompt(i, 12), max_tokens=24) for i in range(3)]
    engine = make_engine(CPU, named_strategy("ngram", k=4, min_n=3))
    generate(engine, requests)
    rounds = [r for r in decode_rows(engine) if r.kind == "decode"]
    assert {r.num_proposed for r in rounds} >= {0, 4}
    assert all(r.num_accepted <= r.num_proposed for r in rounds)
