"""Host-side scheduling: admission, chunked prefill, page reservation, preemption by recompute. Never touches a device.

First come, first served. A step is mixed while any running request still has prompt tokens to compute or a waiting one
can be admitted; otherwise it is a decode round of all running requests.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from specbench.harness.engines.native.core.config import EngineConfig
from specbench.harness.engines.native.core.lookahead import Lookahead
from specbench.harness.engines.native.core.pages import PageAllocator
from specbench.harness.engines.native.core.request import Request

_GROW_TOKENS = 64  # pages are taken this far ahead, so that block tables change rarely


@dataclass(frozen=True, slots=True)
class ScheduledRows:
    """One request's rows in a mixed step."""

    request: Request
    num_rows: int
    is_prefill: bool


@dataclass(frozen=True, slots=True)
class PageGrant:
    """Pages newly assigned to a request: `pages` become entries `first`.. of its block table."""

    request: Request
    first: int
    pages: list[int]


class Scheduler:
    def __init__(self, config: EngineConfig, allocator: PageAllocator, num_drafts: int, lookahead: Lookahead):
        self.allocator = allocator
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []  # in order of admission
        self._free_slots = list(range(config.max_num_seqs - 1, -1, -1))
        self._max_num_batched_tokens = config.max_num_batched_tokens
        self._most_beside_decodes = config.most_beside_decodes
        self._max_model_len = config.max_model_len
        self._num_drafts = num_drafts
        self._lookahead = lookahead
        self.grants: list[PageGrant] = []  # for the engine to write into the block table
        self.admitted: list[Request] = []  # for the engine to write into their slots

    def capacity_tokens(self, request: Request) -> int:
        """Tokens that must have pages before one more round is launched on top of those in flight."""
        return min(self._reach(request), request.limit(self._max_model_len) + self._lookahead.overhang)

    def _reach(self, request: Request) -> int:
        """The same without the request's limit: never less."""
        base = max(request.num_computed, request.num_prefill)
        return base + request.num_inflight * self._lookahead.emitted + self._lookahead.reach

    def add(self, request: Request) -> None:
        request.num_prefill = len(request.prompt_ids)
        most = self.allocator.pages_for(request.limit(self._max_model_len) + self._lookahead.overhang)
        if most > self.allocator.num_usable:
            raise ValueError(
                f"num_pages: request {request.id} needs {most} pages of {self.allocator.page_size} tokens, the cache "
                f"has {self.allocator.num_usable}; lower max_tokens or max_model_len, or give more KV memory"
            )
        self.waiting.append(request)

    def wants_mixed_step(self) -> bool:
        return any(r.is_prefilling for r in self.running) or self._can_admit()

    @property
    def num_soon(self) -> int:
        """Requests that run once those with a free slot are admitted."""
        return len(self.running) + min(len(self.waiting), len(self._free_slots))

    def can_progress(self) -> bool:
        """Whether any running request is not certain to be finished by the rounds already in flight."""
        return any(r.num_tokens + r.num_inflight < r.limit(self._max_model_len) for r in self.running)

    def _can_admit(self) -> bool:
        return bool(self.waiting and self._free_slots) and self._first_pages() <= self.allocator.num_free

    def _first_pages(self) -> int:
        return self.allocator.pages_for(self.capacity_tokens(self.waiting[0]))

    def plan_mixed_step(self, num_drafts: int | None = None) -> list[ScheduledRows]:
        """Rows of decodes first, then prompt chunks within the token budget, admitting requests while there is room.
        `num_drafts`: verified for each decode; all of them by default."""
        k1 = (self._num_drafts if num_drafts is None else num_drafts) + 1
        rows = [ScheduledRows(r, k1, False) for r in self.running if not r.is_prefilling]
        most = self._most_beside_decodes if rows else self._max_num_batched_tokens
        # Decodes alone never starve prefill: a chunk of at least one token always fits.
        budget = max(min(self._max_num_batched_tokens - k1 * len(rows), most), 1)
        for request in [r for r in self.running if r.is_prefilling]:
            budget = self._add_chunk(rows, request, budget)
        while budget > 0 and self._can_admit():
            budget = self._add_chunk(rows, self._admit(), budget)
        return rows

    def _add_chunk(self, rows: list[ScheduledRows], request: Request, budget: int) -> int:
        chunk = min(request.num_prefill - request.num_computed, budget)
        if chunk > 0:
            rows.append(ScheduledRows(request, chunk, True))
        return budget - chunk

    def _admit(self) -> Request:
        count = self._first_pages()
        request = self.waiting.popleft()
        request.slot = self._free_slots.pop()
        self.running.append(request)
        self.admitted.append(request)
        self._grant(request, self.allocator.allocate(count))
        return request

    def _grant(self, request: Request, pages: list[int] | None) -> None:
        assert pages is not None
        self.grants.append(PageGrant(request, len(request.pages), pages))
        request.pages = request.pages + pages

    def reserve(self, requests: list[Request]) -> bool:
        """Pages for one more round of each request; False if there are not enough (some may have been granted)."""
        for request in requests:
            # Nearly always a request has enough pages, and without its limit that is cheaper to find.
            if self._reach(request) <= len(request.pages) * self.allocator.page_size:
                continue
            missing = self.allocator.pages_for(self.capacity_tokens(request)) - len(request.pages)
            if missing <= 0:
                continue
            most = self.allocator.pages_for(request.limit(self._max_model_len) + self._lookahead.overhang)
            ahead = min(missing + _GROW_TOKENS // self.allocator.page_size, most - len(request.pages))
            pages = self.allocator.allocate(ahead) or self.allocator.allocate(missing)
            if pages is None:
                return False
            self._grant(request, pages)
        return True

    def preempt_last(self) -> Request:
        """Removes the most recently admitted request; it recomputes its tokens when it is admitted again."""
        request = self.running[-1]
        assert len(self.running) > 1, "one request always fits (checked on arrival)"
        assert request.num_inflight == 0
        self._release(request)
        request.num_preemptions += 1
        request.num_prefill = request.num_tokens
        request.num_computed = 0
        self.waiting.appendleft(request)
        return request

    def remove(self, request: Request) -> None:
        """A finished or aborted request leaves; its pages and slot are free again."""
        if request.slot is None:
            self.waiting.remove(request)
        else:
            self._release(request)

    def _release(self, request: Request) -> None:
        assert request.slot is not None
        self.running.remove(request)
        self.allocator.free(request.pages)
        request.pages = []
        self._free_slots.append(request.slot)
        self.grants = [g for g in self.grants if g.request is not request]
        request.slot = None
