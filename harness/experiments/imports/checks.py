"""Refuses results that contradict themselves."""

from __future__ import annotations

from collections.abc import Sequence

from specbench.harness.engines.openai.acceptance import MAX_ROUNDS
from specbench.harness.engines.openai.reports import SpecDecoding

from .result import Request

CLOCKS, CLOCKS_S = 1.05, 1e-3
"""By which factor, and by how much more, a part of a time may exceed the whole: clocks and rounding."""


def contradiction(where: str, one: str, other: str) -> ValueError:
    return ValueError(f"{where}: {one}, but {other}; allowed: a file as the benchmark wrote it")


def exceeds(part_s: float, whole_s: float) -> bool:
    return part_s > CLOCKS * whole_s + CLOCKS_S


def span_s(requests: Sequence[Request]) -> float:
    """From when the first request was sent to the end of the last one, of those with a start time."""
    sent = [(one.start_s, one.start_s + one.e2e_s) for one in requests if one.start_s is not None]
    return max(end for _, end in sent) - min(start for start, _ in sent) if sent else 0.0


def check_concurrency(
    told: str, most: int | None, requests: Sequence[Request], window_s: float, source: str, where: str
) -> None:
    """ValueError if served requests took more time together than `most` of them at once have within `window_s`.
    `told`: what the file says of `most`; `source`: of the window."""
    busy_s = sum(one.e2e_s for one in requests if one.is_served)
    if most and exceeds(busy_s, most * window_s):
        raise contradiction(where, told, f"requests took {busy_s:.4g} s together within {window_s:.4g} s ({source})")


def check_requests(requests: Sequence[Request], where: str) -> None:
    """ValueError for a request whose tokens came before it was sent, or the last one before the first; and for one with
    impossible counts of drafts."""
    for one in requests:
        name = f"a request ({one.num_prompt_tokens} prompt tokens, {one.num_output_tokens} output tokens)"
        if one.speculation is not None:
            if max(one.num_output_tokens, one.speculation.num_spec_steps) > MAX_ROUNDS:
                raise ValueError(
                    f"{where}: {name} has too many; allowed: {MAX_ROUNDS} output tokens, and verifications"
                )
            _check_drafts(one.speculation, f"{where}: {name}")
        first_ns, last_ns = (round(end_s * 1e9) for end_s in (one.ttft_s, one.e2e_s))
        if one.num_output_tokens and not 0 <= first_ns <= last_ns:
            raise ValueError(
                f"{where}: {name} has its first token {one.ttft_s:.9g} s and its last {one.e2e_s:.9g} s after it was "
                "sent; allowed: in this order, as the benchmark wrote them"
            )


def _check_drafts(found: SpecDecoding, where: str) -> None:
    # Not against the output tokens: some tools recount those from the text and can find fewer than there were rounds.
    if wrong := found.contradiction(num_tokens=None):
        raise ValueError(f"{where}: its report of drafts contradicts itself: {wrong}")
    histogram = found.acceptance_histogram
    for name, counted in (
        ("num_spec_steps", sum(histogram)),
        ("num_accepted_draft_tokens", sum(n * times for n, times in enumerate(histogram))),
    ):
        if histogram and (told := getattr(found, name)) != counted:
            raise contradiction(where, f"{name} is {told}", f"acceptance_histogram gives {counted}")
