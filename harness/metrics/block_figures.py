"""The figures of each block that experiments and comparisons of stored runs are made of."""

from __future__ import annotations

from specbench.harness.metrics.accounting import round_metrics, step_table
from specbench.harness.metrics.latency import latency_metrics, throughput_metrics
from specbench.harness.store.results import Figures
from specbench.harness.store.schema import FAILED_ARM_REQUEST_ID, Frames


def block_figures(frames: Frames) -> dict[tuple[str, int], Figures]:
    """By (arm, block), named as in `metrics.block_metrics`; not of failed blocks. What no comparison uses is left out:
    the rest of `block_metrics` takes most of the time."""
    steps = {key: rows for key, rows in frames.steps.groupby(["arm", "repeat"], sort=False)}
    found: dict[tuple[str, int], Figures] = {}
    for key, requests in frames.requests.groupby(["arm", "repeat"], sort=False):
        if (requests["request_id"] == FAILED_ARM_REQUEST_ID).any():
            continue
        arm, block = key
        rows = steps.get(key, frames.steps.iloc[:0])
        decoding = rows[~rows["is_prefill"].astype(bool)]
        found[str(arm), int(str(block))] = {
            "num_failed_requests": int(requests["finish_reason"].isin(["error", "abort"]).sum()),
            **throughput_metrics(requests, rows),
            **latency_metrics(requests, rows),
            **round_metrics(step_table(rows)),
            "acceptance.tokens_per_forward": (
                float(decoding["num_emitted"].sum() / len(decoding)) if len(decoding) else None
            ),
        }
    return found
