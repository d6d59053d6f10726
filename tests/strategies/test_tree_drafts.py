"""Conformance 46, 50: the engine's paged tree drafter builds the trees that a dense EAGLE-3 and a plain search build.

Features come from transformers, the head's tensors from the checkpoint; the reference recomputes every path from
scratch, so that a row that saw another branch's keys would be noticed. Acceptance is forced to vary.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
import torch
from kernels.tree_oracle import Node, OracleTree, arrays, grow
from torch import Tensor
from toy.checkpoints import eagle3_config, llama_config, load_written, write_eagle3, write_llama
from toy.draft_rounds import varied_acceptance, varied_requests
from toy.eagle3_reference import Eagle3Reference, _rms_norm
from toy.engines import decode_rows, generate, make_engine, named_strategy
from toy.plans import Plan

from specbench.harness.engines.native.core.engine import Engine

TARGET = llama_config(num_hidden_layers=8)
NEAR_TIE = 1e-4


class TreeReference(Eagle3Reference):
    """The reference's logits behind any path of drafts."""

    def logits_after(self, features_TF: Tensor, context: Sequence[int], path: Sequence[int]) -> list[float]:
        """`path`: draft ids from the root's child on."""
        hidden_TH = self._project(features_TF)
        ids, positions = list(context[1:]), list(range(len(context) - 1))
        for token in [*path, None]:
            out_H = self._layer(hidden_TH, ids, positions)[-1]
            normed_H = _rms_norm(out_H, self.tensors["norm.weight"], self.config["rms_norm_eps"])
            if token is None:
                return (self.tensors["lm_head.weight"] @ normed_H).tolist()
            state_H = normed_H if self.config.get("norm_output") else out_H
            hidden_TH = torch.cat([hidden_TH, state_H[None]])
            ids.append(self.target_id(token))
            positions.append(positions[-1] + 1)
        raise AssertionError("unreachable")

    def target_id(self, token: int) -> int:
        return token + (int(self.tensors["d2t"][token]) if "d2t" in self.tensors else 0)

    def tree(self, features_TF: Tensor, context: Sequence[int], topk: int, depth: int) -> OracleTree:
        def logits_of(node: Node | None) -> list[float]:
            return self.logits_after(features_TF, context, [n.token for n in node.path] if node else [])

        return grow(topk, depth, logits_of)


def _sharpen(tensors: dict[str, Tensor]) -> None:
    """Attention that depends on positions as a trained head's does, and drafts that are far from alike."""
    tensors["midlayer.self_attn.q_proj.weight"] *= 6
    tensors["lm_head.weight"] *= 4


def _reference(folder: Path, target_folder: Path, variant: dict) -> TreeReference:
    config = eagle3_config(**variant)
    tensors = write_eagle3(folder, config, TARGET, change=_sharpen)
    return TreeReference(tensors, config, write_llama(target_folder, TARGET)["model.embed_tokens.weight"])


def _engine(plan: Plan, head: Path, target_folder: Path, name: str, options: dict, depth: int, **config) -> Engine:
    target, strategy = load_written(target_folder, plan.device), named_strategy(name, **options, head=head)
    return make_engine(plan, strategy, target=target, acceptance=varied_acceptance(depth), **config)


_requests = partial(varied_requests, max_tokens=16)


def _tree_of(engine: Engine, slot: int) -> tuple[list, list, list, list]:
    tree = engine.state.tree
    assert tree is not None
    tensors = (engine.state.drafts_SK, tree.parent_SD, tree.depth_SD, tree.mask_SDD)
    return tuple(t[slot].tolist() for t in tensors)  # type: ignore[return-value]


def _gap(tree: OracleTree, size: int, topk: int) -> float:
    """The least distance between a candidate that was taken and one that was not, in the tree or for a frontier."""
    scores = sorted((node.score for node in tree.candidates), reverse=True)
    gaps = [scores[size - 2] - scores[size - 1]] if size <= len(scores) else []
    for level, frontier in enumerate(tree.frontiers):
        first = 0 if level == 0 else topk + (level - 1) * topk**2
        group = sorted((n.score for n in tree.candidates[first : topk + level * topk**2]), reverse=True)
        order = [node.score for node in frontier] + group[topk : topk + 1]
        gaps += [a - b for a, b in zip(order, order[1:], strict=False)]
    return min(gaps, default=1.0)


def _compare(engine: Engine, reference: TreeReference, features, requests) -> tuple[int, int, int]:
    """Runs the requests; trees compared, trees that differ beyond a near-tie, rows whose ancestors changed places."""
    shape = engine.strategy.tree
    assert shape is not None
    counts = [0, 0, 0]

    def look(engine: Engine) -> None:
        for r in engine.scheduler.running:
            if r.is_prefilling:
                continue
            context = [*r.prompt_ids, *r.output_ids]
            tree = reference.tree(features(context[:-1]), context, shape.topk, shape.depth)
            drafts, *rest = arrays(tree.nodes(shape.num_nodes))
            wanted = ([reference.target_id(token) for token in drafts], *rest)
            counts[0] += 1
            is_close = _gap(tree, shape.num_nodes, shape.topk) < NEAR_TIE
            counts[1] += _tree_of(engine, r.slot) != wanted and not is_close
            counts[2] += sum(a.row != n.row for level in tree.frontiers for n in level for a in n.path)

    generate(engine, requests, after_step=look)
    return counts[0], counts[1], counts[2]


VARIANTS = {
    "published": {},
    "whole-vocabulary": dict(draft_vocab_size=128),
    "norm-output": dict(norm_output=True),
    "other-width": dict(hidden_size=96, target_hidden_size=64, norm_before_residual=True),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_c46_c50_trees_are_those_of_the_reference(single_plan, target_folder, features, tmp_path, variant):
    reference = _reference(tmp_path, target_folder, VARIANTS[variant])
    options = dict(topk=3, num_steps=4, num_draft_tokens=12)
    engine = _engine(single_plan, tmp_path, target_folder, "eagle-topk", options, depth=4)
    compared, different, crossed = _compare(engine, reference, features, _requests())
    assert compared > 15 and different == 0
    assert crossed > 0, "no frontier row ever descended from another row"
    accepted = {r.num_accepted for r in decode_rows(engine)}
    assert len(accepted) >= 3, "acceptance must have varied"


@pytest.mark.parametrize(
    ("topk", "depth", "size"), [(1, 3, 4), (4, 1, 4), (2, 2, 7), (4, 3, 30)], ids=["chain", "flat", "whole", "wide"]
)
@pytest.mark.parametrize(("page_size", "budget"), [(1, 64), (4, 5), (16, 64)])
def test_c46_shapes_pages_and_chunks(
    single_plan, target_folder, features, tmp_path, topk, depth, size, page_size, budget
):
    reference = _reference(tmp_path, target_folder, {})
    options = dict(topk=topk, num_steps=depth, num_draft_tokens=size)
    config = dict(page_size=page_size, max_num_batched_tokens=max(budget, size + 1), max_num_seqs=3)
    engine = _engine(single_plan, tmp_path, target_folder, "eagle-topk", options, depth=depth, **config)
    compared, different, _ = _compare(engine, reference, features, _requests()[1:4])
    assert compared > 10 and different == 0


def test_c46_preempted_requests_draft_as_before(single_plan, target_folder, features, tmp_path):
    reference = _reference(tmp_path, target_folder, {})
    options = dict(topk=2, num_steps=3, num_draft_tokens=8)
    requests = _requests()
    engine = _engine(
        single_plan, tmp_path, target_folder, "eagle-topk", options, depth=3, num_pages=24, max_model_len=64
    )
    compared, different, _ = _compare(engine, reference, features, requests)
    assert compared > 15 and different == 0 and sum(r.num_preemptions for r in requests) > 0


def test_c47_a_tree_without_branches_drafts_as_the_chain(single_plan, target_folder, tmp_path):
    _reference(tmp_path, target_folder, {})
    seen = []
    for name, options in (("eagle", dict(k=4)), ("eagle-topk", dict(topk=1, num_steps=4, num_draft_tokens=5))):
        engine = _engine(single_plan, tmp_path, target_folder, name, options, depth=4)
        drafts: list[list[int]] = []

        def look(engine: Engine, drafts: list[list[int]] = drafts) -> None:
            drafts += [engine.state.drafts_SK[r.slot].tolist() for r in engine.scheduler.running if not r.is_prefilling]

        generate(engine, _requests(), after_step=look)
        seen.append(drafts)
    assert len(seen[0]) > 15 and seen[0] == seen[1]


def test_c50_keys_of_a_rows_own_earlier_rows_would_be_noticed(
    single_plan, target_folder, features, tmp_path, monkeypatch
):
    """Slot-per-row drafting (a row sees its own rows of earlier levels) gives other trees where rows cross."""
    from specbench.strategies import tree_drafter

    reference = _reference(tmp_path, target_folder, {})
    options = dict(topk=3, num_steps=4, num_draft_tokens=12)
    exact = tree_drafter.expand_tree

    def own_rows(logits_RV, d2t_V, pool, level):
        exact(logits_RV, d2t_V, pool, level)
        for mask_BkM in pool.masks:
            k = pool.topk
            mask_BkM.copy_(torch.eye(k, dtype=torch.bool, device=mask_BkM.device).repeat(1, mask_BkM.shape[2] // k))

    monkeypatch.setattr(tree_drafter, "expand_tree", own_rows)
    engine = _engine(single_plan, tmp_path, target_folder, "eagle-topk", options, depth=4)
    compared, different, _ = _compare(engine, reference, features, _requests())
    assert different > 0.2 * compared
