"""Finds or makes the launches of a step: decode rounds by batch size, mixed steps by number of rows."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence

import torch

from specbench.harness.engines.native.core.batch import StepBatch
from specbench.harness.engines.native.core.clock import EventClock, NullClock, PhaseClock
from specbench.harness.engines.native.core.config import EngineConfig
from specbench.harness.engines.native.core.forward import EagerForward, GraphPool, PiecewiseForward, Runners, warm_up
from specbench.harness.engines.native.core.graph_sizes import capture_sizes, most_captured_rows, row_sizes
from specbench.harness.engines.native.core.graphs import DecodeRound, GraphLaunch, Segment, split_round
from specbench.harness.engines.native.core.host_view import HostView
from specbench.harness.engines.native.core.layouts import MixedEntry, MixedLayout, decode_batch, mixed_batch
from specbench.harness.engines.native.core.round import RoundBuilder
from specbench.harness.engines.native.core.sampler import Mode
from specbench.harness.engines.native.core.state import RoundState
from specbench.harness.engines.ranges import NullRanges, Ranges
from specbench.harness.spec.plans import PLANS
from specbench.kernels.skinny_gemm import ROW_BLOCKS
from specbench.kernels.triton_support import use_triton

_PADDING_CHUNK = 8  # rows of a dummy request, at least


def q_of(state: RoundState) -> int:
    """Rows of a request in a decode round."""
    return state.drafts_SK.shape[1] + 1


def _lengths_to_meet(most: int) -> list[int]:
    """Powers of two up to `most`, and `most`: launches depend on how many blocks of keys the longest request has."""
    return sorted({most, *(1 << bit for bit in range(4, most.bit_length()))})


class Launcher:
    """Owns the graphs of one engine. All share one memory pool: they never run at the same time."""

    def __init__(
        self,
        config: EngineConfig,
        builder: RoundBuilder,
        capture_host: Callable[[StepBatch], HostView],
        draft_counts: Sequence[int],
    ):
        """`draft_counts`: the possible numbers of drafts of a round, ascending; each has its own graphs."""
        plan, state, max_num_seqs = config.graph, builder.state, config.max_num_seqs
        assert state.tree is None or plan.mixed != "full", "a tree mask needs uniform rows (legality.py)"
        self.plan = plan
        self._builder = builder
        self._state = state
        self._capture_host = capture_host
        # With sync=multi the host reads lengths in mid-round and bounds launches by them.
        self._lengths = _lengths_to_meet(config.max_model_len) if config.sync == "multi" else []
        self._max_num_seqs = max_num_seqs
        self._draft_counts = draft_counts
        self._sizes = capture_sizes(max_num_seqs) if plan.pads else []
        self._pool: GraphPool = torch.cuda.graph_pool_handle() if plan != PLANS["none"] else None
        self._all_rows = config.max_num_batched_tokens + max_num_seqs * q_of(state)
        self._mixed_sizes = row_sizes(min(self._all_rows, most_captured_rows(builder.target.config)))
        num_later = state.tree.shape.topk if state.tree else 1
        self._decode_runners = Runners(
            self._forward(plan.target, self._decode_rows(lambda k: k + 1)),
            self._forward(plan.first, self._decode_rows(builder.drafter.first_rows) if builder.drafter else []),
            self._forward(plan.later, self._decode_rows(lambda k: num_later)),
        )
        mixed = self._forward(plan.mixed, self._mixed_sizes)
        self._mixed_runners = Runners(mixed, mixed, mixed)
        self._rounds: dict[tuple[int, Mode, int], DecodeRound] = {}
        self._mixed_graphs: dict[tuple[int, Mode, int], GraphLaunch] = {}

    def _decode_rows(self, of_request: Callable[[int], int]) -> list[int]:
        """Row counts of a pass in decode rounds; `of_request`: its rows of a request, by the number of drafts."""
        return sorted({size * of_request(k) for size in capture_sizes(self._max_num_seqs) for k in self._draft_counts})

    def _forward(self, mode: str, sizes: Sequence[int]) -> EagerForward | PiecewiseForward:
        return PiecewiseForward(sizes, self._pool) if mode == "piecewise" else EagerForward()

    # -- decode rounds -----------------------------------------------------------------------------------------------

    def capture(self, modes: list[Mode]) -> None:
        """Captures every size for the given modes, largest first so that the smaller ones reuse its memory."""
        counts = self._draft_counts[::-1]
        for size in reversed(self._sizes):
            for mode in modes:
                for k in counts:
                    self.round_for(size, mode, k)
        if self.plan.mixed == "full":
            for size in reversed(self._mixed_sizes):
                for mode in modes:
                    for k in counts:
                        self._mixed_graph(size, mode, k)

        self._meet_rows(modes[0])

    def _meet_rows(self, mode: Mode) -> None:
        """Launches every row count once (and every length, if launches depend on lengths) over dummy requests, so that
        no set of graphs is captured, and no kernel compiled, inside a measured block."""
        if "piecewise" in self.plan.decode_modes or self._lengths:
            for size in reversed(capture_sizes(self._max_num_seqs)):
                for k in reversed(self._draft_counts):
                    self._launch_dummies(self.round_for(size, mode, k))
        for size in reversed(self._mixed_sizes_to_meet()):
            # No more requests than a real step has: each has a row of logits.
            chunk = max(_PADDING_CHUNK, -(-size // self._max_num_seqs))
            chunks = [chunk] * (size // chunk) + [size % chunk]
            entries = [MixedEntry(self._state.dummy_slot, c, True, False, c, is_padding=True) for c in chunks if c]
            self.launch_mixed(entries, mode, NullRanges(), self._capture_host)
        if use_triton(self._state.n_S):
            # Beside these prompts, the decodes of real steps have K+1 rows of logits each.
            target, most = self._builder.target, self._max_num_seqs * (self._draft_counts[-1] + 1)
            for size in ROW_BLOCKS:
                target.logits(target.embed_VH.new_zeros(min(size, most), target.config.hidden_size))

    def _mixed_sizes_to_meet(self) -> Sequence[int]:
        """Row counts of mixed steps that need their own graphs or kernels: few rows are padded to three sizes; steps
        beyond the captured ones run eagerly."""
        most = self._mixed_sizes[-1]
        beyond = [self._all_rows] if most < self._all_rows else []
        if self.plan.mixed == "piecewise":
            return [*self._mixed_sizes, *beyond]
        if not use_triton(self._state.n_S):
            return []
        return beyond if self.plan.mixed == "full" else [min(size, most) for size in ROW_BLOCKS]

    def _launch_dummies(self, decode_round: DecodeRound) -> None:
        n_S, dummy = self._state.n_S, self._state.dummy_slot
        decode_round.assign((), self._state)  # a round that was used still has its last requests
        before = n_S[dummy].clone()
        for length in self._lengths or [int(before)]:
            n_S[dummy] = length
            decode_round.launch(NullRanges(), NullClock(), self._capture_host(decode_round.batch))
        n_S[dummy] = before

    def rounds(self) -> list[DecodeRound]:
        """All rounds made so far."""
        return list(self._rounds.values())

    def round_for(self, num_requests: int, mode: Mode, num_drafts: int | None = None) -> DecodeRound:
        """`num_drafts`: one of the possible numbers; by default the largest."""
        key = (self._padded(num_requests), mode, self._draft_counts[-1] if num_drafts is None else num_drafts)
        if key not in self._rounds:
            self._rounds[key] = self._make(*key)
        return self._rounds[key]

    def _padded(self, num_requests: int) -> int:
        return self._sizes[bisect.bisect_left(self._sizes, num_requests)] if self._sizes else num_requests

    def instrumented(self, num_requests: int, mode: Mode) -> DecodeRound:
        """A second capture of the round with events at its phase boundaries."""
        return self._make(num_requests, mode, self._draft_counts[-1], EventClock(external=True))

    def probe(self, num_requests: int, mode: Mode, inner_clock: PhaseClock) -> DecodeRound:
        """A second capture of the round that `round_for` gives, for `inner_clock` to inspect. Not for replay."""
        return self._make(self._padded(num_requests), mode, self._draft_counts[-1], inner_clock)

    def _make(self, size: int, mode: Mode, num_drafts: int, inner_clock: PhaseClock | None = None) -> DecodeRound:
        batch = decode_batch(self._state, size, num_drafts)
        batch.runners = self._decode_runners
        phases = self._builder.phases(batch, mode)
        return DecodeRound(self.plan, batch, phases, self._pool, self._capture_host, inner_clock or NullClock())

    # -- mixed steps -------------------------------------------------------------------------------------------------

    def launch_mixed(
        self,
        entries: list[MixedEntry],
        mode: Mode,
        ranges: Ranges,
        host_of: Callable[[StepBatch], HostView],
        num_drafts: int | None = None,
    ) -> tuple[StepBatch, HostView, str]:
        """Launches one mixed step; returns its layout, the host's view of it and how the target ran. `num_drafts`: as
        of `round_for`."""
        with self._builder.target.expert_reads.left_out():
            return self._launch_mixed(entries, mode, ranges, host_of, num_drafts)

    def _launch_mixed(
        self,
        entries: list[MixedEntry],
        mode: Mode,
        ranges: Ranges,
        host_of: Callable[[StepBatch], HostView],
        num_drafts: int | None,
    ) -> tuple[StepBatch, HostView, str]:
        k = self._draft_counts[-1] if num_drafts is None else num_drafts
        num_rows = sum(entry.num_rows for entry in entries)
        if self.plan.mixed == "full" and num_rows <= self._mixed_sizes[-1]:
            size = self._mixed_sizes[bisect.bisect_left(self._mixed_sizes, num_rows)]
            graph = self._mixed_graph(size, mode, k)
            self._filled(entries, size, k).overwrite(graph.batch)
            graph.batch.slots = tuple(entry.slot for entry in entries)
            host = host_of(graph.batch)
            with ranges.range("mixed"):
                graph(NullClock())
            host.acceptance_launched()
            return graph.batch, host, "full"
        batch = mixed_batch(self._state, MixedLayout.of(self._state, entries, k))
        batch.runners = self._mixed_runners
        host = host_of(batch)
        for segment in split_round(PLANS["none"], self._builder.phases(batch, mode)):
            segment.prepare(batch, host)
            with ranges.range(segment.name):
                segment.run(batch, NullClock())
            if segment.holds_acceptance:
                host.acceptance_launched()
        in_pieces = self.plan.mixed == "piecewise" and num_rows <= self._mixed_sizes[-1]
        return batch, host, "piecewise" if in_pieces else "none"

    def _filled(self, entries: list[MixedEntry], size: int, num_drafts: int | None = None) -> MixedLayout:
        """The step on a captured layout: as many requests as its rows may belong to, and one of the dummy slot, which
        takes the spare rows."""
        dummy, num_requests = self._state.dummy_slot, min(self._max_num_seqs + 1, size)
        spare = size - sum(entry.num_rows for entry in entries)
        counts = ([spare] + [0] * self._max_num_seqs)[: num_requests - len(entries)]
        padding = [MixedEntry(dummy, count, True, False, count, is_padding=True) for count in counts]
        return MixedLayout.of(self._state, [*entries, *padding], num_drafts).for_capture(self._state.max_kv)

    def _mixed_graph(self, size: int, mode: Mode, num_drafts: int) -> GraphLaunch:
        key = (size, mode, num_drafts)
        if key not in self._mixed_graphs:
            batch = mixed_batch(self._state, self._filled([], size, num_drafts))
            segment = Segment("mixed", "full", tuple(self._builder.phases(batch, mode)))
            warm_up(lambda: segment.run(batch, NullClock()))
            self._mixed_graphs[key] = GraphLaunch(segment, batch, self._pool)
        return self._mixed_graphs[key]
