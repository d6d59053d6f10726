"""Profiles to report on without a trace: a chain of two graphs and eager parts, a fused round, a stranger's trace."""

from __future__ import annotations

import dataclasses
from typing import Any

from specbench.harness.profiling.record import (
    Bar,
    GraphCertificate,
    IdleFigures,
    KernelFigures,
    PhaseFigures,
    Profile,
    Quality,
    SlowDown,
    Source,
    Subject,
    SyncFigures,
)

HOSTILE = "</script><img src=x onerror=alert(1)>|`**eagle**`"
_ATTENTION = (
    "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<64, 64, 128, 4, false, false, cutlass::bfloat16_t>, "
    "false, true, false>(flash::Flash_fwd_params)"
)
_GEMM = "nvjet_tst_128x8_64x12_4x1_v_bz_TNT"
_NORM = "_rms_norm_kernel"
_UPDATE = "_state_update_kernel"


def eagle_profile(**changes: Any) -> Profile:
    """`eagle` of the older kind: verify and the later passes from graphs, the first pass by itself, blocking reads."""
    steps = [_phase("draft", 0, 61.0, 14, 0), *(_phase("draft", i, 41.0, 14, 14) for i in (1, 2, 3))]
    profile = Profile(
        source=_source("eagle.sqlite"),
        subject=_subject("eagle:k=4,sync=multi", "target full, first none, later full", {"first": "none"}, 3.4),
        round_ns=1_012_000.0,
        gpu_busy_ns=724_000.0,
        gpu_busy_share=0.7154,
        phases=(
            _phase("advance", None, 6.0, 9, 9, launches=0),
            _phase("verify", None, 512.0, 212, 212),
            _phase("accept", None, 22.0, 11, 11, launches=0),
            *steps,
            _phase("status", None, 0.0, 0, 0),
        ),
        graph=GraphCertificate(
            verdict="holds",
            reasons=(),
            launches_per_round=18.0,
            graph_launches_per_round=4.0,
            graph_share_kernels=0.9514,
            graph_share_time=0.9157,
        ),
        syncs=(
            SyncFigures(phase="accept", api="cudaMemcpyAsync", kind="pageable-copy", per_round=1.0, wait_ns=531_200.0),
            SyncFigures(phase="draft", api="cudaStreamSynchronize", kind="explicit", per_round=2.0, wait_ns=44_100.0),
            SyncFigures(phase="status", api="cudaEventSynchronize", kind="explicit", per_round=0.4, wait_ns=310.0),
        ),
        syncs_per_round=3.4,
        idle=IdleFigures(
            total_ns=288_000.0,
            by_cause_ns={"host-late": 241_000.0, "launch-latency-or-dependency": 38_500.0, "back-to-back": 8_500.0},
            verify_to_draft_span_ns=53_400.0,
            verify_to_draft_idle_ns=31_200.0,
            verify_to_draft_by_cause_ns={"host-late": 26_000.0, "launch-latency-or-dependency": 5_900.0},
            num_overlapped=0,
        ),
        kernels=_kernels(),
        timeline=_chain_bars(),
        timeline_round=117,
        quality=Quality(
            verdict="good",
            attributed_share=0.9962,
            num_ops=15_050,
            num_ops_without_launch=0,
            num_ops_without_round=12,
            num_rounds=50,
            num_rounds_left_out=2,
            notes=("2 rounds at the edges of the capture are incomplete.",),
        ),
        slow_down=SlowDown(profiled_round_ns=1_012_000.0, unprofiled_round_ns=803_000.0),
    )
    return dataclasses.replace(profile, **changes)


def fused_profile(**changes: Any) -> Profile:
    """`naive-eagle`: the whole round is one graph, nothing blocks, phases told apart by the order of its nodes."""
    base = eagle_profile()
    steps = [_phase("draft", i, 41.0, 14, 14, host=False) for i in range(4)]
    profile = dataclasses.replace(
        base,
        source=_source("fused.sqlite"),
        subject=_subject("naive-eagle:k=4", "one", {"target": "one", "first": "one", "later": "one"}, 0.0),
        round_ns=741_000.0,
        gpu_busy_ns=712_000.0,
        gpu_busy_share=0.9609,
        phases=(
            _phase("advance", None, 2.1, 1, 1, host=False, launches=1),
            _phase("verify", None, 512.0, 212, 212, host=False, launches=0),
            _phase("accept", None, 20.0, 8, 8, host=False, launches=0),
            *(dataclasses.replace(step, graph_launches=0.0) for step in steps),
        ),
        graph=GraphCertificate(
            verdict="holds",
            reasons=(),
            launches_per_round=1.0,
            graph_launches_per_round=1.0,
            graph_share_kernels=1.0,
            graph_share_time=1.0,
        ),
        syncs=(),
        syncs_per_round=0.0,
        idle=IdleFigures(
            total_ns=29_000.0,
            by_cause_ns={"host-late": 0.0, "launch-latency-or-dependency": 11_000.0, "back-to-back": 18_000.0},
            verify_to_draft_span_ns=21_400.0,
            verify_to_draft_idle_ns=1_900.0,
            verify_to_draft_by_cause_ns={"host-late": 0.0, "back-to-back": 1_900.0},
            num_overlapped=0,
        ),
        kernels=tuple(dataclasses.replace(k, in_graph=k.calls) for k in _kernels() if k.name != _UPDATE)
        + (_kernel("_fused_accept_kernel", "accept", None, 1, 6_200.0, 1.0),),
        timeline=_fused_bars(),
        timeline_round=98,
        slow_down=SlowDown(profiled_round_ns=741_000.0, unprofiled_round_ns=702_000.0),
    )
    return dataclasses.replace(profile, **changes)


def foreign_profile(**changes: Any) -> Profile:
    """Somebody else's torch-profiler trace: no subject, no command, little of it understood."""
    base = eagle_profile()
    profile = dataclasses.replace(
        base,
        source=Source(
            kind="kineto",
            file="vllm-rank0.json.gz",
            sha256="cd" * 32,
            num_bytes=88_123_456,
            tool=None,
            schema_version=None,
            command=None,
            working_dir=None,
            devices=("NVIDIA H100 80GB HBM3",),
        ),
        subject=None,
        quality=dataclasses.replace(base.quality, verdict="refused", attributed_share=0.31),
        graph=dataclasses.replace(base.graph, verdict="cannot tell", reasons=("the evidence is refused",)),
        slow_down=None,
    )
    return dataclasses.replace(profile, **changes)


def hostile_profile() -> Profile:
    """Whatever may hold text holds markup."""
    base = eagle_profile()
    assert base.subject is not None
    return dataclasses.replace(
        base,
        source=dataclasses.replace(base.source, command=("python", HOSTILE), working_dir=HOSTILE, devices=(HOSTILE,)),
        subject=dataclasses.replace(base.subject, arm=HOSTILE, config={"note": HOSTILE}, profiler_argv=(HOSTILE,)),
        kernels=tuple(dataclasses.replace(k, name=HOSTILE + k.name) for k in base.kernels),
        syncs=tuple(dataclasses.replace(sync, api=HOSTILE) for sync in base.syncs),
        timeline=tuple(dataclasses.replace(bar, name=HOSTILE) for bar in base.timeline),
        quality=dataclasses.replace(base.quality, notes=(HOSTILE,)),
        graph=dataclasses.replace(base.graph, reasons=(HOSTILE,)),
    )


def _source(file: str) -> Source:
    return Source(
        kind="nsys",
        file=file,
        sha256="ab" * 32,
        num_bytes=18_440_192,
        tool="NVIDIA Nsight Systems 2025.3.1",
        schema_version="3.20.2",
        command=("python", "-m", "specbench.harness.profiling.child", "child.json"),
        working_dir="/home/someone/specbench",
        devices=("NVIDIA H200",),
    )


def _subject(arm: str, plan: str, claimed: dict[str, str], syncs: float) -> Subject:
    return Subject(
        arm=arm,
        strategy=arm.partition(":")[0],
        config={"k": 4, "graph": plan, "attention": "triton"},
        graph_plan=plan,
        batch_size=8,
        num_drafts=4,
        claimed_parts={"target": "full", "first": "none", "later": "full"} | claimed,
        engine_syncs_per_round=syncs,
        profiler_argv=(
            *"nsys profile -t cuda,nvtx --sample=none --cpuctxsw=none --cuda-graph-trace=node".split(),
            *"--capture-range=cudaProfilerApi --capture-range-end=stop -o trace.nsys-rep python".split(),
            *"-m specbench.harness.profiling.child child.json".split(),
        ),
    )


def _phase(
    phase: str, step: int | None, busy_us: float, kernels: int, in_graph: int, *, host: bool = True, launches: int = -1
) -> PhaseFigures:
    graph_launches = launches if launches >= 0 else int(in_graph > 0)
    return PhaseFigures(
        phase=phase,
        draft_step=step,
        host_ns=(18_000.0 + 3_500.0 * (kernels - in_graph)) if host else None,
        gpu_busy_ns=busy_us * 1e3,
        gpu_span_ns=busy_us * 1.06e3,
        busy_share=busy_us / 724.0,
        kernels=float(kernels),
        graph_kernels=float(in_graph),
        eager_launches=float(kernels - in_graph),
        graph_launches=float(graph_launches),
        graph_share_kernels=in_graph / kernels if kernels else None,
        graph_share_time=float(in_graph > 0) if kernels else None,
    )


def _kernel(name: str, phase: str, step: int | None, calls: int, total_ns: float, in_graph: float) -> KernelFigures:
    return KernelFigures(
        name=name,
        phase=phase,
        draft_step=step,
        calls=float(calls),
        total_ns=total_ns,
        mean_ns=total_ns / calls,
        in_graph=in_graph * calls,
        share=total_ns / 724_000.0,
        is_attention="flash" in name,
    )


def _kernels() -> tuple[KernelFigures, ...]:
    drafts = [_kernel(_GEMM, "draft", i, 7, 28_000.0, float(i > 0)) for i in range(4)]
    return (
        _kernel(_GEMM, "verify", None, 120, 331_000.0, 1.0),
        _kernel(_ATTENTION, "verify", None, 30, 96_000.0, 1.0),
        _kernel(_NORM, "verify", None, 61, 85_000.0, 1.0),
        *drafts,
        *(_kernel(_ATTENTION, "draft", i, 1, 3_100.0, float(i > 0)) for i in range(4)),
        _kernel(_UPDATE, "advance", None, 1, 2_100.0, 0.0),
        _kernel("Memcpy DtoH (Device -> Pageable)", "accept", None, 1, 1_400.0, 0.0),
    )


def _run(row: str, phase: str, step: int | None, t0: int, t1: int, num: int, via_graph: bool) -> list[Bar]:
    """`num` bars of `phase` that fill t0 to t1 (ns), a tenth of it gaps."""
    pitch = (t1 - t0) / num
    return [
        Bar(
            row=row,
            name=_GEMM if i % 3 else _NORM,
            phase=phase,
            draft_step=step,
            t0_ns=round(t0 + i * pitch),
            t1_ns=round(t0 + (i + 0.9) * pitch),
            via_graph=via_graph,
        )
        for i in range(num)
    ]


def _host(row: str, name: str, phase: str, step: int | None, t0: int, t1: int) -> Bar:
    return Bar(row=row, name=name, phase=phase, draft_step=step, t0_ns=t0, t1_ns=t1, via_graph=False)


def _chain_bars() -> tuple[Bar, ...]:
    bars = [
        _host("host", "specbench:advance", "advance", None, 0, 40_000),
        _host("host", "specbench:verify", "verify", None, 42_000, 70_000),
        _host("host", "specbench:accept", "accept", None, 72_000, 690_000),
        _host("host", "specbench:draft_first", "draft", 0, 695_000, 790_000),
        *(
            _host("host", "specbench:draft_next", "draft", i, 740_000 + 55_000 * i, 790_000 + 55_000 * i)
            for i in (1, 2, 3)
        ),
        _host("host", "specbench:status", "status", None, 960_000, 1_010_000),
        _host("sync", "cudaMemcpyAsync", "accept", None, 100_000, 631_200),
        _host("sync", "cudaStreamSynchronize", "draft", 0, 700_000, 722_000),
        _host("sync", "cudaEventSynchronize", "status", None, 962_000, 1_000_000),
        *_run("gpu:7", "advance", None, 42_000, 53_000, 9, True),
        *_run("gpu:7", "verify", None, 55_000, 600_000, 212, True),
        *_run("gpu:7", "accept", None, 604_000, 632_000, 11, True),
        *_run("gpu:7", "draft", 0, 700_000, 788_000, 14, False),
        *(
            bar
            for i in (1, 2, 3)
            for bar in _run("gpu:7", "draft", i, 750_000 + 55_000 * i, 794_000 + 55_000 * i, 14, True)
        ),
        _host("gpu:13", "Memcpy DtoH (Device -> Pinned)", "status", None, 975_000, 978_000),
    ]
    return tuple(bars)


def _fused_bars() -> tuple[Bar, ...]:
    bars = [
        _host("host", "specbench:round", "host", None, 0, 22_000),
        *_run("gpu:7", "advance", None, 15_000, 17_100, 1, True),
        *_run("gpu:7", "verify", None, 18_000, 545_000, 212, True),
        *_run("gpu:7", "accept", None, 546_000, 566_000, 8, True),
        *(
            bar
            for i in range(4)
            for bar in _run("gpu:7", "draft", i, 568_000 + 43_000 * i, 610_000 + 43_000 * i, 14, True)
        ),
    ]
    return tuple(bars)
