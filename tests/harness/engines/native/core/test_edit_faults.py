"""Faults planted one by one in how logits are changed: the tests of test_logit_edits.py must see each of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from toy.by_hand import assert_by_hand
from toy.edits import FEATURES, requests_with, scripted
from toy.engines import generate, make_engine
from toy.plans import CPU

from specbench.harness.engines.native.core import edit_buffers
from specbench.harness.engines.native.core import logit_edits as module
from specbench.harness.engines.native.core import round as engine_round
from specbench.harness.engines.native.core import state as engine_state
from specbench.harness.engines.native.core.edit_buffers import Edit, EditBuffers

REAL = {
    name: getattr(module, name)
    for name in ("_penalize", "_sees_drafts", "ban_words", "edit_logits", "follow_drafts", "penalize")
}
BIAS = edit_buffers._bias
ASSIGN = EditBuffers.assign
FIELDS = edit_buffers.edit_fields


def _of_the_first_row(logits_RV, rows, position_R, state, edits):
    position_BQ = position_R.view(rows.slot_B.shape[0], -1)
    first_R = position_BQ[:, :1].expand_as(position_BQ).reshape(-1)
    return REAL["edit_logits"](logits_RV, rows, first_R, state, edits)


def _penalties_first(logits_RV, rows, position_R, state, edits):
    for each in (edits & {Edit.PENALTIES}, edits - {Edit.PENALTIES}):
        logits_RV = REAL["edit_logits"](logits_RV, rows, position_R, state, each)
    return logits_RV


def _whatever_the_sign(logits, prompt, output, repetition, frequency, presence):
    logits.copy_(torch.where((output > 0) | (prompt > 0).unsqueeze(1), logits / repetition.view(-1, 1, 1), logits))
    REAL["penalize"](logits, prompt, output, torch.ones_like(repetition), frequency, presence)


def _last_two(words_RWN):
    """Words of two tokens out of longer ones."""
    index = torch.arange(words_RWN.shape[2])
    return words_RWN.masked_fill(index < words_RWN.shape[2] - 2, -1)


def _in_order(rows, num_rows, state):
    """The nodes of a tree as if they were a chain."""
    index = torch.arange(num_rows)
    return (index[:-1] < index[:, None]).expand(rows.slot_B.shape[0], -1, -1) & (rows.num_drafts_B > 0)[:, None, None]


def _set(name: str, fault: Callable) -> Callable:
    return lambda patch: patch.setattr(edit_buffers if name == "_bias" else module, name, fault)


def _assign(fault: Callable) -> Callable:
    return lambda patch: patch.setattr(EditBuffers, "assign", fault)


def _fields(fault: Callable) -> Callable:
    return lambda patch: patch.setattr(engine_state, "edit_fields", fault)


FAULTS: dict[str, tuple[str, str, Callable]] = {
    "no row sees a draft": (
        "frequency",
        "perfect",
        _set("_sees_drafts", lambda *a: torch.zeros_like(REAL["_sees_drafts"](*a))),
    ),
    "every row sees all drafts": (
        "frequency",
        "perfect",
        _set("_sees_drafts", lambda *a: torch.ones_like(REAL["_sees_drafts"](*a))),
    ),
    "a row sees the draft behind it": (
        "repetition",
        "perfect",
        _set("_sees_drafts", lambda *a: REAL["_sees_drafts"](*a).roll(1, dims=1)),
    ),
    "branches of a tree see each other": ("encouraged", "tree", _set("_sees_drafts", _in_order)),
    "the pending token is not counted": (
        "frequency",
        "adversarial",
        _set("_penalize", lambda z, rows, at, state: REAL["_penalize"](z, rows, at - 1, state)),
    ),
    "frequency counts the prompt": (
        "frequency",
        "perfect",
        _fields(lambda s, n: FIELDS(s, 0)),
    ),
    "repetition leaves out the prompt": (
        "repetition",
        "perfect",
        _set("penalize", lambda z, prompt, *a: REAL["penalize"](z, torch.zeros_like(prompt), *a)),
    ),
    "presence counts every time": (
        "presence",
        "perfect",
        _set("penalize", lambda z, p, o, r, f, once: REAL["penalize"](z, p, o, r, f + once, once * 0)),
    ),
    "repetition divides negative logits too": ("repetition_below_0", "perfect", _set("penalize", _whatever_the_sign)),
    "penalties come before the bias": (
        "repetition_below_0",
        "perfect",
        lambda patch: patch.setattr(engine_round, "edit_logits", _penalties_first),
    ),
    "min-p at temperature 1": (
        "min_p",
        "perfect",
        _set("filter_min_p", lambda z, t, p, real=module.filter_min_p: real(z, (t > 0).float(), p)),
    ),
    "min tokens end one too early": (
        "min_tokens",
        "perfect",
        _fields(lambda s, n: FIELDS(replace(s, min_tokens=max(s.min_tokens - 1, 0)), n)),
    ),
    "min tokens by the round, not by the row": (
        "min_tokens",
        "perfect",
        lambda patch: patch.setattr(engine_round, "edit_logits", _of_the_first_row),
    ),
    "a bias in the neighbour's slot": (
        "logit_bias",
        "perfect",
        _assign(lambda self, slot, s: ASSIGN(self, (slot + 1) % 4, s)),
    ),
    "all ids are allowed": (
        "allowed",
        "perfect",
        _set("_bias", lambda s, v: BIAS(replace(s, allowed_token_ids=()), v)),
    ),
    "a bad word does not see the drafts": (
        "bad_words",
        "perfect",
        _set("follow_drafts", lambda n, depth, d, sees: REAL["follow_drafts"](n, depth * 0, d, sees)),
    ),
    "a bad word sees the drafts of other branches": ("bad_words", "tree", _set("_sees_drafts", _in_order)),
    "a bad word may begin in the prompt": (
        "bad_words",
        "perfect",
        _fields(lambda s, n: FIELDS(s, 0)),
    ),
    "of a bad word only the last two tokens count": (
        "bad_words",
        "perfect",
        _set("ban_words", lambda z, before, words: REAL["ban_words"](z, before, _last_two(words))),
    ),
    "a bad word is banned as a whole only": (
        "bad_words",
        "adversarial",
        _set("ban_words", lambda z, before, words: REAL["ban_words"](z, before.roll(1, 1), words)),
    ),
    "banned ids are only unlikely": (
        "banned",
        "adversarial",
        _set("_bias", lambda s, v: BIAS(s, v).clamp(min=-0.05)),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_seen(monkeypatch, fault):
    feature, script, plant = FAULTS[fault]
    requests = requests_with(FEATURES[feature], num=4)
    strategy = scripted(script, requests, CPU)
    plant(monkeypatch)
    engine = make_engine(CPU, strategy)
    finished = generate(engine, requests)
    with pytest.raises(AssertionError, match="behind the best|ended with|went on"):
        for done in finished.values():
            assert_by_hand(engine.target, done, engine.config.max_model_len)
