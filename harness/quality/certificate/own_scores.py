"""The certificate of another engine's arm: by that engine's own unspeculated scores, or by equality if it has none.

By scores, at temperature 0, with the engine's arm without speculation as baseline:
* length, divergence and regret: as for our own engine (certify.py), but a token's regret comes from the baseline's pass
  over the prompt and the answer, and the tolerance is a fixed one for the dtype;
* control: the baseline's own tokens pass too, and deliberately changed tokens do not, since scores that accept
  everything prove nothing.
By equality, every difference is a problem, because a near-tie cannot be recognised.

Neither finds errors that both sides share, because no fp32 twin of the weights is available. Hence there is no excess
(it needs the target's own passes in other arrangements) and no distribution (it needs whole distributions, and noise
that can be repeated).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from specbench.harness.engines.load import PromptRequest
from specbench.harness.quality.certificate.acceptance import acceptance_length
from specbench.harness.quality.certificate.answers import Answers
from specbench.harness.quality.certificate.certify import Certificate, find_divergences, output_problems

# fp32: as for our own engine. Half precision: logits of 16 to 64 are 1/8 to 1/4 apart in bf16 (8 significant bits), an
# eighth of that in fp16 (11 bits); two passes round each of two candidates, in sums of another order.
STATED_TOLERANCE: Mapping[str, float] = {"float32": 1e-4, "float16": 0.0625, "bfloat16": 0.5}
_MAX_CHANGED = 8
_NOT_DONE = (
    "excess: it needs the target's own weights",
    "distribution and temperatures above 0: the engine reports neither its noise nor whole distributions",
)
Outputs = Mapping[int, tuple[int, ...]]
Regrets = Callable[[Sequence[int], int], tuple[float, ...]]
"""The regrets of the last tokens of a text, each relative to the likeliest of its position, by a pass without
speculation."""


class ScoreJudge:
    """Judges arms by the regrets of their tokens. `vocab_size`: for deliberately changed tokens."""

    def __init__(
        self, dtype: str, regrets: Regrets, requests: Sequence[PromptRequest], baseline: Answers, vocab_size: int
    ):
        assert baseline.outputs is not None
        self._dtype, self._limit, self._ask = dtype, STATED_TOLERANCE[dtype], regrets
        self._prompts = {request.id: request.prompt_ids for request in requests}
        self._baseline: Outputs = baseline.outputs
        self._known: dict[tuple[int, tuple[int, ...]], tuple[float, ...]] = {}
        self._control = list(self._control_problems(vocab_size))

    def certificate(self, arm: str, answers: Answers, *, is_baseline: bool) -> Certificate:
        """RuntimeError for an arm without token ids whose baseline has them."""
        if answers.outputs is None:
            raise RuntimeError("the engine reported no token ids for this arm, but did for its baseline")
        outputs, base = answers.outputs, self._baseline
        pairs = [(number, outputs[number], base[number]) for number in base]
        divergences = find_divergences(pairs, self._regrets)
        worst = max((r for number, mine, _ in pairs for r in self._regrets(number, mine)), default=0.0)
        problems = [
            *(["length: all answers are empty, which proves nothing"] if not answers.num_tokens else []),
            *output_problems(pairs, divergences, worst, self._limit),
            *_drafts(answers, is_baseline),
            *self._control,
        ]
        return replace(
            _bare(arm, answers, len(pairs)),
            num_exact=sum(mine == theirs for _, mine, theirs in pairs),
            divergences=divergences,
            worst_regret=worst,
            tolerance=self._limit,
            judged_by=f"the engine's own scores without speculation; {self._limit:g} is stated for {self._dtype}",
            problems=tuple(problems),
        )

    def _control_problems(self, vocab_size: int) -> Iterator[str]:
        worst = max(
            (r for number, output in self._baseline.items() for r in self._regrets(number, output)), default=0.0
        )
        limit = self._limit
        if not worst <= limit:
            yield f"control: a token of the baseline itself lies {worst:.3g} below the best, tolerance {limit:.2g}"
        changed = [(n, output) for n, output in self._baseline.items() if output][:_MAX_CHANGED]
        seen = 0
        for number, output in changed:
            wrong = (*self._prompts[number], *output[:-1], (output[-1] + 1) % vocab_size)
            seen += self._ask(wrong, 1)[0] > limit  # false for NaN
        if 2 * seen < len(changed):
            yield f"control: only {seen} of {len(changed)} deliberately changed tokens are beyond the tolerance"

    def _regrets(self, number: int, output: tuple[int, ...]) -> tuple[float, ...]:
        key = number, output
        if key not in self._known:
            regrets = self._ask((*self._prompts[number], *output), len(output)) if output else ()
            self._known[key] = tuple(value if math.isfinite(value) else math.inf for value in regrets)
        return self._known[key]


class EqualityJudge:
    """Judges arms by equality with the baseline's outputs, by token ids or else by text. `reason`: why no more is
    possible."""

    def __init__(self, reason: str, baseline: Answers):
        self._reason, self._baseline = reason, baseline

    def certificate(self, arm: str, answers: Answers, *, is_baseline: bool) -> Certificate:
        mine, theirs = answers.outputs, self._baseline.outputs
        by_ids = mine is not None and theirs is not None
        a: Mapping[int, object] = answers.texts if mine is None or theirs is None else mine
        b: Mapping[int, object] = self._baseline.texts if mine is None or theirs is None else theirs
        num_exact = sum(a[number] == b[number] and a[number] is not None for number in b)
        problems = [*_drafts(answers, is_baseline)]
        if not any(b.values()):
            problems.append("equality: all answers are empty, which proves nothing")
        if num_exact < len(b):
            different = f"{len(b) - num_exact} of {len(b)} answers differ from the baseline's"
            problems.append(f"equality: {different}; whether these are near-ties is unknown")
        return replace(
            _bare(arm, answers, len(b)),
            num_exact=num_exact,
            judged_by=f"equality of {'token ids' if by_ids else 'texts'} alone",
            not_done=(f"divergence and regret: {self._reason}", *_unknown(answers), *_NOT_DONE),
            problems=tuple(problems),
        )


def _bare(arm: str, answers: Answers, num_prompts: int) -> Certificate:
    return Certificate(
        arm=arm,
        temperature=0.0,
        num_prompts=num_prompts,
        num_tokens=answers.num_tokens,
        num_exact=0,
        acceptance_length=acceptance_length(answers.rounds),
        problems=(),
        not_done=(*_unknown(answers), *_NOT_DONE),
    )


def _unknown(answers: Answers) -> tuple[str, ...]:
    drafted = "acceptance: another mode of the same drafts to compare with is not run"
    return (
        drafted
        if answers.rounds
        else "acceptance: neither accepted drafts nor the use of drafts is reported with the answers",
    )


def _drafts(answers: Answers, is_baseline: bool) -> Iterator[str]:
    """Checks that the sides are what their names say, because otherwise they could agree for no reason."""
    has_drafts = any(r.proposed for rounds in answers.rounds.values() for r in rounds)
    if is_baseline and has_drafts:
        yield "baseline: drafts were verified in the arm without speculation"
    if not is_baseline and answers.rounds and not has_drafts:
        yield "acceptance: no draft was verified, so nothing is known about this arm"
