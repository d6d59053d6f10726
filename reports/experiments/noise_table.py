"""The noise floor of a machine as a table: what so many blocks could show, and how many blocks a change takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specbench.reports.cells import NOTHING
from specbench.reports.document import Table


def noise_table(floor: Mapping[str, Any]) -> Table:
    """From a floor that `specbench power` measured or stored."""
    first = floor["metrics"][0]
    headers = (
        "metric",
        "CV in a block",
        "CV between blocks",
        *(f"least effect, {n} blocks" for n in first["least_effect"]),
        *(f"blocks for {float(e):.0%}" for e in first["blocks_needed"]),
        "false verdicts",
        "n",
    )
    return Table(
        title=f"Noise of A/A: {floor['arm']} on {floor['model']['name']} ({floor['model']['device']})",
        headers=headers,
        rows=tuple(_row(metric) for metric in floor["metrics"]),
        notes=_notes(floor),
    )


def _row(m: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        m["name"],
        f"{m['cv_in_block']:.2%}",
        NOTHING if m["cv_between_blocks"] is None else f"{m['cv_between_blocks']:.2%}",
        *(f"{effect:.2%}" for effect in m["least_effect"].values()),
        *(NOTHING if needed is None else str(needed) for needed in m["blocks_needed"].values()),
        f"{m['false_verdicts']:.1%}",
        f"{m['num_pairs']} {m['pairs']}",
    )


def _notes(floor: Mapping[str, Any]) -> tuple[str, ...]:
    how = "alternating in one process" if floor["in_process"] else "a fresh process for each side and block"
    return (
        f"{floor['num_blocks']} blocks, {how}, {floor['num_rejected']} rejected; the A/A says: {floor['verdict']}",
        "CV in a block: of one side, between runs back to back; CV between blocks: drift, which pairing cancels.",
        "least effect: the smallest true change found in 80% of experiments; blocks for a change: to find it so often, "
        "never fewer than 6. tokens per step is paired by prompt: read prompts for blocks.",
        "false verdicts: share of 2,000 experiments of 10 blocks, drawn from these with sides swapped by chance, which "
        "would have said improved or regressed.",
        f"measured {floor['measured_utc']}: {floor['command']}",
    )
