"""What items are sent to."""

from __future__ import annotations

from dataclasses import dataclass

from specbench.harness.engines.base import Capabilities, Deployment, Model


@dataclass(frozen=True, slots=True)
class Serving:
    """A model behind one deployed arm, and what its engine can do."""

    model: Model
    capabilities: Capabilities
    deployment: Deployment
