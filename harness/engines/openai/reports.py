"""Counts as servers report them. They are not trusted: a value that cannot be a count fails its chunk, and a report of
drafts can say where it contradicts itself."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from specbench.harness.store.rows import MAX_DRAFTS

MAX_COUNT = 2**31 - 1  # what a column of the tables holds


class Counts(msgspec.Struct):
    """Its integers, and those in its lists, are counts or ids. Any other is a ValueError, which fails the decoding."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            for count in value if isinstance(value, list) else (value,):
                if isinstance(count, int) and not 0 <= count <= MAX_COUNT:
                    verb = "has" if isinstance(value, list) else "is"
                    raise ValueError(f"{name} {verb} {count}; allowed: 0 to {MAX_COUNT}")


class Sums(NamedTuple):
    """Over the rounds of an answer; None: not reported."""

    num_rounds: int | None
    num_drafts: int | None
    num_accepted: int


class Report(Counts):
    """What a server says about the drafts of one answer."""

    @property
    def sums(self) -> Sums:
        raise NotImplementedError

    def contradiction(self, num_tokens: int | None) -> str:
        """What in it is at odds with the rest of it, or with the tokens of the answer, of which each round keeps one or
        more; empty if nothing is. `num_tokens`: None if unknown."""
        num_rounds, num_drafts, num_accepted = self.sums
        if num_tokens is not None and num_rounds is not None and num_rounds > num_tokens:
            return f"{num_rounds} rounds for {num_tokens} output tokens"
        if num_drafts is not None and num_accepted > num_drafts:
            return f"{num_accepted} accepted of {num_drafts} drafts"
        if num_drafts is not None and num_rounds is not None and num_drafts > MAX_DRAFTS * num_rounds:
            return f"{num_drafts} drafts in {num_rounds} rounds; allowed: {MAX_DRAFTS} in each"
        return ""


class SpecDecoding(Report):
    """vLLM, `metrics.speculative_decoding`, with --per-request-spec-decode-metrics summary or detailed."""

    num_spec_steps: int = 0
    num_draft_tokens: int = 0
    num_accepted_draft_tokens: int = 0
    acceptance_histogram: list[int] = []
    per_step_drafted: list[int] | None = None
    per_step_accepted: list[int] | None = None

    @property
    def sums(self) -> Sums:
        return Sums(self.num_spec_steps, self.num_draft_tokens, self.num_accepted_draft_tokens)

    def contradiction(self, num_tokens: int | None) -> str:
        drafted, accepted = self.per_step_drafted, self.per_step_accepted
        if drafted is not None and accepted is not None:
            lengths = self.num_spec_steps, len(drafted), len(accepted)
            if len(set(lengths)) > 1:
                return "num_spec_steps is {}, per_step_drafted has {} and per_step_accepted {} entries".format(*lengths)
            for proposed, kept in zip(drafted, accepted, strict=True):
                if not kept <= proposed <= MAX_DRAFTS:
                    return f"{kept} accepted of {proposed} drafts in one round; allowed: {MAX_DRAFTS} drafts"
            for name, steps in (("num_draft_tokens", drafted), ("num_accepted_draft_tokens", accepted)):
                if (total := getattr(self, name)) != sum(steps):
                    return f"{name} is {total}, and its rounds have {sum(steps)}"
        return super().contradiction(num_tokens)


class SpecTokensDetails(Report):
    """SGLang, `sglext.spec_tokens_details`, with return_spec_tokens_details; `meta_info` has the same fields."""

    spec_verify_ct: int = 0
    spec_num_correct_drafts: int = 0
    spec_num_proposed_drafts: int = 0  # not in older ones
    spec_correct_drafts_histogram: list[int] = []

    @property
    def sums(self) -> Sums:
        return Sums(self.spec_verify_ct, self.spec_num_proposed_drafts or None, self.spec_num_correct_drafts)


class Timings(Report):
    """llama.cpp. `draft_n` and `draft_n_accepted` are there where it speculated; the number of rounds never is."""

    predicted_n: int | None = None
    cache_n: int | None = None
    draft_n: int | None = None
    draft_n_accepted: int | None = None

    @property
    def sums(self) -> Sums:
        return Sums(None, self.draft_n, self.draft_n_accepted or 0)
