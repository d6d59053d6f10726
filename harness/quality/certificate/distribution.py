"""Whether sampled tokens have the target's distribution, over many seeds: detects faults of a sampler that every arm
shares.

Each token's place in its own fp32 distribution is a number in (0, 1): the probability of all likelier tokens plus a
uniform share of its own (the randomised probability integral transform; Czado, Gneiting, Held 2009). It is uniform
exactly if the token was drawn correctly, for any vocabulary and any context, so positions whose contexts differ between
seeds can be tested too. Chi-square over ten equal buckets, likeliest tokens first.

Legend: N seeds, R positions, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from scipy import stats
from torch import Tensor

from specbench.harness.engines.native.models.llama import LlamaModel
from specbench.harness.quality.certificate.scores import output_logits

NUM_BUCKETS = 10
FALSE_ALARM = 1e-3  # of one arm's test, over all positions together
_MIN_PER_BUCKET = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class DistributionTest:
    """`p_values`: one per position, first token first. `num_texts`: how many different texts the seeds gave."""

    num_seeds: int
    num_texts: int
    p_values: tuple[float, ...]

    @property
    def p_value(self) -> float:
        """p of all positions together (Bonferroni)."""
        return min(1.0, min(self.p_values) * len(self.p_values))

    @property
    def is_telling(self) -> bool:
        """If the target is certain of its text, any sampler passes, so this proves nothing."""
        return self.num_texts >= NUM_BUCKETS

    @property
    def ok(self) -> bool:
        return self.p_value >= FALSE_ALARM


def check_num_seeds(num_seeds: int) -> None:
    """ValueError if the buckets would be too small for a chi-square."""
    least = NUM_BUCKETS * _MIN_PER_BUCKET
    if num_seeds < least and num_seeds != 0:
        raise ValueError(
            f"num_seeds: {num_seeds} is not allowed; allowed: {least} or more, or 0 for no test of distributions"
        )


class DistributionJudge:
    """Tests arms that sampled after the same prompt; a text that several arms have is scored once."""

    def __init__(self, exact: LlamaModel, prompt: Sequence[int], temperature: float):
        """`exact`: the target in fp32."""
        assert temperature > 0
        self._exact = exact
        self._prompt = tuple(prompt)
        self._temperature = temperature
        self._known: dict[tuple[int, ...], Tensor] = {}

    def test(self, outputs: Mapping[int, Sequence[int]]) -> DistributionTest:
        """`outputs`: by seed; none of them ended early."""
        texts = [tuple(output) for output in outputs.values()]
        length = len(texts[0])
        assert length and all(len(text) == length for text in texts), "outputs of one length are compared"
        ends_N2R = torch.stack([self._ends(text) for text in texts])
        uniform_NR = torch.rand(len(texts), length, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        place_NR = ends_N2R[:, 0] + uniform_NR * ends_N2R[:, 1]
        p_values = tuple(_p_value(place_NR[:, r]) for r in range(length))
        return DistributionTest(num_seeds=len(texts), num_texts=len(set(texts)), p_values=p_values)

    def _ends(self, text: tuple[int, ...]) -> Tensor:
        """fp64 [2, R] on the host: the probability of all tokens likelier than each token, and its own."""
        if text not in self._known:
            logits_RV = output_logits(self._exact, self._prompt, text)
            self._known[text] = _ends(torch.softmax(logits_RV.double() / self._temperature, dim=1), text)
        return self._known[text]


def _ends(probs_RV: Tensor, text: Sequence[int]) -> Tensor:
    token_R1 = torch.tensor(list(text), device=probs_RV.device).unsqueeze(1)
    own_R1 = probs_RV.gather(1, token_R1)
    # Equally likely tokens are in the order of their ids; otherwise their places would overlap.
    lower_id_RV = torch.arange(probs_RV.shape[1], device=probs_RV.device) < token_R1
    before_R = torch.where((probs_RV > own_R1) | ((probs_RV == own_R1) & lower_id_RV), probs_RV, 0.0).sum(dim=1)
    return torch.stack([before_R, own_R1.squeeze(1)]).cpu()


def _p_value(place_N: Tensor) -> float:
    bucket_N = (place_N * NUM_BUCKETS).long().clamp(0, NUM_BUCKETS - 1)
    return float(stats.chisquare(torch.bincount(bucket_N, minlength=NUM_BUCKETS).numpy()).pvalue)
