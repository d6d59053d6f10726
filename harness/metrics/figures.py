"""The figures that tables, A/B, gates, history and site are about: what each is called and means, and what it takes.

A constant is the key in capitals. Another package registers one of its own, with `of_block`, in the group
`specbench.figures`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from specbench.harness.store.facts import Fact

if TYPE_CHECKING:
    import pandas as pd

LOWER, HIGHER = "lower", "higher"


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """key: in policies, records and CSV. name: in tables. better: lower or higher. source: where it is defined or
    computed. block: its name in the figures of a block, empty for what is known of an arm or of two only. fact: what an
    engine must know for it. gated: A/B and comparisons give it a verdict, not its change alone. title: of charts.
    of_block: another package's figure from the requests, steps and phases of a block; None without data."""

    key: str
    name: str
    definition: str
    source: str
    better: str = LOWER
    unit: str = ""
    block: str = ""
    fact: Fact | None = None
    gated: bool = True
    title: str = ""
    of_block: Callable[[pd.DataFrame, pd.DataFrame, pd.DataFrame], float | None] | None = None

    @property
    def heading(self) -> str:
        """Of a column: the name with its unit."""
        return f"{self.name} {self.unit}".strip()


_latency = partial(Figure, source="harness/metrics/latency.py")
_accounting = partial(Figure, source="harness/metrics/accounting.py")
_acceptance = partial(Figure, source="harness/metrics/acceptance.py", better=HIGHER, fact=Fact.ACCEPTANCE)
_trace = partial(Figure, source="profile.json of the run", fact=Fact.GRAPHS)

STEP_MS = _accounting(
    key="step_ms",
    name="step time",
    title="Step time, ms",
    unit="ms",
    block="round_ms.p50",
    fact=Fact.ROUNDS,
    definition="median duration of the decode rounds of a block, gaps in front included",
)
TOKENS_PER_STEP = _acceptance(
    key="tokens_per_step",
    name="tokens per step",
    title="Tokens per step",
    block="acceptance.tokens_per_forward",
    definition="tokens kept / forwards of requests, those without drafts included; paired by prompt",
)
TPOT_MS = _latency(
    key="tpot_ms",
    name="TPOT",
    title="TPOT, ms",
    unit="ms",
    block="tpot_ms.mean",
    definition="(last - first token) / (tokens - 1) of a request, mean over requests",
)
TPS = _latency(
    key="tps",
    name="TPS",
    title="Tokens per second",
    unit="tokens/s",
    better=HIGHER,
    block="tps",
    gated=False,
    definition="output tokens of all requests / time from the first submit to the last token",
)
TTFT_MS = _latency(
    key="ttft_ms",
    name="TTFT",
    title="TTFT, ms",
    unit="ms",
    block="ttft_ms.mean",
    gated=False,
    definition="first token - submit, mean over requests",
)
ITL_MS = _latency(
    key="itl_ms",
    name="ITL",
    unit="ms",
    block="itl_ms.mean",
    definition="gap between tokens; of m tokens that come at once, one gap and m - 1 zeros",
)
ACCEPTANCE_LENGTH = _acceptance(
    key="acceptance_length",
    name="AL",
    block="acceptance.acceptance_length",
    definition="1 + accepted drafts / verifications that had drafts (vLLM's mean acceptance length)",
)
TOKENS_PER_FORWARD = _acceptance(
    key="tokens_per_forward",
    name="tokens/forward",
    block="acceptance.tokens_per_forward",
    definition="tokens kept / forwards of requests, those without drafts included; all repeats pooled",
)
SYNCS_PER_ROUND = _accounting(
    key="syncs_per_round",
    name="syncs/round",
    title="Synchronisations a round",
    block="syncs_per_round",
    fact=Fact.SYNCS,
    definition="host synchronisations that block, mean over decode rounds",
)
LAUNCHES_PER_ROUND = _trace(
    key="launches_per_round",
    name="launches/round",
    definition="eager kernel launches and graph launches in a decode round",
)
GRAPH_SHARE = _trace(
    key="graph_share",
    name="graph share",
    better=HIGHER,
    definition="share of decode rounds whose target ran from a graph; of a drafter pass, share of its kernels",
)
SAME_OUTPUT = Figure(
    key="same_output",
    name="same output",
    source="harness/metrics/same_requests.py",
    better=HIGHER,
    definition="share of the requests of two arms that gave the same tokens",
)
FAILED_REQUESTS = Figure(
    key="failed_requests",
    name="failed requests",
    source="harness/metrics/metrics.py",
    block="num_failed_requests",
    definition="requests that ended in an error or were aborted",
)
ACCURACY = Figure(
    key="accuracy",
    name="accuracy",
    source="lm-eval; harness/metrics/accuracy.py",
    better=HIGHER,
    definition="score of a task's metric, paired item by item; the other way round where lm-eval says so",
)

COMPARED = (STEP_MS, TOKENS_PER_STEP, TPOT_MS, TPS, TTFT_MS)
"""What two sides are compared by: A/B, stored runs, timed gates; a history follows them too."""
OWN = (
    *COMPARED,
    ITL_MS,
    ACCEPTANCE_LENGTH,
    TOKENS_PER_FORWARD,
    SYNCS_PER_ROUND,
    LAUNCHES_PER_ROUND,
    GRAPH_SHARE,
    SAME_OUTPUT,
    FAILED_REQUESTS,
    ACCURACY,
)
