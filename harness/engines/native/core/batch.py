"""The layout of one step: which rows belong to which request.

Legend: B requests, Q = K+1 rows a request in a decode round, T rows in all, N rows with logits, R = B * Q.

Every phase works on a StepBatch, whatever the step; layouts.py makes them.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass, field

from torch import Tensor

from specbench.harness.engines.native.core.forward import EAGER, Runners
from specbench.harness.engines.native.core.sampler import Mode, SamplingMode
from specbench.harness.engines.native.models.forward import AttentionPart, ForwardBatch
from specbench.kernels.attention.base import AttentionMetadata
from specbench.kernels.buffers import Outcome, PassRows, Rows
from specbench.kernels.commit import NUM_STATUS_COLUMNS


@dataclass(slots=True)
class Work:
    """Results that one phase leaves for the next.

    Whatever passes from the target's part to the drafter's, or from the first pass to the later ones, is in tensors
    that persist with a decode layout, because those parts may be launched differently (one captured, the other not).
    """

    features_TF: Tensor | None = None  # persistent in decode layouts
    hidden_TH: Tensor | None = None
    draft_state_BH: Tensor | None = None  # persistent in decode layouts
    next_state_BH: Tensor | None = None
    num_draft_rows: int = 0  # rows of the drafter's first pass


@dataclass(slots=True, kw_only=True)
class StepBatch:
    """One step's rows, their acceptance, and the inputs of each pass."""

    num_requests: int
    num_rows: int
    rows: Rows
    outcome: Outcome
    next_rows: PassRows  # one row a request: the drafter's later passes
    next_cu_q_B1: Tensor
    cu_q_B1: Tensor  # int32
    logit_row_N: Tensor | None  # int64; None: every row has logits, Q of each request
    advance_B: Tensor | None  # int32: prompt tokens that become computed before acceptance; None in decode rounds
    num_decodes: int  # requests that bring decode_q rows each; they come first
    decode_q: int
    max_chunk: int  # rows of the longest prompt chunk
    max_kv: int
    q_lens: tuple[int, ...]  # rows of each request, padding included
    chunk_cu_q_B1: Tensor | None = None  # int32: first rows of the chunks, counted from the first chunk's
    spread_R: Tensor | None = None  # int64: of N, each request's Q rows; only a decode has Q different ones
    host_part: tuple[Tensor, ...] = ()  # of a mixed step: what the host writes; fields above are views of it
    runners: Runners = EAGER
    mode: Mode = SamplingMode.GREEDY  # what its requests ask for at most
    slots: tuple[int, ...] = ()  # slots of the real requests, in order
    work: Work = field(default_factory=Work)
    _forwards: dict[tuple[str, int], ForwardBatch] = field(default_factory=dict)
    _bounds: dict[str, int] = field(default_factory=dict)  # by drafter part: most keys, where the host has read it

    @property
    def num_drafts(self) -> int:
        """Drafts per request: verified in this step, and made by it."""
        return self.decode_q - 1

    @property
    def most_emitted(self) -> int:
        """Tokens that a request can get."""
        return self.outcome.status_BX.shape[1] - NUM_STATUS_COLUMNS

    def target_forward(self) -> ForwardBatch:
        """The rows of the target's pass: uniform decodes first, followed by ragged prompt chunks."""
        return self._kept("target", 0, lambda: self._step_rows(self.max_kv))

    def drafter_forward(self) -> ForwardBatch:
        """The same rows for the drafter, with separate metadata: backends plan for one model's heads."""
        return self._kept("first", 0, lambda: self._step_rows(self.bound_of("first")))

    def draft_step_forward(self, step: int) -> ForwardBatch:
        """One row per request: the later pass number `step` of a chain drafter."""
        return self._kept("later", step, self._one_row_each)

    def _kept(self, kind: str, step: int, make: Callable[[], ForwardBatch]) -> ForwardBatch:
        """One ForwardBatch for each pass of the layout, so that anything a backend planned or captured over it stays
        valid."""
        if (kind, step) not in self._forwards:
            self._forwards[kind, step] = make()
        return self._forwards[kind, step]

    def bound_drafter(self, parts: Set[str], longest: int) -> None:
        """Tells the launches of these drafter parts that no request has more than `longest` tokens with KV. Captured
        parts must not be among them, because their graphs would keep the bound of the round in which they were
        captured."""
        most = min(longest + 2 * self.decode_q, self.max_kv)
        self._bounds = dict.fromkeys(parts, most)
        for (kind, _), forward in self._forwards.items():
            if kind in parts:
                for part in forward.parts:
                    part.meta.max_kv = most

    def bound_of(self, part: str) -> int:
        """Maximum keys of a request in a drafter part (first or later)."""
        return self._bounds.get(part, self.max_kv)

    def _step_rows(self, max_kv: int) -> ForwardBatch:
        decode_kv_len_B = self.rows.kv_len_B[: self.num_decodes]
        parts = self.parts(self.decode_q, self.cu_q_B1, decode_kv_len_B, max_kv, self.rows.tree_mask_BDD)
        return ForwardBatch.over(self.rows, *parts)

    def parts(
        self, q: int, cu_q_B1: Tensor, decode_kv_len_B: Tensor, max_kv: int, mask_BQM: Tensor | None = None
    ) -> list[AttentionPart]:
        """Attention of a pass with `q` rows per decode, which are uniform, followed by the ragged prompt chunks.
        `cu_q_B1` [at least num_decodes + 1]: the first rows of the decodes."""
        decodes, table_BP = self.num_decodes, self.rows.block_table_BP
        parts = []
        if decodes:
            meta = AttentionMetadata.uniform(
                cu_q_B1[: decodes + 1], decode_kv_len_B, table_BP[:decodes], q=q, max_kv=max_kv, mask_BQM=mask_BQM
            )
            parts.append(AttentionPart(0, decodes * q, meta))
        if decodes < self.num_requests:
            assert self.chunk_cu_q_B1 is not None
            kv_len_B = self.rows.kv_len_B[decodes:]
            meta = AttentionMetadata.ragged(
                self.chunk_cu_q_B1, kv_len_B, table_BP[decodes:], max_q=self.max_chunk, max_kv=max_kv
            )
            parts.append(AttentionPart(decodes * q, self.num_rows - decodes * self.decode_q, meta))
        return parts

    def _one_row_each(self) -> ForwardBatch:
        meta = AttentionMetadata.uniform(
            self.next_cu_q_B1,
            self.next_rows.kv_len_B,
            self.rows.block_table_BP,
            q=1,
            max_kv=self.bound_of("later"),
        )
        return ForwardBatch.over(self.next_rows, AttentionPart(0, self.num_requests, meta))
