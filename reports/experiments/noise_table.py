"""The noise floor of a machine as a table: the MDE by number of blocks, and the blocks needed to detect a change."""

from __future__ import annotations

from collections.abc import Callable

from specbench.harness.metrics.figures import TPOT_MS
from specbench.harness.store.noise_record import MetricNoise, NoiseFloor
from specbench.reports.cells import NOTHING, formatted
from specbench.reports.document import Table, table_of


def noise_answer(floor: NoiseFloor) -> str:
    """`With 10 blocks TPOT changes of 4.38% and more are detectable; for 1% it takes 150 blocks.`"""
    tpot = next((m for m in floor.metrics if m.name == TPOT_MS.name), None)
    found = [] if tpot is None else [(n, effect) for n, effect in tpot.least_effect.items() if effect is not None]
    if tpot is None or not found:
        return "The smallest detectable change of TPOT is not known."
    num_blocks, effect = found[len(found) // 2]
    least, needed = next(iter(tpot.blocks_needed.items()))
    more = (
        f"for {float(least):.0%} it takes {needed} blocks"
        if needed
        else f"for {float(least):.0%} no number of blocks is enough"
    )
    return f"With {num_blocks} blocks TPOT changes of {effect:.2%} and more are detectable; {more}."


def noise_table(floor: NoiseFloor) -> Table:
    """Builds it from a noise floor that `specbench power` measured or stored."""
    first = floor.metrics[0]
    columns: dict[str, Callable[[MetricNoise], str]] = {
        "metric": lambda m: m.name,
        "CV in a block": lambda m: f"{m.cv_in_block:.2%}",
        "CV between blocks": lambda m: formatted(m.cv_between_blocks, ".2%"),
        **{f"MDE, {n} blocks": _mde(n) for n in first.least_effect},
        **{f"blocks for {float(effect):.0%}": _blocks_needed(effect) for effect in first.blocks_needed},
        "false verdicts": lambda m: f"{m.false_verdicts:.1%}",
        "n": lambda m: f"{m.num_pairs} {m.pairs}",
    }
    title = f"Noise of A/A: {floor.arm} on {floor.model.name} ({floor.model.device})"
    return table_of(title, columns, floor.metrics, _notes(floor), spare=("n", "false verdicts", "CV between blocks"))


def _mde(num_blocks: str) -> Callable[[MetricNoise], str]:
    return lambda metric: formatted(metric.least_effect[num_blocks], ".2%")


def _blocks_needed(effect: str) -> Callable[[MetricNoise], str]:
    return lambda metric: str(metric.blocks_needed[effect] or NOTHING)


def _notes(floor: NoiseFloor) -> tuple[str, ...]:
    how = "alternating in one process" if floor.in_process else "a fresh process for each side and block"
    return (
        f"{floor.num_blocks} blocks, {how}, {floor.num_rejected} rejected; A/A verdict: {floor.verdict}",
        "CV in a block: of one side, between back-to-back runs; CV between blocks: drift, which pairing cancels.",
        "MDE: minimum detectable effect, found in 80% of experiments; blocks for a change: to detect it as often, at "
        "least 6. tokens per step is paired by prompt: its blocks are prompts.",
        "false verdicts: share of 2,000 experiments of 10 blocks, drawn from these with randomly swapped sides, "
        "that would report improved or regressed.",
        f"measured {floor.measured_utc}: {floor.command}",
    )
