"""The long report in Markdown: comparison, speed-up, latency, acceptance, rounds and accounting, how to repeat it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from specbench.harness.store.results import Acceptance, ArmSummary
from specbench.reports.cells import milliseconds, number, percent, rates, row_name
from specbench.reports.run.view import RunView
from specbench.reports.table import (
    asked_tables,
    escape_markdown,
    markdown_comparison,
    markdown_result,
    markdown_table,
)


def markdown_report(view: RunView, plots: Sequence[str] = ()) -> str:
    """`plots`: paths of pictures, relative to where the text will lie."""
    measured = [arm for arm in view.arms if arm.num_repeats]
    drafted = [arm for arm in measured if arm.acceptance and arm.acceptance.num_verifications]
    sections = [
        f"# {escape_markdown(view.record.label or 'specbench')}\n\n{markdown_comparison(view)}",
        *(markdown_result(table) for table in asked_tables(view)),
        _section("Speed-up against no speculation", _SPEEDUP, [a for a in measured if a.speedup], _SPEEDUP_NOTE),
        _section("Latency and throughput", _LATENCY, measured, _LATENCY_NOTE),
        _section("Acceptance", _ACCEPTANCE, drafted, _AL_NOTE),
        _section("Acceptance as peers would print it", _PEERS, measured, _PEERS_NOTE),
        _section("Rounds", _ROUNDS, measured, _ROUNDS_NOTE),
        _phases(measured),
        _section("Does it add up?", _ACCOUNTING, [a for a in measured if _predicted(a)], _ACCOUNTING_NOTE),
        _failures(view.arms),
        _pictures(plots),
    ]
    return "\n".join(section for section in sections if section)


def _section(title: str, columns: dict[str, Callable[[ArmSummary], str]], arms: Sequence[ArmSummary], note: str) -> str:
    if not arms:
        return ""
    rows = [[row_name(arm), *(cell(arm) for cell in columns.values())] for arm in arms]
    return f"## {title}\n\n{markdown_table(['strategy', *columns], rows)}\n\n{note}\n"


def _median(name: str) -> Callable[[ArmSummary], str]:
    return lambda arm: number(arm.median(name))


def _ms(name: str) -> Callable[[ArmSummary], str]:
    return lambda arm: milliseconds(arm.median(name))


def _pooled(figure: Callable[[Acceptance], float | Sequence[float | None] | None]) -> Callable[[ArmSummary], str]:
    def cell(arm: ArmSummary) -> str:
        value = figure(arm.acceptance) if arm.acceptance else None
        return rates(value) if isinstance(value, Sequence) else number(value)

    return cell


def _paired(arm: ArmSummary) -> str:
    speedup = arm.speedup
    assert speedup is not None
    if speedup.tpot_ratio is None:
        return "-"
    ends = "" if speedup.tpot_ratio_low is None else f" [{speedup.tpot_ratio_low:.3f}, {speedup.tpot_ratio_high:.3f}]"
    return f"{speedup.tpot_ratio:.3f}{ends}"


def _tps_extremes(arm: ArmSummary) -> str:
    speedup = arm.speedup
    assert speedup is not None
    if speedup.tps_ratio is None or speedup.tps_ratio_min is None:
        return number(speedup.tps_ratio)
    return f"{speedup.tps_ratio:.3f} ({speedup.tps_ratio_min:.3f} to {speedup.tps_ratio_max:.3f})"


def _histogram(arm: ArmSummary) -> str:
    assert arm.acceptance is not None
    return " ".join(map(str, arm.acceptance.accepted_histogram))


def _graphs(arm: ArmSummary) -> str:
    return ", ".join(f"{name}: {number(count)}" for name, count in arm.group("rounds_by_graph").items()) or "-"


def _predicted(arm: ArmSummary) -> bool:
    return arm.median("accounting.predicted_tpot_ms") is not None


def _residual(arm: ArmSummary) -> str:
    plain = arm.median("accounting.residual")
    return (
        percent(arm.median("accounting.residual_instrumented")) + " (instrumented)" if plain is None else percent(plain)
    )


_SPEEDUP: dict[str, Callable[[ArmSummary], str]] = {
    "TPOT ratio [95% CI]": _paired,
    "TPS ratio (min to max)": _tps_extremes,
    "prompts": lambda arm: str(arm.speedup.num_prompts) if arm.speedup else "-",
    "pairs": lambda arm: str(arm.speedup.num_pairs) if arm.speedup else "-",
    "same output": lambda arm: percent(arm.speedup.same_output_rate).lstrip("+") if arm.speedup else "-",
}
_SPEEDUP_NOTE = (
    "TPOT ratio: baseline / arm, paired by prompt and repeat, geometric mean; bootstrap over prompts. "
    "Above 1 the arm is faster."
)
_LATENCY: dict[str, Callable[[ArmSummary], str]] = {
    "TPOT mean": _ms("tpot_ms.mean"),
    "by token": _ms("tpot_ms.weighted"),
    "p50": _ms("tpot_ms.p50"),
    "p90": _ms("tpot_ms.p90"),
    "p99": _ms("tpot_ms.p99"),
    "TTFT p50": _ms("ttft_ms.p50"),
    "TTFT p99": _ms("ttft_ms.p99"),
    "burst ITL p99": _ms("itl_ms.p99"),
    "ICL p50": _ms("icl_ms.p50"),
    "E2E/token": _ms("e2e_per_token_ms"),
    "TPS/user": _median("tps_per_user"),
    "TPS": _median("tps"),
    "steady TPS": _median("steady_tps"),
    "decode TPS": _median("decode_tps"),
    "requests/s": _median("requests_per_s"),
}
_LATENCY_NOTE = (
    "Times in ms. TPOT: (last - first token) / (tokens - 1). TPS: output tokens / (first submit to last token). "
    "Steady TPS: while the most requests were in service. Decode TPS: tokens of decode rounds / time in them."
)
_ACCEPTANCE: dict[str, Callable[[ArmSummary], str]] = {
    "AL pooled": _pooled(lambda a: a.acceptance_length),
    "AL by request": _pooled(lambda a: a.acceptance_length_by_request),
    "tokens/forward": _pooled(lambda a: a.tokens_per_forward),
    "accepted/drafted": _pooled(lambda a: a.draft_acceptance_rate),
    "accepted/depth": _pooled(lambda a: a.accepted_depth_rate),
    "marginal by position": _pooled(lambda a: a.marginal),
    "conditional by position": _pooled(lambda a: a.conditional),
    "verifications accepting 0, 1, ...": _histogram,
    "forwards without draft": _pooled(lambda a: a.num_forwards_without_draft),
    "truncated tokens": _pooled(lambda a: a.num_truncated_tokens),
}
_AL_NOTE = (
    "AL: 1 + accepted drafts / verifications with a draft. Tokens per forward counts every decode forward and only "
    "kept tokens. Marginal: the first i drafts were accepted; conditional: the i-th, given those before it. "
    "Accepted/drafted is not given for trees."
)
_PEERS: dict[str, Callable[[ArmSummary], str]] = {
    "vLLM mean acceptance length": _pooled(lambda a: a.peers.vllm.mean_acceptance_length),
    "vLLM draft acceptance rate": _pooled(lambda a: a.peers.vllm.draft_acceptance_rate),
    "vLLM per position": _pooled(lambda a: a.peers.vllm.per_position),
    "SGLang accept length": _pooled(lambda a: a.peers.sglang.accept_length),
    "SGLang accept rate": _pooled(lambda a: a.peers.sglang.accept_rate),
    "SGLang avg_spec_accept_length": _pooled(lambda a: a.peers.sglang.avg_spec_accept_length),
}
_PEERS_NOTE = "The same step log under the definitions of vLLM's and SGLang's own counters."
_ROUNDS: dict[str, Callable[[ArmSummary], str]] = {
    "decode rounds": _median("num_decode_rounds"),
    "mixed steps": _median("num_mixed_steps"),
    "round p50 ms": _ms("round_ms.p50"),
    "round p99 ms": _ms("round_ms.p99"),
    "gap mean ms": _ms("gap_ms.mean"),
    "syncs/round": _median("syncs_per_round"),
    "requests/round": _median("mean_batch_size"),
    "rounds by graph": _graphs,
}
_ROUNDS_NOTE = "Medians over repeats. A round lasts from the end of the step before it to its own end."
_ACCOUNTING: dict[str, Callable[[ArmSummary], str]] = {
    "TPOT ms": _ms("accounting.tpot_ms"),
    "predicted ms": _ms("accounting.predicted_tpot_ms"),
    "residual": _residual,
    "tokens/decode forward": _median("accounting.tokens_per_decode_forward"),
    "mixed steps ms/token": _ms("accounting.mixed_ms_per_token"),
}
_ACCOUNTING_NOTE = (
    "Predicted: (sum of the phases' means + mean gap) / tokens per forward, plus the share of mixed steps. "
    "A residual beyond 3% means that the phases do not explain the speed."
)


def _phases(arms: Sequence[ArmSummary]) -> str:
    """Median ms a round by phase; instrumented captures in rows of their own."""
    kinds = [(arm, kind, arm.group(f"phases_ms.{kind}")) for arm in arms for kind in ("plain", "instrumented")]
    rows = [(arm, kind, phases) for arm, kind, phases in kinds if phases]
    names = list(dict.fromkeys(name for _, _, phases in rows for name in phases))
    if not rows:
        return ""
    labels = [row_name(arm) + (" (instrumented)" if kind == "instrumented" else "") for arm, kind, _ in rows]
    cells = [
        [label, *(milliseconds(phases.get(name)) for name in names)]
        for label, (_, _, phases) in zip(labels, rows, strict=True)
    ]
    note = "Median ms a decode round. Instrumented rows say how a round splits, never how fast it is."
    return f"## Phases\n\n{markdown_table(['strategy', *names], cells)}\n\n{note}\n"


def _failures(arms: Sequence[ArmSummary]) -> str:
    failed = [f"* {escape_markdown(arm.label)}: {escape_markdown(arm.error)}" for arm in arms if arm.error]
    return "## Failures\n\n" + "\n".join(failed) + "\n" if failed else ""


def _pictures(plots: Sequence[str]) -> str:
    lines = [f"![{path.rsplit('/', 1)[-1].removesuffix('.png').replace('_', ' ')}]({path})" for path in plots]
    return "## Plots\n\n" + "\n\n".join(lines) + "\n" if lines else ""
