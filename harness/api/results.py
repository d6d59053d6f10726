"""Results as pandas frames: of a run, a sweep or an A/B experiment."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from specbench.harness.stats.slos import Slos, parse_slos

if TYPE_CHECKING:
    import pandas as pd

    from specbench.harness.store.ab_judgement import Judgement
    from specbench.harness.store.crossover_file import Crossover
    from specbench.harness.store.results import Results
    from specbench.harness.store.run_directory import RunDirectory
    from specbench.harness.store.run_record import RunRecord
    from specbench.harness.store.schema import Frames
    from specbench.harness.store.sweep_directory import SweepDirectory

AnyPath = str | os.PathLike[str]


@dataclass(frozen=True)
class Run:
    """A stored run, finished or not. The columns of its raw tables: `specbench.harness.store.schema`; times are in ns.

    run = specbench.open_run("runs/20260101T000000Z-run-1a2b3c4d")
    run.requests.groupby("arm")["num_output_tokens"].sum()

    `slos`: the limits that define its goodput; without limits there is none.
    """

    directory: RunDirectory
    slos: Slos = field(default_factory=dict)

    @property
    def path(self) -> Path:
        return self.directory.path

    @property
    def status(self) -> str:
        """running, complete, interrupted, or failed: nothing was measured."""
        return self.directory.status

    @property
    def record(self) -> RunRecord:
        """The content of `run.json`: what was run, where, on what, and the figures derived at the end."""
        return self.directory.record

    @property
    def requests(self) -> pd.DataFrame:
        """One row per request: its tokens, and the times of its submission and of its first and last token."""
        return self._frames.requests

    @property
    def prompts(self) -> pd.DataFrame:
        """One row per prompt, in the order of submission: prompt_id as in `requests`, token_ids, max_tokens,
        category. Empty for runs from before prompts were stored."""
        from specbench.harness.store.prompts import read_prompts

        return read_prompts(self.path).to_pandas()

    @property
    def steps(self) -> pd.DataFrame:
        """One row per request and engine step: drafts proposed and accepted, tokens emitted, times."""
        return self._frames.steps

    @property
    def phases(self) -> pd.DataFrame:
        """One row per phase of a round, if phases were timed."""
        return self._frames.phases

    @property
    def logprobs(self) -> pd.DataFrame:
        """One row per request and part (prompt or output), for a run that stored log-probabilities."""
        return self._frames.logprobs

    def table(self) -> pd.DataFrame:
        """One row per arm, in the order of the run's options; every figure is the median over its repeats.

        Columns in addition to the figures of `blocks`: strategy, status, error, num_repeats, acceptance_length (tokens
        per verification, all repeats pooled), speedup and tpot_speedup (of TPS and TPOT over the run's baseline); if
        limits were set, goodput.requests_per_s and goodput.share.
        """
        import pandas as pd

        rows = [
            {
                "arm": arm.label,
                "strategy": arm.strategy,
                "status": arm.status,
                "error": arm.error,
                "num_repeats": arm.num_repeats,
                "acceptance_length": arm.acceptance.acceptance_length if arm.acceptance else None,
                "speedup": arm.speedup.tps_ratio if arm.speedup else None,
                "tpot_speedup": arm.speedup.tpot_ratio if arm.speedup else None,
                **{name: spread.median for name, spread in arm.spreads.items()},
            }
            for arm in self._results.arms
        ]
        return pd.DataFrame(rows).set_index("arm")

    def blocks(self) -> pd.DataFrame:
        """One row per measured block (an arm's repeat): its figures by dotted name, as `tps` and `tpot_ms.mean`."""
        import pandas as pd

        self.directory.check_has_tables()
        found = {block: figures.values for block, figures in self._results.by_block().items()}
        index = pd.MultiIndex.from_tuples(sorted(found), names=["arm", "repeat"])
        return pd.DataFrame([found[block] for block in index], index=index)

    def write_reports(self) -> list[Path]:
        """Writes report.md, report.json and plots into the run's directory; returns the files."""
        from specbench.reports.run.report import write_reports

        return write_reports(self.directory, self.slos)

    @property
    def _results(self) -> Results:
        from specbench.harness.metrics.goodput import with_goodput
        from specbench.harness.metrics.run_results import results_of

        found = results_of(self.directory)
        return with_goodput(found, self._frames.requests, self.slos) if self.slos else found

    @property
    def _frames(self) -> Frames:
        self.directory.check_has_tables()
        return self.directory.frames()


@dataclass(frozen=True)
class Sweep:
    """A stored sweep: a run for each load.

    sweep = specbench.open_sweep("runs/20260101T000000Z-sweep-1a2b3c4d")
    sweep.table().pivot(index="arm", columns="max_concurrency", values="tps_speedup")

    `slos`: as for a run.
    """

    directory: SweepDirectory
    slos: Slos = field(default_factory=dict)

    @property
    def path(self) -> Path:
        return self.directory.path

    @property
    def status(self) -> str:
        return self.directory.status

    @property
    def runs(self) -> dict[int, Run]:
        """The runs by load, as far as they were started."""
        return {load: Run(run, self.slos) for load, run in self.directory.runs().items()}

    @property
    def record(self) -> Crossover:
        """The content of `crossover.json`: every arm at every load, break-even concurrencies, and the best at each
        load."""
        from specbench.harness.judge.sweep_figures import sweep_record

        return sweep_record(self.directory, self.slos)

    def table(self) -> pd.DataFrame:
        """One row per arm and load: its speed-ups of TPOT and TPS over no-spec, with 95 % intervals; if limits were
        set, its goodput."""
        import pandas as pd

        rows = []
        for arm in self.record.arms:
            for point in arm.points:
                row: dict[str, object] = {"arm": arm.label, "max_concurrency": point.load}
                for figure in ("tpot", "tps"):
                    found = point.speedup(figure)
                    row[f"{figure}_speedup"] = found and found.ratio
                    row |= {f"{figure}_speedup_{end}": found and getattr(found, end) for end in ("low", "high")}
                if point.goodput is not None:
                    row |= {f"goodput.{name}": value for name, value in asdict(point.goodput).items()}
                rows.append(row)
        return pd.DataFrame(rows)


@dataclass(frozen=True)
class AbResult:
    """A stored A/B experiment.

    result = specbench.ab("eagle:k=2", "eagle:k=4", num_prompts=20)
    result.verdict, result.table().loc["TPOT", ["change", "low", "high"]]
    """

    run: Run

    @property
    def path(self) -> Path:
        return self.run.path

    @property
    def record(self) -> Judgement:
        """The content of `ab.json`: blocks, comparisons, verdict, exit code; judged anew."""
        from specbench.harness.judge.ab_verdict import judge

        return judge(self.run.directory)

    @property
    def verdict(self) -> str:
        """improved, regressed, equivalent, inconclusive or mixed; or why there is none, as `exploratory`."""
        return self.record.verdict

    def table(self) -> pd.DataFrame:
        """One row per metric: both sides, the change from A to B as a fraction, its 95 % interval, the verdict."""
        import pandas as pd

        rows = [{**asdict(found), "metric": found.metric.name} for found in self.record.metrics]
        return pd.DataFrame(rows).set_index("metric").drop(columns="pairs")


def open_run(path: AnyPath, *, goodput: Sequence[str] = ()) -> Run:
    """A run stored by `specbench run`. `goodput`: limits in ms, as ("ttft:500", "tpot:50"). ValueError, saying what to
    do, if it is not a run."""
    from specbench.harness.store.run_directory import RunDirectory

    return Run(RunDirectory.open(path), parse_slos(goodput))


def open_sweep(path: AnyPath, *, goodput: Sequence[str] = ()) -> Sweep:
    """A sweep stored by `specbench sweep`. `goodput` and ValueError as for a run."""
    from specbench.harness.store.sweep_directory import SweepDirectory

    return Sweep(SweepDirectory.open(path), parse_slos(goodput))


def open_ab(path: AnyPath) -> AbResult:
    """An experiment stored by `specbench ab`. ValueError if it is not one."""

    run = open_run(path)
    if run.record.ab is None:
        raise ValueError(f"{run.path}: not an A/B experiment; read it with specbench.open_run")
    return AbResult(run)
