"""Host ranges that match a rule, the steps that they delimit, and which of them encloses a call."""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from .rules import Matcher, Rule

# vLLM's `execute_context_0(0)_generation_2(10)`, before `execute_new_0_cached_2`; SGLang's `step[DECODE bs=2 ...]`.
_BATCH_SIZE = re.compile(r"_generation_(\d{1,9})\(|_cached_(\d{1,9})$|\bbs=(\d{1,9})\b")

_OWN_STEP = "specbench:step "


@dataclass(frozen=True, slots=True)
class Span:
    """A host range with its rule."""

    name: str
    t0: int
    t1: int
    tid: int
    rule: Rule


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One step of the engine. `t1`: end of its range; `end`: start of the next step, or for the last step the end of
    the host's work after it. `kind`: decode or mixed (a step with prompt rows). `is_whole`: False if the trace may have
    cut it off, as for the last step if a step ends only when the next begins."""

    index: int  # in time order
    number: int  # as its name says, else `index`
    kind: str
    t0: int
    t1: int
    end: int
    is_whole: bool
    batch_size: int | None  # requests, from the name of a range in it
    call_end: int | None = None  # of the call that makes all its forward passes, if specbench set the range

    @property
    def length_ns(self) -> int:
        return self.end - self.t0


def matched(ranges: Iterable[tuple[str, int, int, int]], matcher: Matcher) -> list[Span]:
    """The ranges (name, t0, t1, tid) that have a rule, in time order, without those inside a range whose rule says
    `covers`."""
    spans: list[Span] = []
    covered: dict[int, float] = {}  # by thread: until when
    for name, t0, t1, tid in ranges:
        rule = matcher.rule(name)
        if rule is None or (rule.step is None and t1 <= covered.get(tid, -math.inf)):
            continue
        if rule.covers:
            covered[tid] = t1
        spans.append(Span(name, t0, t1, tid, rule))
    return spans


def main_thread(spans: Sequence[Span]) -> int:
    """The thread of the engine's loop: the one with the most steps, or else the most ranges."""
    steps = Counter(s.tid for s in spans if s.rule.step or s.rule.starts_step)
    return min((steps or Counter(s.tid for s in spans)).items(), key=lambda item: (-item[1], item[0]))[0]


def steps_of(spans: Sequence[Span], file: str) -> list[Step]:
    """The steps of one thread's spans. ValueError if no rule says where a step begins."""
    marks = _outermost([s for s in spans if s.rule.step] or _starts(spans, file))
    starts = [s.t0 for s in marks]
    last_end = _end_after(marks[-1], spans)
    prompts = [s.t0 for s in spans if s.rule.phase in ("prefill", "mixed")]
    edges = np.searchsorted(prompts, [*starts, last_end + 1])
    inside = edges[1:] > edges[:-1]
    sizes = [(s.t0, int(match[match.lastindex or 0])) for s in spans if (match := _BATCH_SIZE.search(s.name))]
    return [
        Step(
            index=index,
            number=int(match[1]) if (match := re.search(r"step (\d+)", mark.name)) else index,
            kind="mixed" if mark.rule.step == "mixed" or (has_prompts and mark.rule.step != "decode") else "decode",
            t0=mark.t0,
            t1=end if _is_open(mark) else mark.t1,
            end=end,
            is_whole=index + 1 < len(marks) or not _is_open(mark),
            batch_size=_first_in(sizes, mark.t0, end),
            call_end=mark.t1 if mark.name.startswith(_OWN_STEP) else None,
        )
        for index, (mark, end, has_prompts) in enumerate(zip(marks, [*starts[1:], last_end], inside, strict=True))
    ]


def _first_in(values: Sequence[tuple[int, int]], t0: int, t1: int) -> int | None:
    """The first value at or after t0 and before t1; `values`: times and values, in time order."""
    first = bisect_left(values, (t0, 0))
    return values[first][1] if first < len(values) and values[first][0] < t1 else None


def _is_open(mark: Span) -> bool:
    """Whether the step lasts until the next one."""
    return mark.rule.until_next or not mark.rule.step


def _end_after(mark: Span, spans: Sequence[Span]) -> int:
    """The end of the host's work right after the last step. A step that was truncated has phases but no range."""
    end = mark.t1
    for span in spans:
        if span.t0 < mark.t1:
            continue
        if not _is_open(mark) and not is_between_steps(span.rule):
            break
        end = max(end, span.t1)
    return end


def is_between_steps(rule: Rule) -> bool:
    """Whether ranges of the rule may come after the step that they belong to."""
    return rule.phase in ("status", "host")


def _starts(spans: Sequence[Span], file: str) -> list[Span]:
    first = next((s.rule for s in spans if s.rule.starts_step), None)
    if first is None:
        seen = ", ".join(sorted({s.name for s in spans})[:8])
        raise ValueError(
            f"trace: no range in {file} says where a step begins (seen: {seen}); give --rules FILE with a [[rule]] "
            'that has step = "any", or starts_step = true for the first phase of a step'
        )
    return [s for s in spans if s.rule is first]


def _outermost(spans: Sequence[Span]) -> list[Span]:
    found: list[Span] = []
    for span in spans:
        if not found or span.t0 >= found[-1].t1:
            found.append(span)
    return found


def innermost(spans: Sequence[Span], t0s: Sequence[int], t1s: Sequence[int]) -> list[int]:
    """For each interval, the index of the last started span (of `spans`, in time order) that contains it entirely, or
    -1. One sweep over both.

    Spans of one thread usually nest, but need not: start/end ranges may overlap.
    """
    found = [-1] * len(t0s)
    begins, ends = [span.t0 for span in spans], [span.t1 for span in spans]
    stack: list[int] = []
    following = 0
    for index in sorted(range(len(t0s)), key=t0s.__getitem__):
        t0, t1 = t0s[index], t1s[index]
        while following < len(spans) and begins[following] <= t0:
            _pop_ended(stack, ends, begins[following])
            stack.append(following)
            following += 1
        _pop_ended(stack, ends, t0)
        found[index] = next((k for k in reversed(stack) if ends[k] >= t1), -1)
    return found


def _pop_ended(stack: list[int], ends: Sequence[int], time: int) -> None:
    while stack and ends[stack[-1]] < time:
        stack.pop()
