"""The page allocator of the paged KV cache. Host only; knows nothing of tensors."""

from __future__ import annotations

import heapq

DUMMY_PAGE = 0  # padding rows and unassigned block-table entries write here


class PageAllocator:
    """Hands out page numbers 1..num_pages-1, lowest first, so that a lone request's pages are contiguous."""

    def __init__(self, num_pages: int, page_size: int):
        assert num_pages >= 2, "the dummy page and one more"
        self.page_size = page_size
        self.num_usable = num_pages - 1
        self._free = list(range(1, num_pages))
        self._taken: set[int] = set()

    @property
    def num_free(self) -> int:
        return len(self._free)

    def pages_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.page_size)

    def allocate(self, count: int) -> list[int] | None:
        """`count` pages, or None (and nothing taken) if there are not enough."""
        if count > len(self._free):
            return None
        pages = [heapq.heappop(self._free) for _ in range(count)]
        self._taken.update(pages)
        return pages

    def free(self, pages: list[int]) -> None:
        for page in pages:
            assert page in self._taken, f"page {page} freed twice or never allocated"
            self._taken.remove(page)
            heapq.heappush(self._free, page)
