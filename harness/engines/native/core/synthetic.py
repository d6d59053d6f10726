"""Forced acceptance: machine speed without a trained head, or with a known acceptance.

The number of accepted drafts of a round is drawn from one uniform number keyed by (request seed, position of the
pending token): every strategy and every repeat sees the same acceptance. Accepted positions emit the *draft* tokens,
so the text is not the model's and the row is marked `synthetic` wherever it appears.
Legend: B requests, L positions, P parts, R = B * L.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from specbench.kernels.philox import uniform

PURPOSE_ACCEPTANCE = 1  # sampling noise is purpose 0
_MOST_SPAN = 1 << 24  # tokens


@dataclass(frozen=True, slots=True)
class SyntheticAcceptance:
    """`marginal[j]`: probability that at least j+1 drafts are accepted; non-increasing, in [0, 1]."""

    marginal: tuple[float, ...]
    description: str

    def __post_init__(self) -> None:
        bad = any(not 0 <= r <= 1 for r in self.marginal)
        rising = any(b > a for a, b in zip(self.marginal, self.marginal[1:], strict=False))
        if bad or rising:
            raise ValueError(
                f"acceptance: rates {list(self.marginal)} are not allowed; each in [0, 1], none above the one before"
            )

    @property
    def length(self) -> float:
        """Mean acceptance length, the bonus token included."""
        return 1 + sum(self.marginal)

    def table(self, seeds: Sequence[int], num_positions: int) -> Tensor:
        """int32 [B, L]: accepted drafts by request and position of the pending token."""
        # Arrays: torch would share the work among all cores, and with a busy one 40 ms instead of 1 were seen.
        seed_R = np.repeat(np.array(seeds, dtype=np.int64), num_positions)
        position_R = np.tile(np.arange(num_positions), len(seeds))
        u_R = uniform(torch.from_numpy(seed_R), torch.from_numpy(position_R), PURPOSE_ACCEPTANCE, 1)[:, 0].numpy()
        accepted_R = np.zeros(len(u_R), dtype=np.int32)
        for rate in np.array(self.marginal, dtype=u_R.dtype):
            accepted_R += u_R < rate
        return torch.from_numpy(accepted_R).view(len(seeds), num_positions)


@dataclass(frozen=True, slots=True)
class DriftingAcceptance:
    """`parts` in turn, repeatedly, each for `span` positions of a request."""

    parts: tuple[SyntheticAcceptance, ...]
    span: int
    description: str

    def table(self, seeds: Sequence[int], num_positions: int) -> Tensor:
        table_PBL = torch.stack([part.table(seeds, num_positions) for part in self.parts])
        position_L = torch.arange(num_positions)
        return table_PBL[position_L // self.span % len(self.parts), :, position_L].T


Forced = SyntheticAcceptance | DriftingAcceptance


def rates_of_length(length: float, num_drafts: int) -> tuple[float, ...]:
    """The schedule of least variance with mean `length`: ones, the fraction, zeros (vLLM's synthetic method)."""
    if not 1 <= length <= num_drafts + 1:
        raise ValueError(f"acceptance: synthetic length {length} is not allowed; allowed: 1 to k+1 = {num_drafts + 1}")
    whole, fraction = divmod(length - 1, 1)
    rates = [1.0] * int(whole) + [fraction] + [0.0] * num_drafts
    return tuple(rates[:num_drafts])


def rates_of_histogram(counts: list[float], num_drafts: int) -> tuple[float, ...]:
    """Marginal rates from a measured histogram: `counts[a]` rounds accepted a drafts, a = 0..k."""
    if len(counts) != num_drafts + 1 or min(counts) < 0 or sum(counts) <= 0:
        raise ValueError(
            f"acceptance: a histogram needs k+1 = {num_drafts + 1} non-negative counts (0..{num_drafts} accepted), "
            f"got {counts}"
        )
    total = sum(counts)
    return tuple(sum(counts[j:]) / total for j in range(1, num_drafts + 1))


_FORMS = (
    "real, synthetic:LENGTH, synthetic:rates=r1/r2/.., synthetic:histogram=n0/n1/.., "
    "synthetic:drift=TOKENS/LENGTH/LENGTH/.."
)


def parse_acceptance(text: str, num_drafts: int) -> Forced | None:
    """None for `real`, and if there are no drafts to force. Raises ValueError naming the allowed forms."""
    if text == "real":
        return None
    name, numbers = _read_form(text)
    if num_drafts == 0:
        return None
    if name in ("", "length"):
        return SyntheticAcceptance(rates_of_length(numbers[0], num_drafts), text)
    if name == "drift":
        return _drifting(numbers, num_drafts, text)
    if name == "histogram":
        return SyntheticAcceptance(rates_of_histogram(numbers, num_drafts), text)
    if len(numbers) != num_drafts:
        raise ValueError(f"acceptance: {text!r} gives {len(numbers)} rates; k = {num_drafts} are needed")
    return SyntheticAcceptance(tuple(numbers), text)


def _drifting(numbers: list[float], num_drafts: int, text: str) -> DriftingAcceptance:
    span, *lengths = numbers
    if len(lengths) < 2 or not (1 <= span <= _MOST_SPAN and span.is_integer()):
        raise ValueError(
            f"acceptance: {text!r} is not allowed; give how many tokens each length lasts, and two lengths"
        )
    parts = tuple(SyntheticAcceptance(rates_of_length(length, num_drafts), text) for length in lengths)
    return DriftingAcceptance(parts, int(span), text)


def _read_form(text: str) -> tuple[str, list[float]]:
    """The name before `=` (or nothing) and the numbers of `synthetic:...`."""
    kind, _, body = text.partition(":")
    if kind != "synthetic" or not body:
        raise ValueError(f"acceptance: {text!r} is not known; allowed: {_FORMS}")
    name, _, values = body.rpartition("=")
    try:
        numbers = [float(x) for x in values.split("/")]
    except ValueError:
        raise ValueError(f"acceptance: {text!r} has a value that is not a number; allowed: {_FORMS}") from None
    if name in ("rates", "histogram", "drift") or (name in ("", "length") and len(numbers) == 1):
        return name, numbers
    raise ValueError(f"acceptance: {text!r} is not known; allowed: {_FORMS}")
