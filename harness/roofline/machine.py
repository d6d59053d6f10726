"""What a machine can do at most: the four figures that the ideal time of a round is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, TypeVar

from specbench.harness.text import is_number
from specbench.workloads.json_values import Json

if TYPE_CHECKING:
    import torch

MEASURED, GIVEN = "measured", "given"
_RATES = ("read_bytes_per_s", "matmul_flops_per_s", "attention_flops_per_s")
_Record = TypeVar("_Record")


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """Limits of one device for numbers of one dtype. ValueError for a figure that no machine has.

    read_bytes_per_s: reading memory far beyond the caches. matmul_flops_per_s: a large matrix product.
    attention_flops_per_s: attention over a long prompt. kernel_launch_s: what one more tiny kernel costs, inside a CUDA
    graph on a GPU; 0 is allowed: no such cost. how: measured, or given (a data sheet, another's figures).
    """

    device: str
    dtype: str
    read_bytes_per_s: float
    matmul_flops_per_s: float
    attention_flops_per_s: float
    kernel_launch_s: float
    how: str = GIVEN

    def __post_init__(self) -> None:
        for name in _RATES:
            if not (is_number(getattr(self, name)) and getattr(self, name) > 0):
                raise ValueError(f"machine.{name}: {getattr(self, name)!r} is not allowed; must be > 0 and finite")
        if not (is_number(self.kernel_launch_s) and self.kernel_launch_s >= 0):
            raise ValueError(
                f"machine.kernel_launch_s: {self.kernel_launch_s!r} is not allowed; must be >= 0 and finite"
            )
        for name in ("device", "dtype"):
            if not isinstance(getattr(self, name), str) or not getattr(self, name):
                raise ValueError(f"machine.{name}: {getattr(self, name)!r} is not allowed; must be a name")
        if self.how not in (MEASURED, GIVEN):
            raise ValueError(f"machine.how: {self.how!r} is not known; allowed: {MEASURED}, {GIVEN}")

    def describe(self) -> str:
        """One line for the foot of a table."""
        return (
            f"{self.device}, {self.dtype}, {self.how}: reads {self.read_bytes_per_s / 1e9:.4g} GB/s, multiplies "
            f"{self.matmul_flops_per_s / 1e12:.3g} TFLOP/s, attention {self.attention_flops_per_s / 1e12:.3g} TFLOP/s, "
            f"a kernel costs {self.kernel_launch_s * 1e6:.3g} us"
        )

    def to_dict(self) -> dict[str, str | float]:
        return asdict(self)

    @staticmethod
    def from_dict(raw: Json) -> Machine:
        """What `to_dict` made. ValueError for anything else."""
        return read_record(Machine, raw, "machine")


def measure_machine(device: torch.device | str, dtype: torch.dtype) -> Machine:
    """Measures the device, in a few seconds and a few GiB of its memory; on a CPU with torch's number of threads.

    The device must be idle: what else runs there lowers the limits, and the ideal looks nearer than it is.
    """
    from .probe import probe  # torch, which readers of stored machines do not need

    return probe(device, dtype)


def read_record(kind: type[_Record], raw: Json, what: str) -> _Record:
    """A dataclass from the dict with exactly its fields. ValueError naming what is missing or unknown."""
    names = [f.name for f in fields(kind)]  # type: ignore[arg-type]
    if not isinstance(raw, Mapping) or set(raw) != set(names):
        raise ValueError(f"{what}: has {list(raw) if isinstance(raw, Mapping) else repr(raw)}; needs exactly {names}")
    return kind(**raw)
