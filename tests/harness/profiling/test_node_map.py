"""Phases inside a graph: counted at capture through the driver, kept by phase and drafter pass."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
import torch
from toy.engines import make_engine, named_strategy
from toy.plans import CPU, Plan

from specbench.harness.engines.native import graph_nodes
from specbench.harness.engines.native.core.clock import END, GAP
from specbench.harness.engines.native.core.graphs import Segment
from specbench.harness.engines.native.core.sampler import SamplingMode
from specbench.harness.engines.native.core.strategy import Phase
from specbench.harness.engines.native.graph_nodes import GraphOperations
from specbench.harness.engines.native.nodes import node_counter, record_node_maps
from specbench.harness.engines.traced import NodeMap
from specbench.harness.profiling.node_map import read_node_maps, write_node_maps
from specbench.harness.spec.plans import PLANS

KERNEL, MEMCPY, MEMSET, HOST, CHILD, EMPTY, EVENT = 0, 1, 2, 3, 4, 5, 7


@dataclass
class Capture:
    """A launcher whose probe captures graphs of these phases; the clock is told as captures tell it."""

    segments: list[tuple[str, str, dict[str, int]]]  # name, mode, operations by phase
    plan: object = PLANS["full"]
    probed: list[tuple] = field(default_factory=list)
    nodes: int = 0

    def probe(self, num_requests, mode, clock):
        self.probed.append((num_requests, mode))
        segments = []
        for index, (name, kind, phases) in enumerate(self.segments):
            segments.append(Segment(name, kind, tuple(Phase(p.rstrip("'"), lambda b: None) for p in phases)))
            if segments[-1].is_captured:
                self.nodes = 0
                for phase, operations in phases.items():
                    clock.mark(phase.rstrip("'"))
                    self.nodes += operations
                clock.mark(END if index == len(self.segments) - 1 else GAP)
        return SimpleNamespace(segments=segments, batch=SimpleNamespace(num_requests=8))


def _maps(capture: Capture) -> tuple[NodeMap, ...]:
    return record_node_maps(capture, 5, SamplingMode.GREEDY, lambda: capture.nodes)


def test_a_whole_round_in_one_graph_is_told_apart_by_phase_and_pass():
    capture = Capture(
        [
            (
                "round",
                "one",
                {"advance": 2, "verify": 31, "accept": 4, "draft_first": 6, "draft_next": 5, "draft_next'": 5},
            )
        ]
    )
    (found,) = _maps(capture)
    assert found == NodeMap(
        segment="round",
        batch_size=8,  # the captured one, not the five requests
        parts=(
            ("advance", None, 2),
            ("verify", None, 31),
            ("accept", None, 4),
            ("draft", 0, 6),
            ("draft", 1, 5),
            ("draft", 2, 5),
        ),
    )
    assert found.total == 53
    assert capture.probed == [(5, SamplingMode.GREEDY)]


def test_each_graph_starts_at_nothing_and_launched_parts_have_no_map():
    capture = Capture(
        [
            ("target", "full", {"advance": 2, "verify": 31, "accept": 4}),
            ("draft_ids", "none", {"draft_ids": 9}),
            ("draft_first", "piecewise", {"draft_first": 8}),
            ("later", "full", {"draft_next": 5, "draft_next'": 7}),
        ]
    )
    target, later = _maps(capture)
    assert (target.segment, target.parts) == (
        "target",
        (("advance", None, 2), ("verify", None, 31), ("accept", None, 4)),
    )
    assert (later.segment, later.parts) == ("later", (("draft", 1, 5), ("draft", 2, 7)))


@pytest.mark.parametrize("plan", ["none", "piecewise"])
def test_a_plan_without_whole_graphs_asks_nothing(plan):
    engine = make_engine(Plan("cpu", plan) if plan == "none" else CPU, named_strategy("eagle", k=2, head="random"))

    def count() -> int:
        raise AssertionError("nothing is captured")

    assert record_node_maps(engine.launcher, 1, SamplingMode.GREEDY, count) == ()


def test_a_probe_is_the_round_that_is_replayed(monkeypatch):
    """Padded to the same captured size; on a CPU the rounds are launched, so that only the layout can be seen."""
    engine = make_engine(CPU, named_strategy("eagle", k=2, head="random"), max_num_seqs=4)
    monkeypatch.setattr(engine.launcher, "_sizes", [1, 2, 4])
    clock = node_counter(lambda: 0)
    probe = engine.launcher.probe(3, SamplingMode.GREEDY, clock)
    plain = engine.launcher.round_for(3, SamplingMode.GREEDY)
    assert probe is not plain and probe.inner_clock is clock
    assert probe.batch.num_requests == plain.batch.num_requests == 4
    assert [s.name for s in probe.segments] == [s.name for s in plain.segments]


def test_node_maps_come_back_from_their_file(tmp_path):
    maps = (
        NodeMap(segment="round", batch_size=4, parts=(("verify", None, 3), ("draft", 0, 2))),
        NodeMap(segment="later", batch_size=4, parts=(("draft", 1, 2),)),
    )
    path = tmp_path / "nodes.json"
    write_node_maps(maps, path)
    assert read_node_maps(path) == maps


@pytest.mark.parametrize(
    "text", ["", "{}x", '[{"segment": "round"}]', '[{"segment":"r","batch_size":1,"parts":[["v"]]}]']
)
def test_a_damaged_file_of_counts_is_named(tmp_path, text):
    path = tmp_path / "nodes.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"nodes: .*nodes\.json cannot be read"):
        read_node_maps(path)


# -- the driver --------------------------------------------------------------------------------------------------------


class Driver:
    """The calls of libcuda that are used, with C signatures: what the caller passes is read as C would."""

    def __init__(self, kinds: list[int], *, has_v3: bool, status: int = 1, error: int = 0):
        self._kinds, self._status, self._error = kinds, status, error
        pointer = ctypes.c_void_p
        info = [pointer] * (7 if has_v3 else 6)
        name = f"cuStreamGetCaptureInfo_v{3 if has_v3 else 2}"
        self._functions = {
            name: ctypes.CFUNCTYPE(ctypes.c_int, *info)(self._info),
            "cuGraphGetNodes": ctypes.CFUNCTYPE(ctypes.c_int, pointer, pointer, pointer)(self._nodes),
            "cuGraphNodeGetType": ctypes.CFUNCTYPE(ctypes.c_int, pointer, pointer)(self._kind),
        }

    def __getattr__(self, name: str):
        if name not in self._functions:
            raise AttributeError(name)
        return self._functions[name]

    def _info(self, stream, status, number, graph, edges, *rest):
        assert stream == 0x5EED
        ctypes.c_int.from_address(status).value = self._status
        ctypes.c_void_p.from_address(graph).value = 0xABC
        ctypes.c_size_t.from_address(rest[-1]).value = 3
        return self._error

    def _nodes(self, graph, nodes, num_nodes):
        assert graph == 0xABC
        count = ctypes.c_size_t.from_address(num_nodes)
        if nodes:
            assert count.value == len(self._kinds), "the array's room"
            for i in range(len(self._kinds)):
                ctypes.c_void_p.from_address(nodes + 8 * i).value = 0x1000 + i
        count.value = len(self._kinds)
        return 0

    def _kind(self, node, kind):
        ctypes.c_int.from_address(kind).value = self._kinds[node - 0x1000]
        return 0


@pytest.fixture
def driver(monkeypatch):
    def install(kinds, **options) -> GraphOperations:
        library = Driver(kinds, **options)
        monkeypatch.setattr(graph_nodes.ctypes, "CDLL", lambda name: library)
        stream = SimpleNamespace(cuda_stream=0x5EED)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)
        return GraphOperations()

    return install


@pytest.mark.parametrize("has_v3", [True, False])
def test_operations_are_kernels_copies_and_memsets(driver, has_v3):
    kinds = [KERNEL, KERNEL, MEMCPY, EVENT, MEMSET, EMPTY, HOST, KERNEL]
    assert driver(kinds, has_v3=has_v3)() == 5
    assert driver([], has_v3=has_v3)() == 0


@pytest.mark.parametrize(
    ("kinds", "options", "what"),
    [
        ([KERNEL], dict(status=0), "nothing is being captured"),
        ([KERNEL], dict(status=2), "nothing is being captured"),
        ([KERNEL], dict(error=901), "cuStreamGetCaptureInfo_v3 failed with CUDA driver error 901"),
        ([KERNEL, CHILD], {}, "child graph"),
    ],
)
def test_what_cannot_be_counted_is_an_error_and_not_zero(driver, kinds, options, what):
    with pytest.raises(RuntimeError, match=what):
        driver(kinds, has_v3=True, **options)()


def test_a_missing_driver_is_said(monkeypatch):
    def missing(name):
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(graph_nodes.ctypes, "CDLL", missing)
    with pytest.raises(RuntimeError, match="driver's library .* cannot be loaded"):
        GraphOperations()
