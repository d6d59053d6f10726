"""What other packages register: found without an import, refused by name where it conflicts or cannot be imported."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from toy.packages import install
from toy.packages import site as site
from typer.testing import CliRunner

from specbench.harness.cli.main import app
from specbench.harness.registry import (
    ATTENTION_BACKENDS,
    ENGINES,
    STRATEGIES,
    TABLES,
    Table,
    declared_strategies,
    lookup,
    plug_ins,
    strategy_class,
)
from specbench.harness.spec.choices import Choices, allowed
from specbench.harness.spec.legality import Refused, resolve

BACKEND = """
from specbench.kernels.attention.torch_attention import TorchAttention
class Same(TorchAttention):
    name = "same-as-torch"
class Planned:
    is_planned = True
"""
WORKLOAD = """
from specbench.workloads.base import Prompt, Workload
def load(request, tokenizer=None):
    prompts = tuple(Prompt(id=str(i), token_ids=(i + 1, 2), max_tokens=4, text="") for i in range(request.num_prompts))
    return Workload(name=request.name, prompts=prompts, rule="two ids each", source="counted", synthetic=True)
def spoken(request, tokenizer):
    raise AssertionError
"""
FIGURE = """
from specbench.harness.metrics.figures import Figure
def longest(requests, steps, phases):
    return float(requests["num_output_tokens"].max())
LONGEST = Figure(key="longest", name="longest", unit="tokens", definition="most tokens", source="us", of_block=longest)
BARE = Figure(key="bare", name="bare", definition="not computed", source="us")
"""
TOY_RUN = "run -s no-spec --load-format dummy --model toy --dtype float32 --num-repeats 1 --warmup-max-s 0.02 --quiet"


def test_groups():
    assert [table.group for table in TABLES] == [
        f"specbench.{kind}"
        for kind in ("engines", "strategies", "attention_backends", "state_updates", "workloads", "figures")
    ]


def test_an_engine_is_found_in_its_group(site):
    install(site, "other-engine", "3", {"specbench.engines": {"abacus": "collections:Counter"}})
    from collections import Counter

    assert lookup(ENGINES, "abacus", "engine") is Counter and plug_ins({STRATEGIES.group: strategy_class}) == [
        "engines: abacus of other-engine 3"
    ]


def test_ours_come_first_and_what_is_gone_is_gone(site, monkeypatch):
    table = Table("specbench.test", {"own": "os:getcwd"})
    assert list(table) == ["own"]
    install(site, "one", "1", {"specbench.test": {"a": "os:sep", "b": "os:linesep"}})
    monkeypatch.syspath_prepend(str(site.parent))  # another path: packages are looked for again
    assert list(table) == ["own", "a", "b"] and len(table) == 3 and table["b"] == "os:linesep" and "c" not in table
    assert table.owners("a") == ["one 1"] and table.owners("own") == ["specbench-harness"]
    with pytest.raises(ValueError, match="thing: 'zz' is not known; allowed: own, a, b"):
        lookup(table, "zz", "thing")
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p != str(site)])
    assert list(table) == ["own"]


def test_a_name_of_two_packages_is_refused_with_both(site):
    install(site, "one", "1", {"specbench.strategies": {"twin": "a:A", "ngram": "a:N"}})
    install(site, "two", "2.0", {"specbench.strategies": {"twin": "b:B"}})
    with pytest.raises(ValueError, match="'twin' is registered by (one 1 and by two 2.0|two 2.0 and by one 1)"):
        strategy_class("twin")
    with pytest.raises(ValueError, match="'ngram' is registered by specbench-harness and by one 1; uninstall"):
        strategy_class("ngram")
    assert len(plug_ins({STRATEGIES.group: strategy_class})) == 2 and strategy_class("eagle").name == "eagle"


def test_what_cannot_be_imported_is_a_line_and_an_error_when_it_is_used(site):
    (site / "broken_package.py").write_text("raise RuntimeError('needs\\na licence')")
    (site / "no_strategy.py").write_text("class Other:\n    name = 'odd'\n")
    targets = {"broken": "broken_package:S", "absent": "nowhere:S", "odd": "no_strategy:Other"}
    install(site, "bad", "0.3", {"specbench.strategies": targets})
    lines = [
        "strategy: 'broken' of bad 0.3 cannot be imported: RuntimeError: needs a licence",
        "strategy: 'absent' of bad 0.3 cannot be imported: ModuleNotFoundError: No module named 'nowhere'",
        "strategy: 'odd' of bad 0.3: no_strategy:Other is not a strategy of that name",
    ]
    listed = CliRunner().invoke(app, ["list", "--format", "json"], prog_name="specbench")
    assert listed.exit_code == 0 and json.loads(listed.stdout)["plug_ins"] == lines
    for name, line in zip(targets, lines, strict=True):
        with pytest.raises(ValueError) as error:
            strategy_class(name)
        assert str(error.value) == line
    assert {kind.name for kind in declared_strategies()} == set(STRATEGIES.built_in), "ours go on"


def test_an_attention_backend_says_what_it_is(site):
    (site / "other_attention.py").write_text(BACKEND)
    targets = {"same-as-torch": "other_attention:Same", "planned": "other_attention:Planned"}
    install(site, "other-attention", "1", {"specbench.attention_backends": targets})
    assert allowed("attention")[-2:] == ("same-as-torch", "planned") == tuple(ATTENTION_BACKENDS)[-2:]
    with pytest.raises(Refused, match="reads lengths on the host"):
        resolve(Choices(device="cuda", attention="same-as-torch", graph="one"))
    with pytest.raises(Refused, match="planned on the host"):
        resolve(Choices(device="cuda", attention="planned", graph="one"))
    assert resolve(Choices(device="cuda", attention="planned")).sync == "single"
    listed = json.loads(CliRunner().invoke(app, ["list", "--format", "json"], prog_name="specbench").stdout)
    assert listed["switches"]["attention"]["same-as-torch"] == "yes"


def test_a_run_with_a_backend_and_a_workload_of_another_package(site, tmp_path):
    (site / "other_attention.py").write_text(BACKEND)
    (site / "other_prompts.py").write_text(WORKLOAD)
    groups = {"attention_backends": {"same-as-torch": "other_attention:Same"}}
    groups["workloads"] = {"counted": "other_prompts:load", "spoken": "other_prompts:spoken"}
    install(site, "other", "1", {f"specbench.{group}": points for group, points in groups.items()})
    words = [*TOY_RUN.split(), "--output-dir", str(tmp_path), "--num-prompts", "3", "--max-model-len", "64"]
    words += ["--attention", "same-as-torch", "--dataset-name"]
    result = CliRunner().invoke(app, [*words, "counted"], prog_name="specbench")
    assert result.exit_code == 0, result.output
    (run,) = tmp_path.glob("*/run.json")
    stored = json.loads(run.read_text())
    assert stored["workload"]["rule"] == "two ids each" and stored["arms"][0]["config"]["attention"] == "same-as-torch"
    result = CliRunner().invoke(app, [*words, "spoken"], prog_name="specbench")
    assert result.exit_code == 2 and "dataset_name: 'spoken' needs a tokenizer" in result.stderr


def test_a_figure_of_another_package(site, tmp_path):
    (site / "other_figures.py").write_text(FIGURE)
    targets = {"longest": "other_figures:LONGEST", "bare": "other_figures:BARE", "tps": "other_figures:LONGEST"}
    install(site, "other-figures", "1", {"specbench.figures": targets})
    listed = json.loads(CliRunner().invoke(app, ["list", "--format", "json"], prog_name="specbench").stdout)
    assert listed["plug_ins"] == [
        "figures: longest of other-figures 1",
        "figure: 'bare' of other-figures 1: other_figures:BARE is not a figure of that key with an of_block",
        "figure: 'tps' is registered by specbench-harness and by other-figures 1; uninstall all but one",
    ]
    assert (
        listed["figures"]["longest"]["definition"] == "most tokens" and listed["figures"]["tps"]["unit"] == "tokens/s"
    )
    words = [*TOY_RUN.split(), "--output-dir", str(tmp_path), "--dataset-name", "random", "--num-prompts", "2"]
    words += ["--random-input-len", "8", "--random-output-len", "4", "--ignore-eos", "--max-model-len", "64"]
    result = CliRunner().invoke(app, words, prog_name="specbench")
    assert result.exit_code == 0, result.output
    (run,) = tmp_path.glob("*/run.json")
    (arm,) = json.loads(run.read_text())["results"]["arms"]
    assert arm["spreads"]["figures.longest"]["median"] == 4.0
    shown = CliRunner().invoke(app, ["show", str(run.parent)], prog_name="specbench").stdout
    assert "longest tokens" in shown, shown


def test_a_checkout_runs_where_it_is_not_installed(tmp_path, monkeypatch):
    def version(package):
        raise metadata.PackageNotFoundError(package)

    monkeypatch.setattr(metadata, "version", version)
    words = [*TOY_RUN.split(), "--dataset-name", "random", "--num-prompts", "2", "--random-input-len", "8"]
    more = ["--random-output-len", "4", "--max-model-len", "64", "--output-dir", str(tmp_path)]
    result = CliRunner().invoke(app, [*words, *more], prog_name="specbench")
    assert result.exit_code == 0, result.output


def test_help_looks_for_no_packages():
    code = """if True:
        import importlib.metadata as metadata
        def looked(**group): raise SystemExit("looked for packages")
        metadata.entry_points = looked
        from specbench.harness.cli.main import app
        app(["run", "--help"], prog_name="specbench")"""
    path = Path(__file__).parents[2] / ".ns"
    done = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(path)}, capture_output=True, text=True)
    assert done.returncode == 0 and "looked" not in done.stderr, done.stderr
