"""The figures of tables, A/B, gates, history and site: name, definition and inputs of each.

The constant of a figure is its key in capitals. Other packages register figures with `of_block` in the group
`specbench.figures`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from specbench.harness.store.arm_record import Fact

if TYPE_CHECKING:
    import pandas as pd

LOWER, HIGHER = "lower", "higher"


@dataclass(frozen=True, slots=True)
class Figure:
    """key: in policies, records and CSV. name: in tables. source: where it is computed. better: lower or higher.

    block: its name in the figures of a block; empty for figures of a whole arm or of two arms, and for figures under
    limits that a user gives. fact: what an engine must know for it. gated: whether A/B and comparisons give it a
    verdict, and not only its change. of_block: another package's figure from the requests, steps and phases of a block;
    None without data.
    """

    key: str
    name: str
    definition: str
    source: str
    better: str = LOWER
    unit: str = ""
    block: str = ""
    fact: Fact | None = None
    gated: bool = True
    of_block: Callable[[pd.DataFrame, pd.DataFrame, pd.DataFrame], float | None] | None = None

    @property
    def heading(self) -> str:
        """The header of a column: the name with its unit."""
        return f"{self.name} {self.unit}".strip()

    def statistic(self, name: str) -> tuple[str, str]:
        """The heading and the block name of another statistic of it: `p99` of TTFT is `TTFT p99`, `ttft_ms.p99`."""
        return f"{self.name} {name}", f"{self.block.rpartition('.')[0]}.{name}"


_latency = partial(Figure, source="harness/metrics/latency.py", unit="ms")
_rounds = partial(Figure, source="harness/metrics/accounting.py")
_acceptance = partial(Figure, source="harness/metrics/acceptance.py", better=HIGHER, fact=Fact.ACCEPTANCE)
_per_forward = partial(_acceptance, block="acceptance.tokens_per_forward")
_trace = partial(Figure, source="profile.json of the arm", fact=Fact.GRAPHS)

STEP_MS = _rounds(
    "step_ms",
    "step time",
    "median decode round, including the gap before it",
    unit="ms",
    block="round_ms.p50",
    fact=Fact.ROUNDS,
)
TOKENS_PER_STEP = _per_forward("tokens_per_step", "tokens per step", "tokens/forward; two sides are paired by prompt")
TPOT_MS = _latency("tpot_ms", "TPOT", "(last - first token) / (tokens - 1), mean over requests", block="tpot_ms.mean")
TPS = _latency(
    "tps", "TPS", "tokens / (first submit to last token)", better=HIGHER, unit="tokens/s", block="tps", gated=False
)
TTFT_MS = _latency("ttft_ms", "TTFT", "first token - submit, mean over requests", block="ttft_ms.mean", gated=False)
ITL_MS = _latency("itl_ms", "ITL", "gap between tokens; a burst of m is one gap and m - 1 zeros", block="itl_ms.mean")
E2EL_MS = _latency("e2el_ms", "E2EL", "last token - submit, median over requests", block="e2el_ms.p50", gated=False)
GOODPUT = Figure(
    "goodput",
    "goodput",
    "requests that met all limits of --goodput / (first submit to last token); their share is of all requests",
    "harness/metrics/goodput.py",
    better=HIGHER,
    unit="requests/s",
)
ACCEPTANCE_LENGTH = _acceptance(
    "acceptance_length",
    "AL",
    "1 + accepted drafts / verifications with drafts, as vLLM's mean acceptance length",
    block="acceptance.acceptance_length",
)
ACCEPTANCE_BY_POSITION = _acceptance(
    "acceptance_by_position",
    "acceptance by position",
    "accepted share of the drafts at a position whose earlier drafts were all accepted",
)
TOKENS_PER_FORWARD = _per_forward("tokens_per_forward", "tokens/forward", "tokens kept / forwards, with drafts or not")
SYNCS_PER_ROUND = _rounds(
    "syncs_per_round", "syncs/round", "blocking host synchronisations", block="syncs_per_round", fact=Fact.SYNCS
)
LAUNCHES_PER_ROUND = _trace("launches_per_round", "launches/round", "kernel launches and graph launches of a round")
GRAPH_SHARE = _trace(
    "graph_share",
    "graph share",
    "share of decode rounds whose target ran from a graph; of a drafter pass, of its kernels",
    better=HIGHER,
)
SAME_OUTPUT = Figure(
    "same_output",
    "same output",
    "share of requests for which two arms gave the same tokens",
    "harness/metrics/same_requests.py",
    better=HIGHER,
)
FAILED_REQUESTS = Figure(
    "failed_requests",
    "failed requests",
    "requests that ended in an error or were aborted",
    "harness/metrics/metrics.py",
    block="num_failed_requests",
)
ACCURACY = Figure(
    "accuracy",
    "accuracy",
    "score of a task, paired item by item; lower is better where lm-eval says so",
    "harness/metrics/accuracy.py",
    better=HIGHER,
)

COMPARED = (STEP_MS, TOKENS_PER_STEP, TPOT_MS, TPS, TTFT_MS)
"""The figures by which two sides are compared: A/B, stored runs, timed gates; a history tracks them too."""
COUNTED = (
    *(ACCEPTANCE_LENGTH, ACCEPTANCE_BY_POSITION, SYNCS_PER_ROUND, LAUNCHES_PER_ROUND, GRAPH_SHARE),
    *(SAME_OUTPUT, FAILED_REQUESTS, ACCURACY),
)
"""Figures that gates check by their own rules."""
OWN = (*COMPARED, *COUNTED, ITL_MS, TOKENS_PER_FORWARD, E2EL_MS, GOODPUT)
