"""Every example runs, on the toy model, and says what it promises."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from specbench.harness import registry

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
RAN = ("first_run", "ab", "raw_rows", "custom_strategy")


@pytest.fixture
def toy(tmp_path: Path) -> dict:
    return dict(
        load_format="dummy",
        model="toy",
        dtype="float32",
        dataset_name="random",
        random_input_len=12,
        random_output_len=16,
        num_prompts=3,
        warmup_max_s=0.02,
        max_model_len=64,
        output_dir=tmp_path / "runs",
    )


@pytest.fixture
def load(monkeypatch):
    def example(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        return module

    return example


def test_each_example_is_run_here():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(RAN)


def test_first_run_and_its_raw_rows(load, toy, capsys):
    run = load("first_run").main(num_repeats=1, **toy)
    shown = capsys.readouterr().out
    assert run.status == "complete" and str(run.path) in shown and "acceptance_length" in shown
    shares = load("raw_rows").main(run.path)
    assert list(shares.index) == ["ngram:k=4"] and shares.loc["ngram:k=4"].sum() == pytest.approx(1)
    drafts = run.steps[run.steps["num_proposed"] > 0]
    assert shares.columns.tolist() == sorted(drafts["num_accepted"].unique())


def test_ab(load, toy, capsys):
    result = load("ab").main(**{**toy, "blocks": 1, "no_verdict": True})
    assert result.verdict == "exploratory" and "k=4 against k=2: exploratory" in capsys.readouterr().out


def test_custom_strategy(load, toy, capsys, monkeypatch):
    monkeypatch.setitem(registry.STRATEGIES, "echo", "")  # so that it is gone after the test
    run = load("custom_strategy").main(num_repeats=1, **toy)
    assert run.table()["status"].tolist() == ["ok", "ok"]
    mine = run.steps[(run.steps["arm"] == "echo:k=2") & (run.steps["num_proposed"] > 0)]
    assert len(mine) and set(mine["num_proposed"]) == {2}
    assert "the same as without speculation: 100%" in capsys.readouterr().out
