"""Checks that a folder has a usable EAGLE head for a target: first its files, then its acceptance.

A head that no engine can run is a ValueError of the loader. A head that runs but looks wrong is a problem in the
report: inconsistent maps, or features taken one layer off.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from specbench.harness.engines.native.models.eagle3 import Eagle3Head
from specbench.harness.engines.native.models.forward import run_pieces
from specbench.harness.engines.native.models.heads import check_head_files, load_head
from specbench.harness.engines.native.models.llama import LlamaModel
from specbench.harness.engines.native.models.rope import rope_table
from specbench.harness.engines.native.models.weights import CheckpointWeights
from specbench.workloads.assets.cache import Progress
from specbench.workloads.assets.head_source import head_folder

from .evaluate import Acceptance, acceptance_of, generate_with_head
from .frozen_target import DenseAttention, FrozenTarget

_MIN_ACCEPTANCE = 1.2  # a head below this is not worth running
_CLEAR_LEAD = 0.02  # lead in agreement from which another layer numbering counts as better


@dataclass(slots=True)
class HeadReport:
    """Result of a check. `agreement`: share of the target's greedy tokens that the head drafts, by the three layers."""

    head: str
    tensors: dict[str, str] = field(default_factory=dict)
    num_bytes: int = 0
    draft_vocab_size: int = 0
    aux_layers: tuple[int, ...] = ()
    agreement: dict[str, float] = field(default_factory=dict)
    acceptance: Acceptance | None = None
    problems: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.problems


def find_head(head: str, progress: Progress) -> Path:
    """The folder of `head`: a local one, a hub name or shipped:NAME. ValueError if it has no head."""
    check_head_files(head, "check-head", progress)
    return head_folder(head)


def check_files(head_dir: Path, target: LlamaModel) -> HeadReport:
    """Tensors, shapes, maps and aux layers. Raises ValueError for what cannot be loaded."""
    if not head_dir.is_dir():
        raise ValueError(f"head: {head_dir} is not a directory; give the folder of an EAGLE checkpoint")
    head = load_head(head_dir, target)
    report = HeadReport(head=head_dir.name, aux_layers=head.aux_layers if isinstance(head, Eagle3Head) else ())
    source = CheckpointWeights(head_dir, target.dtype, torch.device("cpu"))
    tensors = {name: source.raw(name) for name in source.names()}
    report.tensors = {
        name: f"{str(t.dtype).removeprefix('torch.')} {list(t.shape)}" for name, t in sorted(tensors.items())
    }
    report.num_bytes = sum(path.stat().st_size for path in head_dir.iterdir() if path.is_file())
    report.draft_vocab_size = head.weights.lm_head.out_features
    report.problems += _map_problems(tensors, target.config.vocab_size)
    return report


def _map_problems(tensors: dict[str, Tensor], vocab_size: int) -> list[str]:
    if "d2t" not in tensors:
        return []
    problems = []
    ids = tensors["d2t"].long() + torch.arange(tensors["d2t"].numel())
    if len(ids.unique()) != len(ids):
        problems.append("d2t maps two draft ids to one target id (are these ids instead of offsets?)")
    if "t2d" not in tensors:
        return [*problems, "t2d is missing: engines do not need it, training tools do"]
    t2d = tensors["t2d"]
    expected = torch.zeros(vocab_size, dtype=torch.bool).index_fill_(0, ids, True)
    if t2d.shape != expected.shape or not torch.equal(t2d.bool(), expected):
        problems.append("t2d does not mark exactly the target ids that d2t names")
    return problems


@torch.inference_mode()
def agreement(head: Eagle3Head, target: LlamaModel, sequences: list[tuple[list[int], int]], shift: int) -> float:
    """Share of the tokens after a prompt for which the head's first draft is right, with its features taken `shift`
    layers off. sequences: (ids, number of prompt ids)."""
    hits = total = 0
    max_tokens = max(len(ids) for ids, _ in sequences)
    layers = tuple(layer + shift for layer in head.aux_layers)
    frozen = FrozenTarget(target.with_aux_layers(layers), max_tokens)
    table = rope_table(head.config, max_tokens, target.device)
    for ids, num_prompt in sequences:
        ids_T = torch.tensor(ids, device=target.device)
        _, features_TF = frozen.states(ids_T.unsqueeze(0))
        hidden_TH = head.project(features_TF[:-1])
        output_TH = run_pieces(
            head.pieces(ids_T[1:], hidden_TH), DenseAttention(head.config, table, [head.weights.head_norm_2D], 1)
        )
        draft_T = head.logits_and_state(output_TH)[0].argmax(-1)
        draft_T = draft_T if head.d2t is None else draft_T + head.d2t[draft_T]
        same = draft_T[num_prompt - 1 : -1] == ids_T[num_prompt + 1 :]
        hits, total = hits + int(same.sum()), total + same.numel()
    return hits / max(total, 1)


def check_head(
    head_dir: Path,
    target: LlamaModel,
    prompts: list[tuple[int, ...]],
    stop_token_ids: tuple[int, ...],
    *,
    max_tokens: int = 64,
    k: int = 4,
) -> HeadReport:
    """Checks the files, then greedy acceptance over a few prompts and the layers that the head's features come from."""
    report = check_files(head_dir, target)
    requests = [(ids, max_tokens) for ids in prompts]
    done = generate_with_head(head_dir, target, requests, stop_token_ids, k, 0.0, 0, len(prompts))
    report.acceptance = acceptance_of(done.rounds, k, done.requests)
    if report.acceptance.length < _MIN_ACCEPTANCE:
        report.problems.append(
            f"acceptance length {report.acceptance.length:.2f} over {len(prompts)} prompts: almost nothing is "
            "accepted; was it trained for this target?"
        )
    sequences = [([*r.prompt_ids, *r.output_ids], len(r.prompt_ids)) for r in done.requests.values()]
    head = load_head(head_dir, target)
    if isinstance(head, Eagle3Head):
        _check_layers(report, head, target, [s for s in sequences if len(s[0]) >= s[1] + 2])
    return report


def _check_layers(
    report: HeadReport, head: Eagle3Head, target: LlamaModel, sequences: list[tuple[list[int], int]]
) -> None:
    layers = head.aux_layers
    if not sequences:
        return
    for shift in (-1, 0, 1):
        if min(layers) + shift >= 0 and max(layers) + shift <= target.config.num_layers:
            name = "/".join(str(layer + shift) for layer in layers)
            report.agreement[name] = agreement(head, target, sequences, shift)
    actual = report.agreement["/".join(map(str, layers))]
    best = max(report.agreement, key=lambda name: report.agreement[name])
    if report.agreement[best] > actual + _CLEAR_LEAD:
        report.problems.append(
            f"the head does better on states entering layers {best} ({report.agreement[best]:.2f}) than on those the "
            f"engine gives it ({actual:.2f}): it was trained with a different layer numbering"
        )
