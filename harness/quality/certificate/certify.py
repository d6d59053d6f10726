"""The losslessness certificate of an arm: its outputs against `no-spec`'s and against the target's own fp32 scores.

The checks, each with a line in `Certificate.problems` if it fails:
* length: an output is as long as the baseline's, unless it diverged earlier;
* divergence, regret: no token of the arm is further below the best of its position than the dtype's tolerance
  (tolerance.py), in fp32 and after its own text. Sampled requests share their noise, which is part of the scores;
* excess: all tokens together are no further below the best than the target's own would be (excess.py);
* acceptance: the rounds accept the same drafts as the same strategy in other modes (acceptance.py);
* distribution: tokens over many seeds follow the target's distribution (distribution.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

import torch

from specbench.harness.engines.base import Deployment
from specbench.harness.engines.load import PromptRequest
from specbench.harness.engines.native.models.llama import LlamaModel
from specbench.harness.metrics.same_rounds import common_length
from specbench.harness.quality.certificate.acceptance import (
    AcceptanceComparison,
    Round,
    acceptance_length,
    as_far_as_both,
    compare_rounds,
    rounds_of,
)
from specbench.harness.quality.certificate.answers import CollectedRows
from specbench.harness.quality.certificate.distribution import DistributionTest
from specbench.harness.quality.certificate.excess import Excess, measure_excess
from specbench.harness.quality.certificate.texts import ScoredText, TextScorer
from specbench.harness.quality.certificate.tolerance import Tolerance
from specbench.harness.run.block_sink import WatchesRequests

Output = tuple[int, ...]
Pair = tuple[int, Output, Output]  # a request's number, the arm's output, the baseline's


@dataclass(frozen=True, slots=True)
class Generated:
    """The outputs of an arm and its rounds, by request."""

    outputs: Mapping[int, tuple[int, ...]]
    rounds: Mapping[int, Sequence[Round]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Divergence:
    """The first token of a request that differs from the baseline's. `gap`: between the two tokens, in logits."""

    request: int
    position: int
    token: int
    baseline_token: int
    gap: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Certificate:
    """One arm at one temperature. `worst_regret` and `tolerance` in logits; `acceptance_length` with the bonus token.

    `excess`: None for fp32, where nothing is measured. `compared_with`: the arm whose rounds the acceptance check used;
    empty if there was none. For an arm of another engine, judged without its weights: `judged_by`, and what was
    `not_done` with the reasons; `worst_regret` and `tolerance` are None if it reports no scores.
    """

    arm: str
    temperature: float
    num_prompts: int
    num_tokens: int
    num_exact: int
    divergences: tuple[Divergence, ...] = ()
    worst_regret: float | None = None
    tolerance: float | None = None
    excess: Excess | None = None
    acceptance_length: float | None
    acceptance: AcceptanceComparison | None = None
    compared_with: str = ""
    distribution: DistributionTest | None = None
    problems: tuple[str, ...]
    judged_by: str = ""
    not_done: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.problems


def generate(deployment: Deployment, requests: Sequence[PromptRequest], progress: WatchesRequests) -> Generated:
    """Runs the requests through an idle deployment."""
    rows = CollectedRows(progress)
    deployment.generate(requests, rows)
    outputs = {}
    for row in sorted(rows.requests, key=lambda row: row.request_id):
        assert row.output_token_ids is not None, "an engine without token ids is refused"
        outputs[row.request_id] = tuple(row.output_token_ids)
    return Generated(outputs, rounds_of(rows.steps))


class Judge:
    """Judges arms that got the same requests."""

    def __init__(
        self,
        target: LlamaModel,
        exact: LlamaModel,
        tolerance: Tolerance,
        requests: Sequence[PromptRequest],
        changing: Set[str] = frozenset(),
    ):
        """`exact`: the fp32 twin of `target`. `requests`: as every arm got them, by their ids; they have prompts,
        temperature and seeds. `changing`: labels of arms whose number of drafts changes between rounds."""
        self._changing = changing
        self._tolerance = tolerance
        self._requests = {request.id: request for request in requests}
        self._texts = TextScorer(target, exact)

    def certificate(
        self,
        arm: str,
        got: Generated,
        baseline: Generated,
        plain: tuple[str, Generated] | None = None,
        distribution: DistributionTest | None = None,
    ) -> Certificate:
        """`plain`: label and rounds of the same strategy in the mode that the others must agree with."""
        assert got.outputs.keys() == baseline.outputs.keys() == self._requests.keys()
        pairs = [(number, got.outputs[number], baseline.outputs[number]) for number in got.outputs]
        divergences = find_divergences(pairs, lambda number, output: self._scored(number, output).score_R)
        scored = [self._scored(number, mine) for number, mine, _ in pairs]
        worst_regret = max(float(text.regret_R.max()) for text in scored)
        certificate = Certificate(
            arm=arm,
            temperature=next(iter(self._requests.values())).sampling.temperature,
            num_prompts=len(pairs),
            num_tokens=sum(len(mine) for _, mine, _ in pairs),
            num_exact=sum(mine == theirs for _, mine, theirs in pairs),
            divergences=divergences,
            worst_regret=worst_regret,
            tolerance=self._tolerance.logits,
            excess=None if self._tolerance.is_exact else _excess(scored),
            acceptance_length=acceptance_length(got.rounds),
            acceptance=self._compared(arm, got, plain),
            compared_with=plain[0] if plain else "",
            distribution=distribution,
            problems=(),
        )
        of_outputs = output_problems(pairs, divergences, worst_regret, self._tolerance.logits)
        return replace(certificate, problems=tuple(self._problems(certificate, of_outputs)))

    def of_drawn_drafts(
        self,
        arm: str,
        got: Generated,
        baseline: Generated,
        plain: tuple[str, Generated] | None,
        distribution: DistributionTest | None,
    ) -> Certificate:
        """For an arm whose sampled tokens use different random numbers than the baseline's: its texts differ and are
        equally valid, so only the distribution can be judged."""
        certificate = Certificate(
            arm=arm,
            temperature=next(iter(self._requests.values())).sampling.temperature,
            num_prompts=len(got.outputs),
            num_tokens=sum(map(len, got.outputs.values())),
            num_exact=sum(mine == baseline.outputs[number] for number, mine in got.outputs.items()),
            acceptance_length=acceptance_length(got.rounds),
            acceptance=self._compared(arm, got, plain),
            compared_with=plain[0] if plain else "",
            distribution=distribution,
            problems=(),
            judged_by="the distribution over seeds and the drafts accepted",
            not_done=("length, divergence, regret and excess: drawn drafts use different random numbers than no-spec",),
        )
        problems = (*_unshown(distribution), *self._of_rounds_and_seeds(certificate))
        return replace(certificate, problems=problems)

    def _problems(self, c: Certificate, of_outputs: Iterator[str]) -> Iterator[str]:
        tolerance = self._tolerance
        if not tolerance.is_sharp:
            yield f"tolerance: {tolerance.undecided:.0%} of all positions are closer than {tolerance.logits:.2g}"
        yield from of_outputs
        if c.excess is not None and not c.excess.ok:
            sums = f"{c.excess.total:.3g} below the best in total, the target's own {c.excess.target_total:.3g}"
            yield f"excess: tokens lie {sums} (p <= {c.excess.p_value:.1e})"
        yield from self._of_rounds_and_seeds(c)

    def _of_rounds_and_seeds(self, c: Certificate) -> Iterator[str]:
        if c.acceptance is not None and (problem := c.acceptance.problem(self._tolerance.is_exact)):
            yield f"acceptance: {problem}, compared with {c.compared_with}"
        if c.distribution is not None and not c.distribution.ok:
            yield f"distribution: p = {c.distribution.p_value:.1e} over {c.distribution.num_seeds} seeds"

    def _scored(self, number: int, output: Sequence[int]) -> ScoredText:
        return self._texts.scored(self._requests[number], output)

    def _compared(self, arm: str, got: Generated, plain: tuple[str, Generated] | None) -> AcceptanceComparison | None:
        if plain is None:
            return None
        mine, theirs = got.rounds, plain[1].rounds
        if arm in self._changing:
            mine, theirs = as_far_as_both(mine, theirs)
        return compare_rounds(mine, theirs, got.outputs, plain[1].outputs)


def find_divergences(
    pairs: Sequence[Pair], scores: Callable[[int, Output], Sequence[float] | torch.Tensor]
) -> tuple[Divergence, ...]:
    """One for each pair that differs before the shorter output ends. `scores`: of an output's tokens, in logits."""
    found = []
    for number, mine, theirs in pairs:
        at = common_length(mine, theirs)
        if at < min(len(mine), len(theirs)):
            own, other = scores(number, mine), scores(number, theirs)  # of one best: the same text as far as `at`
            gap = abs(float(own[at] - other[at]))
            found.append(Divergence(request=number, position=at, token=mine[at], baseline_token=theirs[at], gap=gap))
    return tuple(found)


def output_problems(
    pairs: Sequence[Pair], divergences: Sequence[Divergence], worst_regret: float, limit: float
) -> Iterator[str]:
    """Of length, divergence and regret. `worst_regret`: of all tokens of the arm, in logits, as `limit` is."""
    num_prefixes = sum(len(a) != len(b) and common_length(a, b) == min(len(a), len(b)) for _, a, b in pairs)
    if num_prefixes:
        yield f"length: {num_prefixes} outputs are a prefix of the baseline's, or continue past its end"
    wide = [d for d in divergences if not d.gap <= limit]  # NaN is no near-tie
    if wide:
        yield f"divergence: {len(wide)} of {len(divergences)} are not near-ties"
    if not worst_regret <= limit:
        yield f"regret: a token lies {worst_regret:.3g} below the best, tolerance {limit:.2g}"


def _unshown(distribution: DistributionTest | None) -> Iterator[str]:
    """Why a distribution test is not conclusive."""
    if distribution is None:
        yield "distribution: not tested, and nothing else can show that drawn drafts are lossless; set --num-seeds"
    elif not distribution.is_telling:
        yield f"distribution: {distribution.num_texts} texts are not enough evidence; a higher --temperature gives more"


def _excess(scored: Sequence[ScoredText]) -> Excess:
    return measure_excess(
        torch.cat([text.regret_R for text in scored]), torch.cat([text.target_regret_AR for text in scored], dim=1)
    )
