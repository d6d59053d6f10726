"""What a terminal shows below the answer of a run: one table that fits its width, and what was run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from specbench.harness.metrics import figures
from specbench.harness.store.environment import GitState
from specbench.harness.store.inputs_record import ModelRecord, SamplingRecord, WorkloadRecord
from specbench.harness.store.results import ArmSummary
from specbench.reports.cells import NOTHING, acceptance_length, counted, median, median_ms, pooled, row_name, tps_spread
from specbench.reports.document import Table, fitting, table_of
from specbench.reports.run.answer import equal_outputs, ratio_text
from specbench.reports.run.comparison import goodput_column, more_columns
from specbench.reports.run.notes import reasons
from specbench.reports.run.view import RunView

_BARS = "▁▂▃▄▅▆▇█"


def brief_table(view: RunView, width: int | None) -> Table:
    """The comparison below the answer. Columns that do not fit into `width` characters are left out, the least
    informative first. The notes are marks, reasons for missing figures, and what was run."""
    first = {name: _FIRST[name] for name in list(_FIRST)[:2]}
    columns = {**first, **goodput_column(view), **_FIRST, **more_columns(view), **_LAST}
    shown = {name: cell for name, cell in columns.items() if any(cell(arm) != NOTHING for arm in view.arms)}
    table = fitting(table_of("", shown, view.arms), width)
    marks = [f"{arm.label}: {'; '.join(arm.marks)}" for arm in view.arms if arm.marks]
    return replace(table, notes=(*marks, *reasons(view), *about(view)))


def bars(rates: Sequence[float | None]) -> str:
    """`0.68 ▆▄▃▂`: the first rate, then the rates of all positions as bars between 0 and 1."""
    if not rates:
        return NOTHING
    drawn = "".join(" " if rate is None else _BARS[min(int(rate * len(_BARS)), len(_BARS) - 1)] for rate in rates)
    return f"{NOTHING if rates[0] is None else f'{rates[0]:.2f}'} {drawn}"


def _how(sampling: SamplingRecord) -> list[str]:
    """The load, and what differs from plain greedy decoding."""
    s = sampling
    said = {
        f"concurrency {s.max_concurrency}": s.max_concurrency is not None,
        s.said_temperature: bool(s.said_temperature),
        f"top_k={s.top_k}": bool(s.top_k),
        f"top_p={s.top_p}": s.top_p not in (None, 1.0),
        s.edits: bool(s.edits),
        "ignore_eos": bool(s.ignore_eos),
        f"stop={list(s.stop)}": bool(s.stop),
        f"logprobs={s.logprobs}": s.logprobs is not None,
        f"prompt_logprobs={s.prompt_logprobs}": s.prompt_logprobs is not None,
        f"seed {s.seed}": True,
    }
    return [words for words, is_said in said.items() if is_said]


def about(view: RunView) -> list[str]:
    """The prompts, the model and the machine: a line each."""
    record = view.record
    workload, sampling = record.workload or WorkloadRecord(), record.sampling
    num_repeats = max((arm.num_repeats for arm in view.arms), default=0)
    how = [] if sampling is None else _how(sampling)
    num_prompts = "?" if workload.num_prompts is None else workload.num_prompts
    prompts = f"{num_prompts} prompts of {workload.name or 'an unknown data set'}"
    digest = f"sha256 {workload.sha256[:12]}" if workload.sha256 else "no digest"
    model = record.model or ModelRecord(name=record.config.model if record.config else None)
    devices = f"{model.num_ranks} x {model.device}" if model.num_ranks else model.device
    quantized = f"({model.arithmetic})" if model.arithmetic else ""
    words = (model.name, model.dtype, quantized, f"on {devices}" if devices else "")
    served = " ".join(word for word in words if word)
    engine = f"engine {record.config.engine}" if record.config and record.config.engine != "specbench" else ""
    where = [served, engine, record.environment.describe_hardware(), _revision(record.git) if record.git else ""]
    unfinished = [] if record.status == "complete" else [f"{record.run_id} ({view.status})"]
    return [
        *unfinished,
        f"{prompts} ({digest}), {', '.join([*how, counted(num_repeats, 'repeat')])}",
        ", ".join(word for word in where if word),
    ]


def _revision(git: GitState) -> str:
    return f"specbench {(git.sha or 'of no commit')[:12]}{' with local changes' if git.dirty else ''}"


def _same_output(arm: ArmSummary) -> str:
    """`8/8`."""
    num_same, num_pairs = equal_outputs(arm)
    return f"{num_same}/{num_pairs}" if num_pairs else NOTHING


_FIRST: Mapping[str, Callable[[ArmSummary], str]] = {
    "strategy": row_name,
    "speed-up [95% CI]": ratio_text,
    figures.TPS.name: median(figures.TPS.block),
    figures.TPOT_MS.heading: median_ms(figures.TPOT_MS.block),
    "AL": lambda arm: acceptance_length(arm.acceptance).partition(" ")[0],
    "accepted": lambda arm: bars(arm.acceptance.marginal if arm.acceptance else ()),
    "same output": _same_output,
}
_LAST: Mapping[str, Callable[[ArmSummary], str]] = {
    "TPS spread": tps_spread,
    figures.TTFT_MS.heading: median_ms(figures.TTFT_MS.block),
    figures.TOKENS_PER_FORWARD.heading: pooled(lambda a: a.tokens_per_forward),
    figures.SYNCS_PER_ROUND.heading: median(figures.SYNCS_PER_ROUND.block),
}
