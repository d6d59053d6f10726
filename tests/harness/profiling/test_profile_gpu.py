"""Traces of real rounds on a GPU: what both tools must see of every strategy."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from toy.engines import deployed, make_engine, named_strategy
from toy.plans import Plan, late
from toy.prompts import text_prompt

from specbench.harness.engines.base import ResolvedArm
from specbench.harness.engines.load import Load
from specbench.harness.engines.native.core.sampler import SamplingMode
from specbench.harness.engines.native.graph_nodes import GraphOperations
from specbench.harness.engines.native.nodes import record_node_maps
from specbench.harness.engines.traced import NodeMap, SteadyRounds
from specbench.harness.profiling.analysis import analyse_trace
from specbench.harness.profiling.job import subject_of
from specbench.harness.profiling.profile_file import read_profile
from specbench.harness.profiling.profile_run import arm_folder
from specbench.harness.profiling.record import Profile, Subject
from specbench.harness.profiling.rules import PhaseRules
from specbench.harness.profiling.tracers import TorchTracer
from specbench.harness.spec.arm import ArmSetup
from specbench.workloads.base import Prompt

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).resolve().parents[3]
BATCH, ROUNDS = 3, 12
TARGET = {("advance", None), ("verify", None), ("accept", None)}
TREE = dict(num_steps=3, topk=2, num_draft_tokens=6, head="random")


def _chain(k: int) -> set[tuple[str, int | None]]:
    return {("draft", step) for step in range(k)}


@dataclass(frozen=True)
class Case:
    strategy: str
    plan: Plan
    phases: frozenset
    options: tuple = ()

    @property
    def name(self) -> str:
        return f"{self.strategy}-{self.plan.name}"


def _case(strategy: str, plan: Plan, phases: set, **options) -> Case:
    return Case(strategy, plan, frozenset(phases), tuple(options.items()))


_EAGLE = dict(k=3, head="random")
_UNPADDED = (("target", "full"), ("first", "none"), ("later", "full"))
CASES = [
    _case("no-spec", Plan("cuda"), TARGET),
    _case("no-spec", Plan("cuda", "full_decode_only"), TARGET),
    _case("no-spec", late("cuda", "one", 1), TARGET),
    _case("eagle", Plan("cuda"), TARGET | _chain(3), **_EAGLE),
    _case("eagle", Plan("cuda", sync="multi"), TARGET | _chain(3), **_EAGLE),
    _case("eagle", Plan("cuda", "piecewise"), TARGET | _chain(3), **_EAGLE),
    _case("eagle", Plan("cuda", "full_decode_only"), TARGET | _chain(3), **_EAGLE),
    _case("eagle", Plan("cuda", "full_decode_only", "multi"), TARGET | _chain(3), **_EAGLE),
    _case("eagle", late("cuda", "full_and_piecewise", 1), TARGET | _chain(3), **_EAGLE),
    _case("eagle", Plan("cuda", drafter="unpadded", parts=_UNPADDED), TARGET | _chain(3), **_EAGLE),
    _case("naive-eagle", Plan("cuda", "one"), TARGET | _chain(2), k=2, head="random"),
    _case("naive-eagle", late("cuda", "one", 2), TARGET | _chain(2), k=2, head="random"),
    _case("eagle-topk", Plan("cuda", "full_decode_only"), TARGET | {("compact", None)} | _chain(3), **TREE),
    _case("ngram", late("cuda", "one", 1), TARGET | _chain(1), k=3),
]


def _engine(case: Case):
    strategy = named_strategy(case.strategy, **dict(case.options))
    return make_engine(case.plan, strategy, max_num_seqs=BATCH, max_model_len=512, page_size=16)


def _load() -> Load:
    prompts = [Prompt(id=str(i), text="", token_ids=tuple(text_prompt(i, 9 + i)), max_tokens=4) for i in range(BATCH)]
    return Load(
        prompts=prompts,
        arrival_s=[0.0] * BATCH,
        max_concurrency=BATCH,
        temperature=0.0,
        top_k=0,
        top_p=1.0,
        stop_token_ids=(),
        seed=1,
    )


class _Arm:
    """What `subject_of` asks of a resolved arm."""

    def __init__(self, case: Case):
        self.config = type("Config", (), {"label": case.name, "strategy": case.strategy})

    def setup(self) -> ArmSetup:
        return ArmSetup()


def _profile(case: Case, path: Path) -> tuple[Profile, SteadyRounds, tuple[NodeMap, ...]]:
    tracer = TorchTracer(path, torch.device("cuda"))
    traced = deployed(_engine(case)).trace(_load(), ROUNDS, tracer)
    arm: ResolvedArm = _Arm(case)  # type: ignore[assignment]
    subject: Subject = subject_of(arm, traced)
    profile = analyse_trace(path, rules=PhaseRules.shipped(), node_maps=traced.node_maps, subject=subject)
    return profile, traced.rounds, traced.node_maps


def test_nothing_can_be_counted_outside_a_capture():
    with pytest.raises(RuntimeError, match="nothing is being captured"):
        GraphOperations()()


@pytest.mark.parametrize("case", [c for c in CASES if c.plan.pads], ids=lambda c: c.name)
def test_counts_at_capture_are_the_operations_of_a_replay(case, tmp_path):
    """For every graph of the round: what the profiler sees of one replay, and no phase without work."""
    engine, mode = _engine(case), SamplingMode.GREEDY
    decode_round = engine.launcher.round_for(BATCH, mode)
    maps = record_node_maps(engine.launcher, BATCH, mode)
    graphs = {x.segment.name: x._graph for x in decode_round._launches if x.segment.is_captured}
    assert [m.segment for m in maps] == list(graphs)
    for item in maps:
        assert all(count > 0 for _, _, count in item.parts), item
        assert item.total == _operations_of(graphs[item.segment], tmp_path / f"{item.segment}.json")


def _operations_of(graph: torch.cuda.CUDAGraph, path: Path) -> int:
    from torch.profiler import ProfilerActivity, profile

    graph.replay()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as traced:
        graph.replay()
        torch.cuda.synchronize()
    traced.export_chrome_trace(str(path))
    events = json.loads(path.read_text())["traceEvents"]
    return sum(e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset") for e in events)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_the_torch_profiler_shows_every_phase_and_what_the_row_claims(case, tmp_path):
    profile, rounds, _ = _profile(case, tmp_path / "trace.json.gz")
    assert profile.quality.verdict == "good" and profile.quality.attributed_share >= 0.95, profile.quality
    found = {(p.phase, p.draft_step) for p in profile.phases if p.phase not in ("status", "host", "other")}
    assert found == case.phases
    claims = set(profile.subject.claimed_parts.values()) - {"none"}  # type: ignore[union-attr]
    assert profile.graph.verdict == ("holds" if claims else "no claim"), profile.graph.reasons
    assert profile.syncs_per_round == pytest.approx(rounds.syncs_per_round), (profile.syncs, rounds.syncs)


def test_a_row_that_claims_what_it_did_not_run_is_void(tmp_path):
    """Launched one by one, said to be graphs."""
    path = tmp_path / "trace.json"
    profile, _, _ = _profile(_case("eagle", Plan("cuda"), set(), **_EAGLE), path)
    assert profile.subject is not None and profile.graph.verdict == "no claim"
    claimed = replace(profile.subject, claimed_parts=dict.fromkeys(("target", "first", "later"), "full"))
    profile = analyse_trace(path, rules=PhaseRules.shipped(), subject=claimed)
    assert profile.graph.verdict == "void" and len(profile.graph.reasons) >= 3


# -- the command -------------------------------------------------------------------------------------------------------

_ARMS = (
    "no-spec",
    "eagle:k=3,head=random",
    "eagle:k=3,head=random,drafter=unpadded",
    "naive-eagle:k=2,head=random",
    "eagle-topk:num_steps=3,topk=2,num_draft_tokens=6,head=random",
)
_TOY = (
    "--load-format dummy --model toy --dataset-name random --random-input-len 12 --num-prompts 4 --warmup-max-s 0.5 "
    "--max-model-len 512 --max-concurrency 4 --rounds 20 --no-twin -q"
).split()


def _command(folder: Path, *words: str) -> dict[str, Profile]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / ".ns"), os.environ.get("PYTHONPATH", "")])}
    arms = [word for arm in _ARMS for word in ("-s", arm)]
    argv = [sys.executable, "-m", "specbench", "profile", "run", *arms, *_TOY, *words]
    done = subprocess.run(
        [*argv, "--output-dir", str(folder)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (run,) = folder.iterdir()
    return {arm: read_profile(run / "profile" / arm_folder(arm)) for arm in _ARMS}


def test_the_command_profiles_every_strategy_with_the_torch_profiler(tmp_path):
    for arm, profile in _command(tmp_path, "--tool", "torch").items():
        assert profile.source.kind == "kineto" and profile.quality.verdict == "good", (arm, profile.quality)
        assert profile.graph.verdict in ("holds", "no claim"), (arm, profile.graph)


@pytest.mark.skipif(shutil.which("nsys") is None, reason="nsys is not on the PATH")
def test_both_tools_agree(tmp_path):
    """Exactly on launches, graph share and synchronisations; on phase shares within 3 points."""
    torch_, nsys = _command(tmp_path / "torch", "--tool", "torch"), _command(tmp_path / "nsys", "--tool", "nsys")
    for arm in _ARMS:
        a, b = torch_[arm], nsys[arm]
        assert (a.source.kind, b.source.kind) == ("kineto", "nsys")
        assert b.quality.verdict == "good", (arm, b.quality)
        for name in ("verdict", "launches_per_round", "graph_launches_per_round", "graph_share_kernels"):
            assert getattr(a.graph, name) == pytest.approx(getattr(b.graph, name)), (arm, name)
        assert a.syncs_per_round == pytest.approx(b.syncs_per_round), (arm, a.syncs, b.syncs)
        shares = [{(p.phase, p.draft_step): p.busy_share for p in x.phases} for x in (a, b)]
        assert set(shares[0]) == set(shares[1]), arm
        for phase, share in shares[0].items():
            assert share == pytest.approx(shares[1][phase], abs=0.03), (arm, phase)


def test_a_run_certifies_its_own_graphs(tmp_path):
    words = "run -s no-spec -s naive-eagle:k=2,head=random --certify-graphs --num-repeats 1 --random-output-len 30"
    toy = [w for w in _TOY if w not in ("--rounds", "20", "--no-twin")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / ".ns"), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [sys.executable, "-m", "specbench", *words.split(), *toy, "--output-dir", str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (run,) = tmp_path.iterdir()
    profile = read_profile(run / "profile" / arm_folder("naive-eagle:k=2,head=random"))
    assert profile.graph.verdict == "holds" and profile.graph.graph_launches_per_round == pytest.approx(1)
    assert "graph claim" in done.stdout
