"""What the host knows in a round, and the blocking reads by which it learns more, each counted under a name."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from torch import Tensor

from specbench.harness.engines.native.core.batch import StepBatch
from specbench.harness.engines.native.core.request import Request
from specbench.harness.engines.native.core.state import RoundState
from specbench.harness.engines.native.core.status import PendingStatus, StatusReader
from specbench.kernels.attention.base import HostLengths
from specbench.kernels.commit import ACCEPTED, COMMITTED, NEW_N, NUM_STATUS_COLUMNS

SAMPLED_IDS = "sampled_ids"


class HostView:
    """One step as seen by the host. Exists for the launch of that step."""

    def __init__(
        self,
        num_computed: list[int],
        block_table_BP: Callable[[], np.ndarray],
        queue_status: Callable[[], PendingStatus],
        queue_logprobs: Callable[[], PendingStatus | None],
    ):
        """`num_computed`: tokens with KV of each request before the step, 0 for padding rows. `queue_status` starts the
        copy of the status block, `queue_logprobs` that of the log-probabilities, if there are any."""
        self.num_computed = num_computed
        self.syncs: list[str] = []
        self._block_table_BP = block_table_BP
        self._queue_status = queue_status
        self._queue_logprobs = queue_logprobs
        self.pending: PendingStatus | None = None
        self.logprobs: PendingStatus | None = None

    def acceptance_launched(self) -> None:
        """Called by the launcher when this step's acceptance has been launched."""
        self.pending = self._queue_status()
        self.logprobs = self._queue_logprobs()

    def status(self) -> list[list[int]]:
        """This step's status rows (kernels/accept_chain.py): waits for its acceptance, once."""
        assert self.pending is not None, "the step's acceptance is not launched yet"
        if not self.pending.is_read:
            self.syncs.append(SAMPLED_IDS)
        return self.pending.wait()[0]

    def accepted(self) -> list[tuple[int, int]]:
        """(accepted drafts, new number of tokens with KV) of each request."""
        return [(row[ACCEPTED], row[NEW_N]) for row in self.status()]

    def emitted(self) -> list[list[int]]:
        """The tokens that each request keeps from this step."""
        return [row[NUM_STATUS_COLUMNS : NUM_STATUS_COLUMNS + row[COMMITTED]] for row in self.status()]

    def kv_lens(self, q_lens: Sequence[int]) -> list[int]:
        """Keys of each request with those of its `q_lens` rows in this step."""
        return [n + q for n, q in zip(self.num_computed, q_lens, strict=True)]

    def read(self, name: str, tensor: Tensor) -> list:
        """The tensor's values; blocks until the device has them."""
        self.syncs.append(name)
        return tensor.tolist()

    def block_table(self) -> np.ndarray:
        """int32 [B, P] of the step's requests."""
        return self._block_table_BP()

    def lengths(self, kv_len: Sequence[int], q_lens: Sequence[int], first: int = 0) -> HostLengths:
        """Lengths of the requests from number `first` on, for a planned attention backend."""
        cu_q_B1 = np.zeros(len(q_lens) + 1, dtype=np.int32)
        np.cumsum(q_lens, out=cu_q_B1[1:])
        table_BP = self.block_table()[first : first + len(q_lens)]
        return HostLengths(cu_q_B1, np.asarray(kv_len, dtype=np.int32), table_BP)


class HostViews:
    """Makes the views of an engine's steps from its state; `status` copies their outcomes to the host."""

    def __init__(self, state: RoundState, status: StatusReader):
        self._state = state
        self._status = status

    def align_clocks(self) -> None:
        """Reads the device's clock and the host's again, so that times of both compare. Waits for the device."""
        self._status.align_clocks()

    def of(self, batch: StepBatch, requests: Sequence[Request]) -> HostView:
        """The host's view of a step's requests at launch; without requests, of its padding rows."""
        num_padding = batch.num_requests - len(requests)
        slots = [self._state.dummy_slot if r.slot is None else r.slot for r in requests]
        slots += [self._state.dummy_slot] * num_padding
        return HostView(
            [*(r.num_computed for r in requests), *[0] * num_padding],
            lambda: self._state.host_block_table(slots),
            lambda: self._status.queue(batch.outcome.status_BX),
            lambda: None if (block := batch.outcome.logprobs_BWN) is None else self._status.queue(block),
        )
