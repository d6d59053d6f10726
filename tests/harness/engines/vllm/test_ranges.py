"""Ranges around the calls of vLLM's model runners, on stand-ins that call as the sources do that were read."""

from __future__ import annotations

import importlib
import sys
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from specbench.harness import engines

FOLDER = Path(engines.__file__).parent
BASE = "vllm.v1.spec_decode.llm_base_proposer"
SPECULATORS = {
    "0.26.0": ("vllm.v1.worker.gpu.spec_decode.autoregressive.speculator", "AutoRegressiveSpeculator"),
    "0.32.0": ("vllm.v1.worker.gpu.spec_decode.target_dependent_ar.speculator", "TargetDependentARSpeculator"),
}


@pytest.fixture
def put(monkeypatch):
    """`put_ranges`, imported as the child does: with its neighbours on the path."""
    for folder in ("child", "vllm"):
        monkeypatch.syspath_prepend(str(FOLDER / folder))
    names = ("ranges", "steady", "capture", "wire")
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield importlib.import_module("ranges").put_ranges
    for name in names:
        sys.modules.pop(name, None)


class Seen:
    """Ranges that are written down, with what is inside them further in."""

    def __init__(self):
        self.names, self._depth = [], 0

    @contextmanager
    def __call__(self, name):
        self.names.append("  " * self._depth + name.removeprefix("specbench:"))
        self._depth += 1
        yield
        self._depth -= 1

    def around(self, owner, method, name):
        plain = getattr(owner, method)

        def ranged(*args, **kwargs):
            with self(name):
                return plain(*args, **kwargs)

        setattr(owner, method, ranged)


def module(monkeypatch, name, **names):
    made = ModuleType(name)
    vars(made).update(names)
    monkeypatch.setitem(sys.modules, name, made)
    return made


@pytest.fixture
def first(monkeypatch):
    """Modules of the first runner, and a drafter of K = 3."""

    @contextmanager
    def set_forward_context():
        yield

    class SpecDecodeBaseProposer:
        def propose(self):
            for _ in range(3):
                with base.set_forward_context():
                    pass

    utils = module(monkeypatch, "vllm.v1.utils", _PROFILER_FUNC=None)
    names = {"set_forward_context": set_forward_context, "SpecDecodeBaseProposer": SpecDecodeBaseProposer}
    base = module(monkeypatch, BASE, **names)
    return utils, SpecDecodeBaseProposer


def test_every_pass_of_the_first_runner_is_numbered_anew_in_each_round(put, first):
    utils, proposer = first
    seen, drafter = Seen(), type("EagleProposer", (proposer,), {})()
    notes = put(seen, "0.26.0", SimpleNamespace(drafter=drafter))
    assert notes == ["vLLM 0.26.0, first model runner: its own scopes"]
    for _ in range(2):
        drafter.propose()
    assert seen.names == ["draft_first", "draft_next", "draft_next"] * 2
    assert utils._PROFILER_FUNC is seen  # its own scopes


def test_a_drafter_that_drafts_its_own_way_is_not_guessed_at(put, first):
    seen, drafter = Seen(), type("NewProposer", (first[1],), {"propose": lambda self: None})()
    notes = put(seen, "0.32.0+cpu", SimpleNamespace(drafter=drafter))
    assert "the passes of NewProposer are not distinguished" in notes[1]
    drafter.propose()
    assert not seen.names


@pytest.mark.parametrize("version", ["0.25.1", "0.33.0", "1.0"])
def test_of_a_version_that_was_not_read_nothing_is_touched(put, version):
    runner = SimpleNamespace(drafter=object())
    (note,) = put(Seen(), version, runner)
    assert note == f"vLLM {version}: no ranges; the calls of a round are known for 0.26, 0.32 only"


class Manager:
    def run_fullgraph(self, desc=None):
        pass

    def run_pw_graph(self, model, inputs):
        return model.forward()


class Runner:
    """Calls as GPUModelRunner of vllm/v1/worker/gpu does; `is_full`: all from graphs."""

    def __init__(self, speculator, is_full):
        self.model = SimpleNamespace(forward=lambda: None)
        self.cudagraph_manager, self.speculator, self.is_full = Manager(), speculator, is_full

    def execute_model(self):
        if self.is_full:
            self.cudagraph_manager.run_fullgraph()
        else:
            self.cudagraph_manager.run_pw_graph(self.model, {})

    def sample_tokens(self):
        if self.speculator is not None:
            self.speculator.propose()


Runner.__module__ = "vllm.v1.worker.gpu.model_runner"


def speculator_of(monkeypatch, version, is_full, *, fused=False):
    module_name, class_name = SPECULATORS[version]

    def propose(self):
        if is_full:
            self.prefill_cudagraph_manager.run_fullgraph()
            for _ in range(1 if fused else 2):
                self.decode_cudagraph_manager.run_fullgraph()
        else:
            self._prefill()
            for _ in range(2):
                self._generate_draft()

    methods = {"propose": propose, "_prefill": lambda self: None, "_generate_draft": lambda self: None}
    known = type(class_name, (), methods)
    module(monkeypatch, module_name, **{class_name: known})
    made = type("EagleSpeculator", (known,), {})()
    made.prefill_cudagraph_manager, made.decode_cudagraph_manager = Manager(), Manager()
    if fused:
        made.supports_decode_metadata_update = True
    return made


@pytest.mark.parametrize("version", SPECULATORS)
@pytest.mark.parametrize("is_full", [True, False])
def test_a_round_of_the_second_runner(put, monkeypatch, version, is_full):
    seen, runner = Seen(), Runner(speculator_of(monkeypatch, version, is_full), is_full)
    assert put(seen, version, runner) == [f"vLLM {version}, second model runner: ranges around its calls"]
    runner.execute_model()
    runner.sample_tokens()
    verify = ["  verify"] if is_full else ["  verify", "    verify"]
    passes = ["    draft_first", "    draft_next", "    draft_next"]
    assert seen.names == ["advance", *verify, "accept", "  draft", *passes]


def test_passes_that_are_one_graph_are_one_range_and_said_to_be(put, monkeypatch):
    seen, runner = Seen(), Runner(speculator_of(monkeypatch, "0.32.0", True, fused=True), True)
    notes = put(seen, "0.32.0", runner)
    assert "one graph when replayed" in notes[1]
    runner.sample_tokens()
    assert seen.names == ["accept", "  draft", "    draft_first", "    draft_rest"]


def test_a_round_without_a_drafter(put):
    seen, runner = Seen(), Runner(None, True)
    put(seen, "0.26.0", runner)
    runner.execute_model()
    runner.sample_tokens()
    assert seen.names == ["advance", "  verify", "accept"]
