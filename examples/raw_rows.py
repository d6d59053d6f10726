"""From the raw rows of a stored run to a figure of your own: how many drafts each round of a request accepts.

python examples/raw_rows.py runs/20260101T000000Z-run-1a2b3c4d
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

import specbench


def main(path: Path | str) -> pd.DataFrame:
    """Share of the rounds that accept 0, 1, 2, ... drafts: one row per arm."""
    run = specbench.open_run(path)
    rounds = run.steps[run.steps["num_proposed"] > 0]
    shares = rounds.groupby("arm")["num_accepted"].value_counts(normalize=True).unstack(fill_value=0.0)
    print(shares.round(3).to_string())

    # Time to first token is a difference of two times in one block, in nanoseconds of the same clock.
    requests = run.requests[run.requests["finish_reason"].isin(["stop", "length"])]
    ttft_ms = (requests["t_first_ns"] - requests["t_submit_ns"]) / 1e6
    print(ttft_ms.groupby(requests["arm"]).describe(percentiles=[0.5, 0.9]).round(2).to_string())
    return shares


if __name__ == "__main__":
    main(sys.argv[1])
