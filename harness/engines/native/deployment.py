"""One arm of our own engine behind the interface."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from specbench.harness.engines.base import Capabilities, RowSink, Scored
from specbench.harness.engines.load import Load, PromptRequest
from specbench.harness.engines.native.core.engine import Engine
from specbench.harness.engines.native.core.sampler import Mode, SamplingMode
from specbench.harness.engines.native.models.score import last_logits
from specbench.harness.engines.traced import NodeMap, Traced, Tracer
from specbench.harness.engines.warmup import WarmUp
from specbench.harness.spec.plans import part_of
from specbench.harness.store.arm_record import EngineFacts
from specbench.harness.store.environment import installed_version
from specbench.harness.store.rows import EXPERTS_READ, NUM_EXPERTS, CounterRow
from specbench.kernels import cublas_choice
from specbench.workloads.base import Tokenizer

from .build import check_requests
from .drive import native_request, run_block, warm_up
from .generation import generate
from .instrument import instrumented_phases
from .nodes import record_node_maps
from .steady import IGNORED_STOPS, trace_rounds


class NativeDeployment:
    """`engine` is for code that knows our own engine: rooflines and tests."""

    def __init__(self, engine: Engine, tokenizer: Tokenizer | None = None):
        self.engine = engine
        self._tokenizer = tokenizer
        self._has_phases = False

    def __enter__(self) -> NativeDeployment:
        return self

    def __exit__(self, *exc: object) -> None:
        """Graphs and memory are freed with the last reference."""

    @property
    def described(self) -> EngineFacts:
        device, group = self.engine.target.device, self.engine.target.group
        return EngineFacts(
            version=installed_version("specbench-harness"),
            graph_mode=self.engine.launcher.plan.described(),
            backend=self.engine.builder.attention.backend.name,
            hardware=torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
            config=self._limit() | group.described() | cublas_choice.described(device),
        )

    def _limit(self) -> dict[str, str]:
        """Of prompts beside decodes, where a step could take more."""
        config = self.engine.config
        most = config.most_beside_decodes
        return {"mixed_chunk_size": str(most)} if most < config.max_num_batched_tokens else {}

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities()

    @property
    def batch_size(self) -> int:
        return self.engine.config.max_num_seqs

    @torch.inference_mode()
    def check(self, load: Load) -> None:
        if load.stop and self._tokenizer is None:
            raise ValueError(f"stop: {load.stop[0]!r} is not allowed; this model has no tokenizer to make text with")
        check_requests(self.engine, (native_request(load.request(index)) for index in range(len(load))))

    @torch.inference_mode()
    def warm_up(self, load: Load, warmup: WarmUp) -> None:
        # Before anything is timed: a capture during a block would affect its figures.
        self._capture(load)
        warm_up(self.engine, load, warmup)

    @torch.inference_mode()
    def measure(self, load: Load, sink: RowSink) -> None:
        # Once, next to the first block; these times never count as its speed.
        phases = [] if self._has_phases else instrumented_phases(self.engine, load)
        before = self.engine.target.expert_reads.total()
        run_block(self.engine, load, sink, self._tokenizer.decode if self._tokenizer else None)
        sink.add_phases(phases)
        self._count_experts(before, sink)
        self._has_phases = True

    def _count_experts(self, before: tuple[int, int], sink: RowSink) -> None:
        """Counts for decode rounds, including padding rows and the reads of a drafter made of the target's own
        layers."""
        config, after = self.engine.target.config.experts, self.engine.target.expert_reads.total()
        num_read, num_passes = after[0] - before[0], after[1] - before[1]
        if config is not None and num_passes:
            per_pass, all_experts = num_read / num_passes, float(config.num_experts)
            sink.add_counters([CounterRow(EXPERTS_READ, per_pass), CounterRow(NUM_EXPERTS, all_experts)])

    def reset(self) -> None:
        """Does nothing: without a prefix cache, nothing is kept between blocks."""

    @torch.inference_mode()
    def generate(self, requests: Sequence[PromptRequest], sink: RowSink) -> dict[int, str | None]:
        return generate(self.engine, requests, self._tokenizer.decode if self._tokenizer else None, sink)

    @torch.inference_mode()
    def score(self, ids: Sequence[int], num_scored: int) -> Scored:
        """Scores with a dense pass of the target, whatever the arm."""
        logprobs_CV = last_logits(self.engine.target, ids[:-1], num_scored).log_softmax(-1)
        wanted_C = torch.tensor(list(ids[-num_scored:]), device=logprobs_CV.device)
        own_C1 = logprobs_CV.gather(1, wanted_C[:, None])
        regrets = tuple((logprobs_CV.amax(-1) - own_C1.squeeze(1)).tolist())
        return Scored(own_C1.sum().item(), bool((logprobs_CV.argmax(-1) == wanted_C).all()), regrets)

    @torch.inference_mode()
    def trace(self, load: Load, num_rounds: int, tracer: Tracer) -> Traced:
        counts = self.engine.draft_counts.choices
        if len(counts) > 1:
            raise ValueError(f"k: auto changes the drafts of a round; trace one of k={', '.join(map(str, counts))}")
        mode = self._capture(load)
        notes = [IGNORED_STOPS] if load.stop_token_ids else []
        node_maps: tuple[NodeMap, ...] = ()
        if tracer.sees_nodes:
            try:
                node_maps = record_node_maps(self.engine.launcher, min(load.max_concurrency, self.batch_size), mode)
            except RuntimeError as error:
                notes.append(f"phases inside graphs are not distinguished: {error}")
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

    def _capture(self, load: Load) -> Mode:
        """Existing captures stay unchanged. For a grid of temperatures: each separately, and all in one batch."""
        firsts = {prompt.temperature: index for index, prompt in reversed(list(enumerate(load.prompts)))}
        samplings = [load.request(index).sampling for index in firsts.values()]
        modes = dict.fromkeys([*(SamplingMode.of([one]) for one in samplings), SamplingMode.of(samplings)])
        self.engine.launcher.capture(list(modes))
        return SamplingMode.of(samplings)

    def _parts(self, batch_size: int, mode: Mode) -> list[str]:
        """The parts of a round; without a drafter, there is no claim about one."""
        segments = self.engine.launcher.round_for(batch_size, mode).segments
        names = [phase.name for segment in segments for phase in segment.phases]
        return list(dict.fromkeys(part for part in map(part_of, names) if part is not None))
