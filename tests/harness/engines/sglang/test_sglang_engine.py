"""`specbench run --engine sglang` against a package that answers as SGLang does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from toy.checkpoints import eagle3_config

import specbench
from specbench.harness.engines.sglang.drafts import draft_weights
from specbench.harness.engines.sglang.engine import SglangEngine, contradictions
from specbench.harness.engines.sglang.mapping import algorithm_of_head
from specbench.harness.engines.sglang.methods import method_of
from specbench.harness.spec.arm import parse_arm
from specbench.harness.spec.conditions import Conditions, RunConfig
from specbench.harness.store.arm_record import Fact

MORE = "--model smollm2-135m --load-format dummy --num-layers 2 --dtype float32 --device cpu --dataset-name random "
MORE += "--random-input-len 6 --random-output-len 12 --num-prompts 4 --max-concurrency 2 --max-model-len 64 "
MORE += "--num-repeats 2 --warmup-max-s 0.05"


def config_of(*texts: str, **more) -> RunConfig:
    small = {"model": "smollm2-135m", "load_format": "dummy", "max_model_len": 64, "device": "cpu"}
    return RunConfig(arms=tuple(parse_arm(text) for text in texts), engine="sglang", **{**small, **more})


def test_a_run(venv, cli, runs, only_run):  # noqa: F811
    """Tokens of a round, acceptance and counters are in the tables, and what it was is in the record."""
    arms = ["-s", "no-spec", "-s", "eagle:k=3,head=random,acceptance=synthetic:2.5"]
    asked = ["run", "--engine", "sglang", "--engine-python", str(venv), *arms, *MORE.split()]
    result = cli(*asked, "--output-dir", str(runs), "--format", "json")
    assert result.exit_code == 0, result.output
    path = only_run().path
    steps = specbench.open_run(path).steps
    steps = steps[(steps["arm"] != "no-spec") & ~steps["is_prefill"]]
    assert set(steps["num_proposed"]) == {3} and steps["num_accepted"].between(0, 3).all()
    record = json.loads((path / "run.json").read_text())
    first, second = record["arms"]
    assert (first["status"], second["status"]) == ("ok", "ok"), (first["error"], second["error"])
    assert second["engine"]["version"] == "0.5.16" and second["engine"]["graph_mode"] == "decode full, prefill disabled"
    assert second["config"]["engine"] == "sglang" and second["config"]["driven"] == "in process"
    assert second["config"]["acceptance"] == "synthetic:2.5"
    assert any("whole batch" in note for note in second["notes"])
    assert "device_times" in second["unknown"] and "acceptance" not in second["unknown"]


def test_engines_start_at_the_same_time(venv, cli, runs, only_run, tmp_path, monkeypatch):
    """Each waits for the other before it is up, which it would never be if it started alone."""
    place = tmp_path / "meets"
    place.mkdir()
    monkeypatch.setenv("FAKE_SGLANG_MEETS", str(place))
    asked = ["run", "--engine", "sglang", "--engine-python", str(venv), "-s", "no-spec", "-s", "eagle:k=3,head=random"]
    result = cli(*asked, *MORE.split(), "--output-dir", str(runs))
    assert result.exit_code == 0, result.output
    assert "starting 2 engines at the same time" in result.output
    assert len(list(place.iterdir())) == 2, "and each of them once"
    assert [arm.status for arm in only_run().record.arms] == ["ok", "ok"]


def test_children_may_start_beside_others_and_servers_may_not(venv):
    def can_begin(text: str) -> bool:
        engine = SglangEngine()
        return engine.can_begin(engine.resolve(parse_arm(f"{text}python={venv}"), Conditions()))

    assert can_begin("no-spec:") and not can_begin("no-spec:engine.server=yes,")


def test_what_is_missing_is_said_before_anything_starts(venv, tmp_path, monkeypatch):
    engine, conditions = SglangEngine(), Conditions()
    monkeypatch.delenv("SPECBENCH_SGLANG_PYTHON", raising=False)
    with pytest.raises(ValueError, match="this environment has no SGLang; .*--engine-python VENV"):
        engine.resolve(parse_arm("no-spec"), conditions)
    with pytest.raises(ValueError, match="give a virtual environment or a Python interpreter"):
        engine.resolve(parse_arm(f"no-spec:python={tmp_path}"), conditions)
    with pytest.raises(ValueError, match="url: .* is not allowed; it is started here; use engine openai"):
        engine.resolve(parse_arm("no-spec:url=http://127.0.0.1:1"), conditions)
    with pytest.raises(ValueError, match="stop_token_id: 7 is not allowed with --ignore-eos"):
        engine.resolve(parse_arm(f"no-spec:python={venv}"), Conditions(ignore_eos=True, stop_token_ids=(7,)))
    monkeypatch.setenv("SPECBENCH_SGLANG_PYTHON", str(venv))
    assert engine.resolve(parse_arm("no-spec"), conditions).version == "0.5.16"


def test_an_environment_without_sglang(venv, tmp_path):
    bare = tmp_path / "python"
    bare.write_text("#!/bin/sh\nexit 0\n")
    bare.chmod(0o755)
    with pytest.raises(ValueError, match="has no sglang"):
        SglangEngine().resolve(parse_arm(f"no-spec:python={bare}"), Conditions())


def test_what_varies_is_not_known(venv):
    def unknown(text: str) -> set[Fact]:
        return set(SglangEngine().resolve(parse_arm(f"{text},python={venv}"), Conditions()).capabilities.unknown)

    assert unknown("dspark:head=x") - unknown("eagle:head=x") == {Fact.ACCEPTANCE}
    assert Fact.ACCEPTANCE in unknown("eagle:head=x,engine.speculative_adaptive=true")
    assert {Fact.ROUNDS, Fact.TOKEN_IDS, Fact.SCORES}.isdisjoint(unknown("eagle:head=x"))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("eagle:k=2", "no head for this model"),
        ("eagle:k=2,head=nowhere", "head='nowhere' is not a directory"),
        ("eagle:k=2,head=shipped:nothing", "'shipped:nothing' is not known"),
        ("draft-model:draft=self:2", "draft='self:2' is not allowed"),
        ("draft-model:k=2", "draft='' is not allowed"),
    ],
)
def test_drafters_that_are_not_there(text, why):
    arm = parse_arm(text)
    with pytest.raises(ValueError, match=why):
        draft_weights(arm.strategy, method_of(arm), config_of(text))


def test_drafters(tmp_path):
    def found(text: str) -> tuple[Path | None, bool]:
        arm = parse_arm(text)
        return draft_weights(arm.strategy, method_of(arm), config_of(text))

    assert found("ngram") == (None, False) and found("mtp") == (None, False)
    (tmp_path / "config.json").write_text(json.dumps(eagle3_config()))
    assert found(f"eagle:head={tmp_path}") == (tmp_path, False)
    path, is_random = found("eagle:head=random")
    assert is_random and json.loads((path / "config.json").read_text())["architectures"] == ["LlamaForCausalLMEagle3"]
    path, is_random = found("eagle-topk:head=random-eagle1")
    assert is_random and algorithm_of_head(path) == "EAGLE"
    path, is_random = found("draft-model:draft=shape:smollm2-135m")
    assert is_random and json.loads((path / "config.json").read_text())["num_hidden_layers"] == 30


def test_an_arm_that_cannot_run_is_named(venv):
    config = config_of(f"eagle:k=2,python={venv}")
    with pytest.raises(ValueError, match="^eagle: no head for this model"):
        SglangEngine().open(config, _Silent())


class _Silent:
    def say(self, text: str) -> None: ...

    def asset(self, name: str, done: int, total: int) -> None: ...


def test_ends_of_answers_that_only_sglang_knows(venv, tmp_path):
    """Its model's configuration ends answers at token 2."""
    engine = SglangEngine()
    config = config_of(f"no-spec:python={venv}", stop_token_ids=(7,))
    _, (arm,) = engine.open(config, _Silent())
    with (
        pytest.raises(ValueError, match=r"SGLang also ends answers at \[2\]"),
        engine.deploy(arm, config, tmp_path / "log"),
    ):
        raise AssertionError("deployed all the same")


def test_contradictions_are_noted():
    asked = {"attention_backend": "fa3", "dtype": "bfloat16", "sampling_backend": "pytorch"}
    told = {"attention_backend": "triton", "dtype": "bfloat16"}
    assert list(contradictions(asked, told)) == ["attention_backend: fa3 was requested, SGLang runs triton"]
