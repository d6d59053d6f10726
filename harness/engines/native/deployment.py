"""One arm of our own engine behind the interface."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from specbench.harness.engines.base import Capabilities, RowSink, Scored
from specbench.harness.engines.load import Load, PromptRequest
from specbench.harness.engines.native.core.engine import Engine
from specbench.harness.engines.native.core.sampler import SamplingMode
from specbench.harness.engines.native.models.score import last_logits
from specbench.harness.engines.traced import NodeMap, Traced, Tracer
from specbench.harness.engines.warmup import WarmUp
from specbench.harness.spec.plans import part_of
from specbench.harness.store.arm_record import EngineFacts
from specbench.harness.store.environment import installed_version
from specbench.workloads.base import Tokenizer

from .build import check_requests
from .drive import native_request, run_block, warm_up
from .generation import generate
from .instrument import instrumented_phases
from .nodes import record_node_maps
from .steady import IGNORED_STOPS, trace_rounds


class NativeDeployment:
    """`engine` is for what knows our own: rooflines, and tests."""

    def __init__(self, engine: Engine, tokenizer: Tokenizer | None = None):
        self.engine = engine
        self._tokenizer = tokenizer
        self._has_phases = False

    def __enter__(self) -> NativeDeployment:
        return self

    def __exit__(self, *exc: object) -> None:
        """Its graphs and memory go with the last reference."""

    @property
    def described(self) -> EngineFacts:
        device = self.engine.target.device
        return EngineFacts(
            version=installed_version("specbench-harness"),
            graph_mode=self.engine.launcher.plan.described(),
            backend=self.engine.builder.attention.backend.name,
            hardware=torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        )

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities()

    @property
    def batch_size(self) -> int:
        return self.engine.config.max_num_seqs

    @torch.inference_mode()
    def check(self, load: Load) -> None:
        check_requests(self.engine, (native_request(load.request(index)) for index in range(len(load))))

    @torch.inference_mode()
    def warm_up(self, load: Load, warmup: WarmUp) -> None:
        # Before anything is timed: a capture in the middle of a block would count in its figures.
        self._capture(load)
        warm_up(self.engine, load, warmup)

    @torch.inference_mode()
    def measure(self, load: Load, sink: RowSink) -> None:
        # Once, beside the first block: they are never read as its speed.
        phases = [] if self._has_phases else instrumented_phases(self.engine, load)
        run_block(self.engine, load, sink)
        sink.add_phases(phases)
        self._has_phases = True

    def reset(self) -> None:
        """Nothing is kept from one block to the next: there is no prefix cache."""

    @torch.inference_mode()
    def generate(self, requests: Sequence[PromptRequest], sink: RowSink) -> dict[int, str | None]:
        return generate(self.engine, requests, self._tokenizer.decode if self._tokenizer else None, sink)

    @torch.inference_mode()
    def score(self, ids: Sequence[int], num_scored: int) -> Scored:
        """By a dense pass of the target, whatever the arm."""
        logprobs_CV = last_logits(self.engine.target, ids[:-1], num_scored).log_softmax(-1)
        wanted_C = torch.tensor(list(ids[-num_scored:]), device=logprobs_CV.device)
        own_C1 = logprobs_CV.gather(1, wanted_C[:, None])
        regrets = tuple((logprobs_CV.amax(-1) - own_C1.squeeze(1)).tolist())
        return Scored(own_C1.sum().item(), bool((logprobs_CV.argmax(-1) == wanted_C).all()), regrets)

    @torch.inference_mode()
    def trace(self, load: Load, num_rounds: int, tracer: Tracer) -> Traced:
        mode = self._capture(load)
        notes = [IGNORED_STOPS] if load.stop_token_ids else []
        node_maps: tuple[NodeMap, ...] = ()
        if tracer.sees_nodes:
            try:
                node_maps = record_node_maps(self.engine.launcher, min(load.max_concurrency, self.batch_size), mode)
            except RuntimeError as error:
                notes.append(f"phases inside graphs are not told apart: {error}")
        rounds = trace_rounds(self.engine, load, num_rounds, tracer)
        plan = self.engine.launcher.plan
        return Traced(
            rounds=rounds,
            graph_plan=plan.described(),
            num_drafts=self.engine.strategy.num_drafts,
            claimed_parts={part: getattr(plan, part) for part in self._parts(rounds.batch_size, mode)},
            node_maps=node_maps,
            notes=tuple(notes),
        )

    def _capture(self, load: Load) -> SamplingMode:
        """What is captured already stays as it is."""
        mode = SamplingMode.of([load.request(0).sampling])
        self.engine.launcher.capture([mode])
        return mode

    def _parts(self, batch_size: int, mode: SamplingMode) -> list[str]:
        """Of a round, those that it has: no drafter, no claim about one."""
        segments = self.engine.launcher.round_for(batch_size, mode).segments
        names = [phase.name for segment in segments for phase in segment.phases]
        return list(dict.fromkeys(part for part in map(part_of, names) if part is not None))
