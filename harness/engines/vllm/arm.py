"""An arm of vLLM: its options, and the resulting engine arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from specbench.harness.engines.base import Capabilities
from specbench.harness.engines.openai.dialects import VLLM
from specbench.harness.engines.served.users_server import facts_of_server
from specbench.harness.engines.source.checkout import Revision
from specbench.harness.engines.vllm import switches
from specbench.harness.engines.vllm.installed import Installed
from specbench.harness.engines.vllm.speculation import speculation
from specbench.harness.spec.arm import ArmConfig, ArmSetup
from specbench.harness.spec.conditions import Conditions
from specbench.harness.store.arm_record import FORCED, Fact

SERVER = "server"  # of engine.KEY: ours, not vLLM's
_HOST_ONLY = "vLLM reports only when its host received a result"
UNKNOWN = {
    Fact.DEVICE_TIMES: _HOST_ONLY,
    Fact.PHASES: "vLLM does not distinguish the parts of a step",
    Fact.SYNCS: "vLLM does not count its waits for the device",
    Fact.PREEMPTIONS: "vLLM counts preemptions of all requests together (engine.num_preemptions)",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class VllmArm:
    """`revision`: of vLLM's checkout; None: the installed one. `speculative`: vLLM's speculative configuration, with
    the head or drafter as named by the arm. `found`: further notes for the reader of its row."""

    config: ArmConfig
    installed: Installed
    speculative: Mapping[str, Any] | None
    switches: Mapping[str, Any]
    revision: Revision | None = None
    found: tuple[str, ...] = ()
    graph_parts: None = None
    footprint: int = 0

    @property
    def notes(self) -> tuple[str, ...]:
        forced = self._acceptance.partition(":")[2]
        own = [f"{FORCED} ({forced})"] if forced else []
        code = [self.revision.note] if self.revision else []
        return (*own, *code, *self.installed.notes, *self.found)

    @property
    def _acceptance(self) -> str:
        return self.config.engine.get("acceptance", "real") if self.speculative else "real"

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(facts_of_server(VLLM) if self.is_server else UNKNOWN)

    @property
    def is_server(self) -> bool:
        """engine.server=yes: started as a server and asked over HTTP, in place of a child in process."""
        return self.config.own_config.get(SERVER) == "yes"

    @property
    def num_drafts(self) -> int | None:
        """None if vLLM takes the number from the drafter's own configuration."""
        return (self.speculative or {"num_speculative_tokens": 0}).get("num_speculative_tokens")

    def setup(self) -> ArmSetup:
        engine = self.config.engine
        return ArmSetup(
            graph=engine.get("graph"),
            attention=engine.get("attention"),
            attention_drafter=engine.get("attention_drafter"),
            drafter=engine.get("drafter", "padded") if self.num_drafts else None,
            num_drafts=self.num_drafts,
            options={**self.config.options, **{f"engine.{k}": v for k, v in self.config.own_config.items()}},
            acceptance=self._acceptance,
            engine="vllm",
            driven="HTTP" if self.is_server else "in process",
        )

    def with_head(self, head: Path, method: str, notes: tuple[str, ...]) -> VllmArm:
        return replace(
            self,
            speculative={**(self.speculative or {}), "method": method, "model": str(head)},
            found=(*self.found, *notes),
        )


def resolve(arm: ArmConfig, installed: Installed, revision: Revision | None = None) -> VllmArm:
    """ValueError for what this vLLM cannot do, with the reason."""
    switches.refuse(arm)
    if (server := arm.own_config.get(SERVER, "no")) not in ("yes", "no"):
        raise ValueError(f"engine.{SERVER}: {server!r} is not allowed; allowed: yes, no")
    replicas = arm.own_config.get("data_parallel_size", "1")
    if server == "no" and replicas != "1":
        raise ValueError(
            f"engine.data_parallel_size: {replicas} is not allowed in process, where one scheduler is watched; allowed "
            f"with engine.{SERVER}=yes"
        )
    speculative = speculation(arm, installed.methods)
    # Without drafts there is nothing to pad or force: switches given for all arms do not change the baseline.
    of_drafter = {} if speculative is None else switches.drafter_args(arm)
    return VllmArm(
        config=arm,
        installed=installed,
        revision=revision,
        speculative=None if speculative is None else {**speculative, **of_drafter},
        switches=switches.engine_args(arm),
    )


def engine_args(
    arm: VllmArm, conditions: Conditions, *, model: Path, dtype: str, is_cpu: bool, gpu_share: float
) -> dict[str, Any]:
    """Arguments of `vllm.LLM`. `gpu_share`: of the GPU's memory."""
    c, batch = conditions, conditions.max_concurrency
    per_round = batch * (1 + (arm.num_drafts or 0))
    args: dict[str, Any] = {
        "model": str(model),
        "dtype": dtype,
        "max_model_len": c.max_model_len,
        "max_num_seqs": batch,
        "max_num_batched_tokens": max(c.max_num_batched_tokens, per_round),
        "seed": c.seed,
        "load_format": c.load_format,
        "enable_prefix_caching": False,
        "generation_config": "vllm",
        "disable_log_stats": False,
        **({"skip_tokenizer_init": True} if c.load_format == "dummy" else {}),
        **({"block_size": c.page_size} if c.page_size else {}),
        **({"num_gpu_blocks_override": c.num_pages} if c.num_pages else {}),
        **arm.switches,
    }
    if not is_cpu:
        args |= {"gpu_memory_utilization": round(gpu_share, 3), "cudagraph_metrics": True}
        compilation = dict(args.get("compilation_config", {}))
        if compilation.get("cudagraph_mode") != "NONE":
            sizes = capture_sizes(batch, arm.num_drafts or 0)
            compilation |= {"cudagraph_capture_sizes": sizes, "max_cudagraph_capture_size": sizes[-1]}
        args["compilation_config"] = compilation
    if arm.speculative is not None:
        args["speculative_config"] = dict(arm.speculative)
    own = {key: value for key, value in arm.config.own_config.items() if key != SERVER}
    return switches.with_own_config(args, own)


def capture_sizes(batch_size: int, num_drafts: int) -> list[int]:
    """Row counts of the forwards to capture: full batches without padding, and the smaller ones as a batch drains."""
    batches = sorted({n for n in (1, 2, 4, *range(8, batch_size, 8)) if n < batch_size} | {batch_size})
    return sorted({*batches, *(n * (1 + num_drafts) for n in batches)})
