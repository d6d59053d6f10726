"""The long report of a run: comparison, speed-up, latency, acceptance, rounds, accounting, failures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from specbench.harness.metrics.figures import SYNCS_PER_ROUND, TPOT_MS, TPS
from specbench.harness.store.results import ArmSummary
from specbench.reports.cells import (
    NOTHING,
    TPOT_RATIO,
    factor,
    median,
    median_ms,
    milliseconds,
    number,
    percent,
    pooled,
    row_name,
    share,
    tpot_ratio,
)
from specbench.reports.document import Document, Section, Table, table_of
from specbench.reports.markdown import markdown_document, markdown_pictures
from specbench.reports.run.ablation_table import ablation_table
from specbench.reports.run.accuracy_table import accuracy_tables
from specbench.reports.run.comparison import comparison_table
from specbench.reports.run.group_tables import category_tables, group_tables
from specbench.reports.run.percentiles import medians, percentile_tables
from specbench.reports.run.recipe_table import recipe_table
from specbench.reports.run.view import RunView

Cells: TypeAlias = dict[str, Callable[[ArmSummary], str]]


def markdown_report(view: RunView, plots: Sequence[str] = ()) -> str:
    """`plots`: paths of pictures, relative to the directory of the text."""
    return markdown_document(run_document(view)) + markdown_pictures(plots)


def run_document(view: RunView) -> Document:
    """Leaves out tables without rows."""
    measured = [arm for arm in view.arms if arm.num_repeats]
    compared = [arm for arm in measured if arm.speedup]
    drafted = [arm for arm in measured if arm.acceptance and arm.acceptance.num_verifications]
    predicted = [arm for arm in measured if arm.median("accounting.predicted_tpot_ms") is not None]
    tables = [
        comparison_table(view),
        *requested_tables(view),
        _table(_speedup_title(view), _SPEEDUP, compared, _SPEEDUP_NOTE),
        _table("Latency and throughput", _LATENCY, measured, _LATENCY_NOTE),
        *percentile_tables(medians(measured)),
        _table("Acceptance", _ACCEPTANCE, drafted, _ACCEPTANCE_NOTE),
        *group_tables(drafted),
        _table("Acceptance as vLLM and SGLang report it", _PEERS, measured, _PEERS_NOTE),
        _table("Rounds", _ROUNDS, measured, _ROUNDS_NOTE),
        _logprobs(measured),
        _phases(measured),
        _table("Does it add up?", _ACCOUNTING, predicted, _ACCOUNTING_NOTE),
    ]
    failures = tuple(f"{arm.label}: {arm.error}" for arm in view.arms if arm.error)
    sections = [Section(title="", tables=tuple(table for table in tables if table.rows))]
    sections += [Section(title="Failures", sentences=failures)] if failures else []
    return Document(title=view.record.label or "specbench", sections=tuple(sections))


def _speedup_title(view: RunView) -> str:
    return "Factors against the baseline" if view.record.is_imported else "Speed-up against no speculation"


def requested_tables(view: RunView) -> list[Table]:
    """Tables beyond the comparison that the run was made for: of a recipe, an ablation, several data sets, an
    evaluation."""
    return [*purpose_tables(view), *category_tables(view), *accuracy_tables(view)]


def purpose_tables(view: RunView) -> list[Table]:
    """The tables of a recipe and of an ablation."""
    return [table for table in (recipe_table(view), ablation_table([view])) if table is not None]


def _table(title: str, columns: Cells, arms: Sequence[ArmSummary], note: str) -> Table:
    return table_of(title, {"strategy": row_name, **columns}, arms, (note,))


def _logprobs(arms: Sequence[ArmSummary]) -> Table:
    """The table of a run that has log-probabilities."""
    scored = [arm for arm in arms if arm.group("logprobs")]
    return _table("Log-probabilities", _LOGPROBS, scored, _LOGPROBS_NOTE)


def _phases(arms: Sequence[ArmSummary]) -> Table:
    """Median ms per round by phase; instrumented captures in separate rows."""
    kinds = {"": "phases_ms.plain", " (instrumented)": "phases_ms.instrumented"}
    rows = [(row_name(arm) + mark, arm.group(name)) for arm in arms for mark, name in kinds.items()]
    rows = [(name, phases) for name, phases in rows if phases]
    headers = list(dict.fromkeys(phase for _, phases in rows for phase in phases))
    return Table(
        title="Phases",
        headers=("strategy", *headers),
        rows=tuple((name, *(milliseconds(phases.get(phase)) for phase in headers)) for name, phases in rows),
        notes=("Median ms per decode round. Instrumented rows show how a round splits, never how fast it is.",),
    )


def _tps_ratio(arm: ArmSummary) -> str:
    speedup = arm.speedup
    if speedup is None or speedup.tps_ratio is None or speedup.tps_ratio_min is None:
        return factor(speedup.tps_ratio if speedup else None)
    return f"{factor(speedup.tps_ratio)} ({speedup.tps_ratio_min:.2f} to {speedup.tps_ratio_max:.2f})"


def _histogram(arm: ArmSummary) -> str:
    return " ".join(map(str, arm.acceptance.accepted_histogram)) if arm.acceptance else NOTHING


def _graphs(arm: ArmSummary) -> str:
    return ", ".join(f"{name}: {number(count)}" for name, count in arm.group("rounds_by_graph").items()) or NOTHING


def _drafts(arm: ArmSummary) -> str:
    """One number, or the mean and the share of rounds with each."""
    shares = arm.group("rounds_by_drafts")
    if len(shares) < 2:
        return number(arm.median("drafts_per_round"))
    each = ", ".join(f"{count}: {share(part)}" for count, part in sorted(shares.items(), key=lambda one: int(one[0])))
    return f"{number(arm.median('drafts_per_round'))} ({each})"


def _residual(arm: ArmSummary) -> str:
    plain = arm.median("accounting.residual")
    if plain is not None:
        return percent(plain)
    return percent(arm.median("accounting.residual_instrumented")) + " (instrumented)"


_SPEEDUP: Cells = {
    TPOT_RATIO: lambda arm: tpot_ratio(arm.speedup),
    "TPS (x) (min to max)": _tps_ratio,
    "prompts": lambda arm: str(arm.speedup.num_prompts) if arm.speedup else NOTHING,
    "pairs": lambda arm: str(arm.speedup.num_pairs) if arm.speedup else NOTHING,
    "same output": lambda arm: share(arm.speedup.same_output_rate if arm.speedup else None),
}
_SPEEDUP_NOTE = (
    "TPOT (x): baseline / arm, paired by prompt and repeat, geometric mean; bootstrap over blocks and prompts. "
    "TPS (x): arm / baseline. Above 1, the arm is faster."
)
_LATENCY: Cells = {
    f"{TPOT_MS.name} mean": median_ms(TPOT_MS.block),
    "by token": median_ms("tpot_ms.weighted"),
    "ICL p50": median_ms("icl_ms.p50"),
    "E2E/token": median_ms("e2e_per_token_ms"),
    "TPS/user": median("tps_per_user"),
    TPS.name: median(TPS.block),
    "steady TPS": median("steady_tps"),
    "decode TPS": median("decode_tps"),
    "requests/s": median("requests_per_s"),
}
_LATENCY_NOTE = (
    "Times in ms. TPOT: (last - first token) / (tokens - 1). TPS: output tokens / (first submit to last token). "
    "Steady TPS: while the number of running requests is at its maximum. Decode TPS: tokens of decode "
    "rounds / time in them."
)
_LOGPROBS: Cells = {"output mean": median("logprobs.output"), "prompt mean": median("logprobs.prompt")}
_LOGPROBS_NOTE = "Mean of a token in nats, from the target's unmodified logits. Every token's: logprobs.parquet."
_ACCEPTANCE: Cells = {
    "AL pooled": pooled(lambda a: a.acceptance_length),
    "AL by request": pooled(lambda a: a.acceptance_length_by_request),
    "tokens/forward": pooled(lambda a: a.tokens_per_forward),
    "accepted/drafted": pooled(lambda a: a.draft_acceptance_rate),
    "accepted/depth": pooled(lambda a: a.accepted_depth_rate),
    "marginal by position": pooled(lambda a: a.marginal),
    "conditional by position": pooled(lambda a: a.conditional),
    "verifications accepting 0, 1, ...": _histogram,
    "forwards without drafts": pooled(lambda a: a.num_forwards_without_draft),
    "truncated tokens": pooled(lambda a: a.num_truncated_tokens),
}
_ACCEPTANCE_NOTE = (
    "AL: 1 + accepted drafts / verifications with drafts. Tokens per forward counts every decode forward and only "
    "kept tokens. Marginal: the first i drafts were accepted; conditional: the i-th, given those before it. "
    "Accepted/drafted is not given for trees."
)
_PEERS: Cells = {
    "vLLM mean acceptance length": pooled(lambda a: a.peers.vllm.mean_acceptance_length),
    "vLLM draft acceptance rate": pooled(lambda a: a.peers.vllm.draft_acceptance_rate),
    "vLLM per position": pooled(lambda a: a.peers.vllm.per_position),
    "SGLang accept length": pooled(lambda a: a.peers.sglang.accept_length),
    "SGLang accept rate": pooled(lambda a: a.peers.sglang.accept_rate),
    "SGLang avg_spec_accept_length": pooled(lambda a: a.peers.sglang.avg_spec_accept_length),
}
_PEERS_NOTE = "The same step log under the definitions of vLLM's and SGLang's own counters."
_ROUNDS: Cells = {
    "decode rounds": median("num_decode_rounds"),
    "mixed steps": median("num_mixed_steps"),
    "round p50 ms": median_ms("round_ms.p50"),
    "round p99 ms": median_ms("round_ms.p99"),
    "gap mean ms": median_ms("gap_ms.mean"),
    SYNCS_PER_ROUND.name: median(SYNCS_PER_ROUND.block),
    "requests/round": median("mean_batch_size"),
    "drafts/round": _drafts,
    "rounds by graph": _graphs,
}
_ROUNDS_NOTE = (
    "Medians over repeats. A round lasts from the end of the step before it to its own end. drafts/round: offered to "
    "the verification of a request; in brackets, the share of the rounds with each number."
)
_ACCOUNTING: Cells = {
    "TPOT ms": median_ms("accounting.tpot_ms"),
    "predicted ms": median_ms("accounting.predicted_tpot_ms"),
    "residual": _residual,
    "tokens/decode forward": median("accounting.tokens_per_decode_forward"),
    "mixed steps ms/token": median_ms("accounting.mixed_ms_per_token"),
}
_ACCOUNTING_NOTE = (
    "Predicted: (sum of the phases' means + mean gap) / tokens per forward, plus the share of mixed steps. "
    "A residual beyond 3% means that the phases do not explain the speed."
)
