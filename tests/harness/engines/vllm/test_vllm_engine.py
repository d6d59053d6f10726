"""What is found and refused before a vLLM is started."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from toy.engine_checkout import commit, git, make_venv

from specbench.harness.engines.child import interpreter
from specbench.harness.engines.vllm import engine as module
from specbench.harness.engines.vllm.engine import PYTHON_VARIABLE, VllmEngine, _share, eagle_method
from specbench.harness.engines.vllm.installed import Installed, find
from specbench.harness.run.progress import NullProgress
from specbench.harness.spec.arm import parse_arm
from specbench.harness.spec.conditions import Conditions, RunConfig

GPU = Installed(python=Path(sys.executable), version="0.26.0", methods=("eagle", "eagle3", "ngram"))


@pytest.fixture
def engine(monkeypatch):
    """With `engine.has`, the vLLM that every interpreter has."""
    has = {"installed": GPU}
    monkeypatch.setattr(module, "find", lambda python: has["installed"])
    monkeypatch.setenv(PYTHON_VARIABLE, sys.executable)
    made = VllmEngine()
    return made, has


def test_a_vllm_for_another_device_is_refused(engine):
    made, has = engine
    with pytest.raises(ValueError, match="device: 'cpu' is not allowed; vLLM 0.26.0 is for a GPU"):
        made.resolve(parse_arm("vllm/no-spec"), Conditions(device="cpu"))
    assert made.resolve(parse_arm("vllm/no-spec"), Conditions()).notes == ()


def test_starts_beside_others_only_where_its_memory_is_given(engine):
    """Else it counts what they take while it starts as its own."""
    made, _ = engine

    def can_begin(text: str) -> bool:
        return made.can_begin(made.resolve(parse_arm(text), Conditions()))

    assert not can_begin("vllm/no-spec") and can_begin("vllm/no-spec:engine.kv_cache_memory_bytes=1000000000")
    assert not can_begin("vllm/no-spec:engine.kv_cache_memory_bytes=1000000000,engine.server=yes")


def test_forced_acceptance_and_random_weights_are_marked_and_a_cpu_cannot_force(engine):
    made, has = engine
    arm = parse_arm("vllm/eagle:acceptance=synthetic:2.5")
    found = made.resolve(arm, Conditions(load_format="dummy", model="toy"))
    assert found.notes == ("synthetic acceptance (2.5)", "synthetic weights")
    assert found.with_head(Path("/h"), "eagle", ("trained on x",)).notes[1:] == ("synthetic weights", "trained on x")
    has["installed"] = replace(GPU, version="0.32.0+cpu")
    with pytest.raises(ValueError, match="acceptance: 'synthetic:2.5' is not allowed; vLLM for a CPU cannot force it"):
        VllmEngine().resolve(arm, Conditions())


def test_a_server_needs_a_tokenizer(engine):
    """Random weights have none, and its server answers in text."""
    with pytest.raises(ValueError, match="^engine.server: 'yes' is not allowed with --load-format dummy; it needs a"):
        engine[0].resolve(parse_arm("vllm/no-spec:engine.server=yes"), Conditions(load_format="dummy", model="toy"))


def test_without_a_vllm_the_user_is_told_where_to_name_one(monkeypatch):
    monkeypatch.delenv(PYTHON_VARIABLE, raising=False)
    monkeypatch.setattr(interpreter, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match="python: this environment has no vLLM; name one that has it: --engine-python"):
        VllmEngine().resolve(parse_arm("vllm/no-spec"), Conditions())
    with pytest.raises(ValueError, match="python: '/no/venv' is not allowed"):
        VllmEngine().resolve(parse_arm("vllm/no-spec:python=/no/venv"), Conditions())


def test_a_version_that_is_too_old_is_refused(monkeypatch):
    monkeypatch.setattr("specbench.harness.engines.vllm.installed.installed", lambda python, names: "0.25.1")
    with pytest.raises(ValueError, match="vLLM 0.25.1 of .* is too old; allowed: 0.26 or newer"):
        find(Path(sys.executable))


def test_methods_are_read_without_importing_vllm(tmp_path, monkeypatch):
    """From a package of the same shape, which could not be imported."""
    package = tmp_path / "vllm"
    (package / "config").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "config" / "speculative.py").write_text(
        'MTPModelTypes = Literal["a_mtp", "mtp"]\nNgramGPUTypes = Literal["ngram_gpu"]\n'
        'SpeculativeMethod = Literal["ngram", MTPModelTypes]\nDraftSampleMethod = Literal["greedy"]\n'
    )
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr("specbench.harness.engines.vllm.installed.installed", lambda python, names: "0.33.0")
    assert find(python).methods == ("a_mtp", "mtp", "ngram", "ngram_gpu")


def test_a_revision_has_its_own_methods_and_its_own_code(tmp_path, monkeypatch):
    root, speculative = tmp_path / "engine", "vllm/config/speculative.py"
    (root / "vllm" / "config").mkdir(parents=True)
    git(tmp_path, "init", "-q", str(root))
    for tag in ("old", "new"):
        said = f"def LLM(**asked):\n    raise RuntimeError('this is {tag}')\n"
        (root / "vllm" / "__init__.py").write_text(said)
        (root / speculative).write_text(f'SpeculativeMethod = Literal["{tag}_method"]\n')
        commit(root, tag)
    monkeypatch.setenv("SPECBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("specbench.harness.engines.vllm.installed.installed", lambda python, names: "0.33.0+cpu")
    monkeypatch.setenv(PYTHON_VARIABLE, str(make_venv(tmp_path / "venv", str(root))))
    arms = tuple(map(parse_arm, ("old-method:ref=old", "new-method:ref=new", "new-method")))
    config = RunConfig(arms=arms, engine="vllm", model="smollm2-135m", load_format="dummy", device="cpu")
    engine = VllmEngine()
    _, found = engine.open(config, NullProgress())
    for arm, tag in zip(found, ("old", "new", "new"), strict=True):
        with pytest.raises(RuntimeError, match=f"this is {tag}"), engine.deploy(arm, config, tmp_path / "log"):
            pass
    with pytest.raises(ValueError, match="strategy: 'new-method' is not a method"):
        engine.resolve(parse_arm("new-method:ref=old"), config)


def test_the_method_of_a_head_is_read_from_its_config(tmp_path):
    with pytest.raises(ValueError, match="head: .* is not allowed; give a directory with config.json"):
        eagle_method(tmp_path)
    for architecture, method in (("LlamaForCausalLMEagle3", "eagle3"), ("EagleLlamaForCausalLM", "eagle")):
        (tmp_path / "config.json").write_text(json.dumps({"architectures": [architecture]}))
        assert eagle_method(tmp_path) == method


@pytest.mark.parametrize(
    ("head", "method", "architecture"),
    [("random", "eagle3", "LlamaForCausalLMEagle3"), ("random-eagle1", "eagle", "EagleLlamaForCausalLM")],
)
def test_a_head_of_random_weights_is_described_as_vllm_names_it(
    engine, tmp_path, monkeypatch, head, method, architecture
):
    monkeypatch.setenv("SPECBENCH_CACHE", str(tmp_path))
    arms = (parse_arm(f"vllm/eagle:k=1,head={head}"),)
    config = RunConfig(arms=arms, model="llama-3.1-8b", load_format="dummy", num_layers=2)
    _, (found,) = engine[0].open(config, NullProgress())
    folder = Path(found.speculative["model"])
    assert found.speculative == {"method": method, "num_speculative_tokens": 1, "model": str(folder)}
    described = json.loads((folder / "config.json").read_text())
    assert described["architectures"] == [architecture] and described["num_hidden_layers"] == 1


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("vllm/eagle", "head: is missing; give head=DIR, .* or head=random or random-eagle1 with dummy weights"),
        ("vllm/eagle:head=random-eagle2", "head='random-eagle2' is not a directory"),
    ],
)
def test_heads_that_are_not_there(engine, tmp_path, monkeypatch, text, why):
    monkeypatch.setenv("SPECBENCH_CACHE", str(tmp_path))
    config = RunConfig(arms=(parse_arm(text),), model="llama-3.1-8b", load_format="dummy", num_layers=2)
    with pytest.raises(ValueError, match=f"^{text}: {why}"):
        engine[0].open(config, NullProgress())


@pytest.mark.parametrize(
    ("arms", "deploy", "share"),
    [
        (("vllm/no-spec",), "side-by-side", 0.85),
        (("vllm/no-spec", "sglang/no-spec"), "side-by-side", 0.425),
        (("no-spec", "vllm/no-spec", "vllm/eagle"), "side-by-side", 0.3),
        (("no-spec", "vllm/no-spec", "vllm/eagle"), "alternate", 0.6),
        (("vllm/no-spec", "vllm/eagle"), "alternate", 0.85),
    ],
)
def test_the_share_of_a_gpu(arms, deploy, share):
    config = RunConfig(arms=tuple(map(parse_arm, arms)), deploy=deploy)
    assert _share(config) == pytest.approx(share)
