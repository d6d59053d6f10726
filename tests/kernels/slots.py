"""Random round states for the tests of the bookkeeping kernels."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(kw_only=True, slots=True)
class Slots:
    """S slots, the last one the dummy; prompts and outputs filled to n + 1 tokens."""

    n_S: Tensor
    tokens_SL: Tensor
    limit_S: Tensor
    stop_SE: Tensor
    done_S: Tensor
    drafts_SK: Tensor
    block_table_SP: Tensor
    page_size: int

    def copy(self) -> "Slots":
        tensors = {name: getattr(self, name).clone() for name in self.__slots__ if name != "page_size"}
        return Slots(page_size=self.page_size, **tensors)


def random_slots(
    *,
    seed: int,
    depth: int,
    device: torch.device,
    num_slots: int = 7,
    length: int = 40,
    page_size: int = 4,
    stops: int = 3,
) -> Slots:
    """A small vocabulary (0..5), so that drafts match, stop ids occur and n-grams repeat."""
    generator = torch.Generator().manual_seed(seed)

    def randint(low: int, high: int, *shape: int) -> Tensor:
        return torch.randint(low, high, shape, generator=generator)

    pages = -(-(length + 2 * depth + 2) // page_size)
    table = torch.randperm(num_slots * pages, generator=generator).view(num_slots, pages).int() + 1
    slots = Slots(
        n_S=randint(0, length - depth - 2, num_slots).int(),
        tokens_SL=randint(0, 6, num_slots, length),
        limit_S=torch.full((num_slots,), length, dtype=torch.int32),
        stop_SE=torch.where(randint(0, 2, num_slots, stops) == 0, -1, randint(4, 6, num_slots, stops)),
        done_S=torch.zeros(num_slots, dtype=torch.int32),
        drafts_SK=randint(-1, 6, num_slots, depth),
        block_table_SP=table,
        page_size=page_size,
    )
    near = slots.n_S + 1 + randint(0, depth + 2, num_slots).int()
    slots.limit_S = torch.where(randint(0, 2, num_slots) == 0, near, slots.limit_S)
    slots.n_S[-1], slots.done_S[-1], slots.block_table_SP[-1] = 0, 1, 0
    for name in Slots.__slots__:
        if name != "page_size":
            setattr(slots, name, getattr(slots, name).to(device))
    return slots
