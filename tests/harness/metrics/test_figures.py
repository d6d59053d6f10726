"""Every figure of the registry: complete, found by its key, and there where it says."""

from __future__ import annotations

from toy.frames import frame

from specbench.harness.judge.policy import COUNTED_GATES
from specbench.harness.metrics.figures import HIGHER, LOWER, OWN, TPOT_MS
from specbench.harness.metrics.metrics import block_metrics
from specbench.harness.registry import FIGURES, figure
