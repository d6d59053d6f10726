"""Graph plans by name: which parts of a step are captured.

A decode round has three parts: the target (advance, verify, accept), the first drafter pass, the later passes. A mixed
step (prompt chunks, alone or beside decodes) is a part of its own. Modes of a part:

  none       every kernel launched by the host
  piecewise  graphs between the attention calls (forward.py); attention and small operations launched by the host
  full       one graph for the part
  one        decode parts only, and all three together: one graph for the whole round

With `one` as a plan, mixed steps use piecewise graphs; `one_and_full` captures them in full. vLLM's names are plans:
FULL_DECODE_ONLY captures decodes in full and runs mixed steps eagerly, FULL_AND_PIECEWISE has full decodes and
piecewise mixed steps, FULL captures both in full; PIECEWISE and NONE apply to both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

MODES = ("none", "piecewise", "full", "one")
PARTS = ("target", "first", "later", "mixed")
_TARGET_PHASES = ("advance", "verify", "accept", "compact")


@dataclass(frozen=True, slots=True)
class GraphPlan:
    """The mode of each part."""

    target: str
    first: str
    later: str
    mixed: str

    def __post_init__(self) -> None:
        for part in PARTS:
            if getattr(self, part) not in MODES:
                raise ValueError(f"graph_{part}: {getattr(self, part)!r} is not known; allowed: {', '.join(MODES)}")
        decode = (self.target, self.first, self.later)
        if "one" in decode and set(decode) != {"one"}:
            raise ValueError(
                f"graph: one captures the whole round; target={self.target}, first={self.first}, later={self.later} "
                "cannot be told apart in it"
            )
        if self.mixed == "one":
            raise ValueError("graph_mixed: 'one' is not allowed; allowed: none, piecewise, full")

    @property
    def decode_modes(self) -> frozenset[str]:
        return frozenset((self.target, self.first, self.later))

    @property
    def pads(self) -> bool:
        """Whether decode batches are padded to a captured size."""
        return bool(self.decode_modes & {"full", "one"})

    def mode_of(self, phase: str) -> str:
        """The mode of a decode phase; `none` for phases of the host."""
        part = part_of(phase)
        return getattr(self, part) if part else "none"

    def described(self) -> str:
        """The plan's name, or its parts if it has none."""
        for name, plan in PLANS.items():
            if plan == self:
                return name
        return "/".join(f"{part}:{getattr(self, part)}" for part in PARTS)


def part_of(phase: str) -> str | None:
    """target, first or later; None for a phase that runs on the host only."""
    if phase in _TARGET_PHASES:
        return "target"
    return {"draft_first": "first", "draft_next": "later"}.get(phase)


PLANS: dict[str, GraphPlan] = {
    "none": GraphPlan("none", "none", "none", "none"),
    "piecewise": GraphPlan("piecewise", "piecewise", "piecewise", "piecewise"),
    "full_decode_only": GraphPlan("full", "full", "full", "none"),
    "full_and_piecewise": GraphPlan("full", "full", "full", "piecewise"),
    "full": GraphPlan("full", "full", "full", "full"),
    "one": GraphPlan("one", "one", "one", "piecewise"),
    "one_and_full": GraphPlan("one", "one", "one", "full"),
}


def plan_name(text: str) -> str:
    """As in PLANS: vLLM's spelling in any case, with `-` or `_`."""
    return text.lower().replace("-", "_")


def parse_plan(name: str, parts: dict[str, str]) -> GraphPlan:
    """A plan by name, with single parts replaced. ValueError names what is allowed."""
    plan = PLANS.get(plan_name(name))
    if plan is None:
        raise ValueError(f"graph: {name!r} is not known; allowed: auto, {', '.join(PLANS)}")
    return replace(plan, **parts)
