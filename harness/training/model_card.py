"""README.md of a head: how to reproduce it, and its results.

Rendered from `training.json` and `training_log.csv` of the training and `acceptance.json` of the check.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, StrictUndefined

from specbench.harness.registry import head_strategy, strategy_class
from specbench.harness.store.files import write_atomically
from specbench.workloads.guarded import read_json, read_json_object

TRAINING, ACCEPTANCE, LOG, CARD = "training.json", "acceptance.json", "training_log.csv", "README.md"
_TEMPLATE = Path(__file__).with_name("model_card.md.j2")
_CURVE_ROWS = 12


def check_has_card(head_dir: Path) -> None:
    """ValueError if the folder was not made by `train-head`."""
    if not (head_dir / TRAINING).is_file():
        raise ValueError(f"write: {head_dir} has no {TRAINING}; only a head made by train-head has a card to write")


def write_model_card(head_dir: Path) -> None:
    """Raises ValueError if the folder was not made by `train-head`."""
    check_has_card(head_dir)
    training, acceptance, log = (head_dir / name for name in (TRAINING, ACCEPTANCE, LOG))
    record = read_json_object(training)
    evaluations: Any = read_json(acceptance) if acceptance.is_file() else []
    rules = {
        f"{e['workload']}, {e['all']['num_prompts']} prompts: {e['rule']} (sha256 {e['workload_sha256'][:16]})"
        for e in evaluations
    }
    curve = _curve(log) if log.is_file() else pd.DataFrame()
    environment = Environment(
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined
    )
    text = environment.from_string(_TEMPLATE.read_text(encoding="utf-8")).render(
        {"notes": [], **record},
        strategy=strategy_class(record["train"].get("kind") or head_strategy()),
        evaluations=evaluations,
        rules=sorted(rules),
        log=curve.to_dict("records"),
        accuracies=[name for name in curve.columns if name.startswith("accuracy_")],
    )
    write_atomically(head_dir / CARD, lambda file: file.write_text(text, encoding="utf-8"))


def _curve(log: Path) -> pd.DataFrame:
    """About a dozen evenly spaced rows of the log, and its last one."""
    rows = pd.read_csv(log)
    step = max(1, len(rows) // _CURVE_ROWS)
    return pd.concat([rows.iloc[::step].head(_CURVE_ROWS), rows.tail(1)])
