"""Counts the torch operations of a call."""

from collections.abc import Callable

from torch.utils._python_dispatch import TorchDispatchMode


class _Operations(TorchDispatchMode):
    """Counts operations that do work; views cost nothing on a device."""

    VIEWS = ("select", "slice", "unsqueeze", "view", "expand", "t", "detach", "alias", "squeeze", "_unsafe_view")
    READS = ("_local_scalar_dense", "nonzero", "item", "masked_select")

    def __init__(self):
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        if name not in self.VIEWS:
            self.names.append(name)
        return func(*args, **(kwargs or {}))


def counted_operations(call: Callable[[], None]) -> list[str]:
    """Names of the operations that `call` launches; none of them may wait for a value."""
    with _Operations() as operations:
        call()
    assert not set(operations.names) & set(_Operations.READS), operations.names
    return operations.names
