"""A custom drafting strategy: guess that the last token is repeated again and again.

It is measured, and its output is checked, like the strategies that come with the package.

python examples/custom_strategy.py
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import specbench
from specbench.harness import registry
from specbench.harness.engines.native.core.batch import StepBatch
from specbench.harness.engines.native.core.strategy import Drafter, EngineResources, Phase, Strategy

OPTIONS = {"dataset_name": "sharegpt-held-out", "num_prompts": 20}


class EchoDrafter(Drafter):
    """Works on the round's device buffers and reads nothing back, so that it can be captured in a graph."""

    def __init__(self, num_drafts: int, resources: EngineResources):
        self.num_drafts = num_drafts
        self._state = resources.state

    def phases(self, batch: StepBatch) -> list[Phase]:
        return [Phase("draft_first", self._propose)]

    def _propose(self, batch: StepBatch) -> None:
        """Legend: B requests of the batch, S slots, L longest text, K drafts."""
        slot_B, slots = batch.rows.slot_B, self._state
        last_B1 = slots.n_S[slot_B].long().unsqueeze(1)
        token_B1 = slots.tokens_SL[slot_B].gather(1, last_B1)
        slots.drafts_SK[slot_B] = token_B1.expand(-1, self.num_drafts)


@dataclass(frozen=True, kw_only=True)
class Echo(Strategy):
    """Its fields are its options: `echo:k=3` on the command line. k: drafts per round."""

    name: ClassVar[str] = "echo"
    graph: ClassVar[str] = "one_and_full"  # its preferred graph plan on a GPU
    depth_option: ClassVar[str | None] = "k"  # what a sweep varies

    k: int = 2

    @property
    def num_drafts(self) -> int:
        return self.k

    def make_drafter(self, resources: EngineResources) -> Drafter | None:
        return EchoDrafter(self.k, resources)


def main(**options: object) -> specbench.Run:
    registry.STRATEGIES["echo"] = f"{__name__}:Echo"
    run = specbench.run(strategy=["no-spec", "echo:k=2"], **{**OPTIONS, **options})
    print(run.table()[["tps", "speedup", "tpot_speedup", "acceptance_length"]].round(2).to_string())
    outputs = run.requests.set_index(["repeat", "prompt_id"]).groupby("arm")["output_sha256"]
    same = outputs.get_group("echo:k=2").eq(outputs.get_group("no-spec")).mean()
    print(f"answers that are the same as without speculation: {same:.0%}")
    return run


if __name__ == "__main__":
    main()
