"""Faults on purpose, one of each kind that a certificate must catch: each breaks an engine that was right."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

import torch
from safetensors.torch import load_file
from toy.compare import dense_pass
from toy.eagle3_reference import Eagle3Reference
from toy.few_words import FewWords

from specbench.harness.engines.native.core import round as engine_round
from specbench.harness.engines.native.core.batch import StepBatch
from specbench.harness.engines.native.core.engine import Engine
from specbench.harness.engines.native.core.request import Request
from specbench.harness.engines.native.core.sampler import Mode
from specbench.harness.quality.certificate.acceptance import Round

Fault = Callable[[Engine], None]


def no_compaction(engine: Engine) -> None:
    """Keys of an accepted tree path stay where verification put them: later rounds read rejected ones."""
    engine.builder._compact = lambda b: None  # type: ignore[method-assign]


def _shift_kv_len(engine: Engine, by: int) -> None:
    advance = engine.builder._advance

    def shifted(b: StepBatch) -> None:
        advance(b)
        if b.logit_row_N is None:  # decode rounds
            b.rows.kv_len_B.add_(by)

    engine.builder._advance = shifted  # type: ignore[method-assign]


def rejected_keys_read(engine: Engine) -> None:
    """Every row of a verification sees one key too many, the last one a rejected draft's."""
    _shift_kv_len(engine, 1)


def stale_length(engine: Engine) -> None:
    """A verification runs with lengths one too small, as metadata of an earlier launch would give them."""
    _shift_kv_len(engine, -1)


def late_metadata(engine: Engine) -> None:
    """Attention gets the lengths of the round before, as from a graph's own copy that is refreshed too late."""
    advance = engine.builder._advance

    def late(b: StepBatch) -> None:
        before_B = b.rows.kv_len_B.clone()
        advance(b)
        if b.logit_row_N is None:  # decode rounds: their layout persists, and may be captured
            b.rows.kv_len_B.copy_(torch.maximum(before_B, b.rows.q_len_B))

    engine.builder._advance = late  # type: ignore[method-assign]


def one_token_short(engine: Engine) -> None:
    """Requests end a token early."""
    fields = engine.state._fields
    engine.state._fields = lambda request, limit: fields(request, limit - 1)  # type: ignore[method-assign]


def drafts_not_verified(engine: Engine) -> None:
    """The first draft counts as accepted whatever the target says."""
    update = engine.builder.update

    class Credulous:
        def __getattr__(self, name: str):
            return getattr(update, name)

        def accept_chain(self, sampled_BQ, rows, slots, *rest):
            draft_B = slots.drafts_SK[rows.slot_B, 0]
            sampled_BQ[:, 0] = torch.where(rows.num_drafts_B > 0, draft_B, sampled_BQ[:, 0])
            update.accept_chain(sampled_BQ, rows, slots, *rest)

    engine.builder.update = Credulous()  # type: ignore[assignment]


def lenient_acceptance(engine: Engine, within: float) -> None:
    """Greedy: a draft counts as accepted where its logit is within `within` of the best ("typical acceptance")."""
    update, target, accept = engine.builder.update, engine.builder.target, engine.builder._accept
    seen: list[torch.Tensor] = []
    spread: list[torch.Tensor | None] = []

    class Noted:
        def __getattr__(self, name: str):
            return getattr(target, name)

        def logits(self, hidden_RH):
            seen[:] = [target.logits(hidden_RH)]
            return seen[0]

    def noted(b: StepBatch, mode: Mode) -> None:
        spread[:] = [b.spread_R]
        accept(b, mode)

    class Lenient:
        def __getattr__(self, name: str):
            return getattr(update, name)

        def accept_chain(self, sampled_BQ, rows, slots, *rest):
            drafts_BK, num_drafts_B = slots.drafts_SK[rows.slot_B], rows.num_drafts_B
            logits_RV = seen[0] if spread[0] is None else seen[0].index_select(0, spread[0])
            logits_BKV = logits_RV.view(*sampled_BQ.shape, -1)[:, :-1].float()
            below_BK = logits_BKV.amax(-1) - logits_BKV.gather(2, drafts_BK.clamp(min=0).long().unsqueeze(2)).squeeze(2)
            good_BK = (below_BK <= within) & (drafts_BK >= 0) & (num_drafts_B > 0).unsqueeze(1)
            sampled_BQ[:, :-1] = torch.where(good_BK, drafts_BK, sampled_BQ[:, :-1])
            update.accept_chain(sampled_BQ, rows, slots, *rest)

    engine.builder.target, engine.builder._accept = Noted(), noted  # type: ignore[assignment,method-assign]
    engine.builder.update = Lenient()  # type: ignore[assignment]


def drafter_position(engine: Engine) -> None:
    """The later passes of the drafter run one position too far."""
    drafter = engine.drafter
    update = drafter._update  # type: ignore[union-attr]

    class Shifted:
        def __getattr__(self, name: str):
            return getattr(update, name)

        def draft_next_rows(self, out, *rest):
            update.draft_next_rows(out, *rest)
            out.position_T.add_(1)

    drafter._update = Shifted()  # type: ignore[union-attr]


def wrong_d2t(engine: Engine) -> None:
    """Draft ids become other target ids: offsets as if they were shifted by one draft id."""
    weights = engine.drafter.model.weights  # type: ignore[union-attr]
    ids = weights.d2t_Vd + torch.arange(len(weights.d2t_Vd))
    weights.d2t_Vd = ids.roll(1) - torch.arange(len(ids))


def padding_rows_write(engine: Engine) -> None:
    """Padding rows of the drafter's first pass store their keys and values in a request's first page."""
    drafter = engine.drafter
    first = drafter._draft_first  # type: ignore[union-attr]

    def writing(b: StepBatch) -> None:
        first(b)
        cache, pages = drafter._cache, b.rows.block_table_BP[:, 0].long()  # type: ignore[union-attr]
        cache.k[pages] = 4.0
        cache.v[pages] = 4.0

    drafter._draft_first = writing  # type: ignore[union-attr,method-assign]


def padding_rows_share_a_page(engine: Engine) -> None:
    """Padding rows of the drafter's first pass keep their keys and values where the first request has its prompt's.

    Only rounds padded to a captured size have such rows.
    """
    drafter, state = engine.drafter, engine.state
    first = drafter._draft_first  # type: ignore[union-attr]

    def writing(b: StepBatch) -> None:
        if b.logit_row_N is None:
            is_padding_T = b.rows.slot_B[b.rows.row_req_T] == state.dummy_slot
            page_slot_T = b.rows.block_table_BP[0, 0].long() * state.page_size + b.rows.row_off_T
            b.rows.kv_slot_T.copy_(torch.where(is_padding_T, page_slot_T, b.rows.kv_slot_T))
        first(b)

    drafter._draft_first = writing  # type: ignore[union-attr,method-assign]


def biased(sample_rows: Callable) -> Callable:
    """A sampler that draws as if the temperature were a quarter lower."""
    return lambda logits_RV, *rest: sample_rows(logits_RV * 1.33, *rest)


def bias_sampler(monkeypatch) -> None:
    """Every engine made from now on has it: no-spec too."""
    monkeypatch.setattr(engine_round, "sample_rows", biased(engine_round.sample_rows))


def reference_rounds(
    few: FewWords, requests: Sequence[Request], texts: Mapping[int, Sequence[int]], k: int
) -> dict[int, list[Round]]:
    """What an independent dense EAGLE-3 head has accepted in greedy rounds.

    `texts`: the target's own continuation of each request, at least k tokens longer than its max_tokens.
    """
    target = few.target("cpu")
    config = json.loads((few.head / "config.json").read_text())
    head = Eagle3Reference(load_file(few.head / "model.safetensors"), config, target.embed_VH)
    return {r.id: list(_rounds(target, head, r, texts[r.id], k)) for r in requests}


def _rounds(target, head: Eagle3Reference, request: Request, text: Sequence[int], k: int):
    at = 1  # the prompt's own step says the first token
    while at < request.sampling.max_tokens:
        context = [*request.prompt_ids, *text[:at]]
        features_TF = dense_pass(target, context[:-1], features=True)[1]
        drafts, _ = head.drafts(features_TF, context, k)
        accepted = next((i for i, draft in enumerate(drafts) if draft != text[at + i]), k)
        emitted = min(accepted + 1, request.sampling.max_tokens - at)
        yield Round(at, k, accepted, emitted)
        at += emitted
