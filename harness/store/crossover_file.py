"""The content of `crossover.json`: every arm at every load, its break-even, and which arm is best."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from specbench.harness.spec.table_records import SweepArm
from specbench.harness.stats.crossover import BreakEven, Ratio
from specbench.harness.stats.slos import Slos
from specbench.harness.store.inputs_record import WorkloadRecord
from specbench.harness.store.roofline_record import IdealArm, Machine

SCHEMA, RECORD_FILE = "specbench.crossover/1", "crossover.json"
NO_VERDICT = "no verdict: "


@dataclass(frozen=True, kw_only=True, slots=True)
class Goodput:
    """Requests per second that met all limits, and their share of all requests: medians over blocks."""

    requests_per_s: float
    share: float


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadCell:
    """An arm's figures at one load, in the run with the id `run`: medians over blocks, speed-ups over no-spec (None for
    no-spec itself), and the roofline's limit. `doubts`: marks of its row in that run. `goodput`: if limits were set."""

    load: int
    run: str
    status: str
    error: str
    num_blocks: int
    tps_median: float | None
    tpot_ms: float | None
    tpot: Ratio | None
    tps: Ratio | None
    ideal: IdealArm | None
    doubts: tuple[str, ...] = ()
    goodput: Goodput | None = None

    def speedup(self, figure: str) -> Ratio | None:
        return {"tpot": self.tpot, "tps": self.tps}[figure]


@dataclass(frozen=True, kw_only=True, slots=True)
class CrossoverArm:
    """Arms of a family differ in their number of drafts. `crossing`: by figure, and `ideal`; None: no curve, or it
    would mislead, as a note that begins with NO_VERDICT explains."""

    label: str
    family: str
    num_drafts: int | None
    notes: tuple[str, ...]
    points: tuple[LoadCell, ...]
    crossing: Mapping[str, BreakEven | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class BestArm:
    """The fastest of a family's `num_arms` at a load by one figure. `share`: of the resamples in which it is the
    fastest; None if an arm has no interval."""

    family: str
    figure: str
    load: int
    label: str
    num_drafts: int | None
    num_arms: int
    ratio: float
    share: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class DescribedMachine(Machine):
    described: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Crossover:
    """`num_blocks`: by run id. `method`: how the intervals were computed. From `sweep_id` on: for a sweep only. `slos`:
    the limits that define the goodput of its cells."""

    schema: str = SCHEMA
    baseline: str
    loads: tuple[int, ...]
    num_blocks: Mapping[str, int]
    num_prompts: int
    method: str
    arms: tuple[CrossoverArm, ...]
    best: tuple[BestArm, ...]
    sweep_id: str
    status: str
    command: str
    asked_loads: tuple[int, ...] = ()
    refused: tuple[SweepArm, ...] = ()
    notes: tuple[str, ...] = ()
    machine: DescribedMachine | None = None
    hardware: str = ""
    workload: WorkloadRecord | None = None
    model: str | None = None
    slos: Slos = field(default_factory=dict)

    def is_baseline(self, label: str) -> bool:
        """Whether the arm is an engine's without speculation: `no-spec`, `vllm/no-spec`."""
        return label.partition(":")[0].rpartition("/")[2] == self.baseline
