"""`import specbench`: measuring and reading from Python says what the command line says."""

from __future__ import annotations

import shlex
import signal
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from toy.interrupts import terminal_signals

import specbench
from specbench.harness.engines.native.deployment import NativeDeployment
from specbench.harness.run.progress import NullProgress
from specbench.harness.spec.options import RunOptions
from specbench.reports.run.view import view_run

TOY = dict(
    load_format="dummy",
    model="toy",
    dtype="float32",
    dataset_name="random",
    random_input_len=12,
    random_output_len=10,
    num_prompts=3,
    warmup_max_s=0.02,
    max_model_len=64,
)
ARMS = ["no-spec", "ngram:k=2"]


@pytest.fixture
def toy(tmp_path) -> dict:
    return {**TOY, "output_dir": tmp_path / "runs"}


def test_a_run_and_its_tables(toy):
    run = specbench.run(strategy=ARMS, num_repeats=2, **toy)
    assert run.status == "complete" and run.path.parent == toy["output_dir"]
    table, blocks = run.table(), run.blocks()
    assert list(table.index) == ARMS and (table["status"] == "ok").all() and table["num_repeats"].tolist() == [2, 2]
    assert list(blocks.index) == [(arm, repeat) for arm in sorted(ARMS) for repeat in (0, 1)]
    assert table["tps"].tolist() == [pytest.approx(blocks["tps"][arm].median()) for arm in ARMS]
    assert table["speedup"]["ngram:k=2"] == view_run(run.path).arms[1].speedup.tps_ratio
    assert len(run.requests) == 2 * 2 * 3 and set(run.steps["arm"]) == set(run.requests["arm"]) == set(ARMS)
    assert isinstance(run.phases, pd.DataFrame)
    again = specbench.open_run(run.path)
    pd.testing.assert_frame_equal(again.table(), table)
    assert again.record.command.startswith("specbench run --strategy no-spec --strategy ngram:k=2 --num-repeats 2")
    assert (run.path / "report.md") in run.write_reports()


def test_goodput_of_a_run_and_of_a_stored_one(toy):
    run = specbench.run(strategy=ARMS, num_repeats=1, goodput=["ttft:100000", "e2el:100000"], **toy)
    table = run.table()
    assert table["goodput.share"].tolist() == [1, 1]
    assert table["goodput.requests_per_s"].tolist() == pytest.approx(table["requests_per_s"].tolist())
    assert run.blocks()["goodput.share"].tolist() == [1, 1]
    run.write_reports()
    assert "goodput" in (run.path / "report.md").read_text()
    assert "goodput.share" not in specbench.open_run(run.path).table()
    none = specbench.open_run(run.path, goodput=["ttft:0.000001"]).table()
    assert none["goodput.share"].tolist() == [0, 0] == none["goodput.requests_per_s"].tolist()
    with pytest.raises(ValueError, match="goodput: 'latency:5' is not allowed"):
        specbench.open_run(run.path, goodput=["latency:5"])


def test_a_sweep(toy):
    sweep = specbench.sweep(strategy="ngram:k=1", max_concurrency=[1, 2], num_repeats=2, **toy)
    assert sweep.status == "complete" and list(sweep.runs) == [1, 2]
    table = specbench.open_sweep(sweep.path).table()
    assert table[["arm", "max_concurrency"]].values.tolist() == [
        [a, n] for a in ("no-spec", "ngram:k=1") for n in (1, 2)
    ]
    kept = specbench.open_sweep(sweep.path, goodput=["ttft:100000"])
    assert (kept.table()["goodput.share"] == 1).all() and (kept.runs[2].table()["goodput.share"] == 1).all()
    mine = table[table["arm"] == "ngram:k=1"]
    assert (mine["tps_speedup_low"] <= mine["tps_speedup"]).all() and (mine["tpot_speedup"] > 0).all()


def test_an_ab(toy):
    result = specbench.ab("no-spec", {"strategy": "ngram:k=2"}, blocks=2, no_verdict=True, in_process=True, **toy)
    assert result.verdict == "exploratory" and result.table().loc["tokens per step", "num_pairs"] > 0
    assert specbench.open_ab(result.path).record == result.record
    assert result.run.record.command.startswith("specbench ab --a no-spec --b '--strategy ngram:k=2'")
    with pytest.raises(ValueError, match="not comparable|A and B differ in"):
        specbench.ab("no-spec", {"strategy": "no-spec", "num_prompts": 2}, blocks=6, in_process=True, **toy)


def test_a_side_may_be_what_both_have_in_common_and_an_experiment_goes_on(toy):
    both = dict(strategy="ngram:k=2", blocks=1, no_verdict=True, in_process=True, stop_token_id=[1, 2], **toy)
    result = specbench.ab({}, {"state_update": "torch"}, **both)
    assert [side.text for side in result.run.record.ab.plan.sides] == ["", "--state-update torch"]
    assert result.run.record.config.stop_token_ids == (1, 2)
    assert specbench.ab("", "", resume=result.path).path == result.path, "nothing was left to measure"
    with pytest.raises(ValueError, match="a: name the sides with"):
        specbench.ab("", "", **both)
    with pytest.raises(ValueError, match="num_speculative_tokens: is another spelling of k"):
        specbench.ab({}, {"k": 2, "num_speculative_tokens": 3}, **both)


def test_the_recorded_command_has_several_values_as_words(toy):
    run = specbench.run(s="no-spec", num_repeats=1, stop_token_id=[1, 2], **toy)
    words = shlex.split(run.record.command)[2:]
    assert RunOptions.parse(words).stop_token_ids == run.record.config.stop_token_ids == (1, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strategy": "nospec"}, "'nospec' is not known"),
        ({"num_prompt": 3}, "No such option: num_prompt"),
        ({"num_prompts": 0}, "num_prompts"),
        ({"k": 2, "num_speculative_tokens": 3}, "num_speculative_tokens: is another spelling of k; give one of the"),
        ({"s": "no-spec", "strategy": "ngram"}, "strategy: is another spelling of s"),
        ({"dtype": "int4"}, "dtype: 'int4' is not known; allowed: "),
        ({"block_size": -1}, "^block_size: -1 is not allowed"),
        ({"strategy": []}, r"strategy: \[\] is empty; give one or more, or leave it out for the default"),
        ({"stop_token_ids": ()}, r"stop_token_ids: \(\) is empty"),
        ({"num_prompts": []}, r"num_prompts: \[\] is empty"),
        ({"num_prompts": set()}, r"num_prompts: set\(\) is not allowed; allowed: a single value, or a list"),
        ({"stop_token_ids": np.array([1, 2])}, r"stop_token_ids: array\(\[1, 2\]\) is not allowed; allowed"),
    ],
)
def test_bad_options_are_value_errors(toy, options, message):
    with pytest.raises(ValueError, match=message):
        specbench.run(**{**toy, **options})
    assert not toy["output_dir"].exists()


def test_loads_of_a_sweep_are_named_as_they_were_given(toy):
    for name in ("batch_sizes", "max_concurrency"):
        with pytest.raises(ValueError, match=f"^{name}: '0,2' is not allowed; allowed: different numbers from 1"):
            specbench.sweep(**toy, **{name: [0, 2]})


def test_an_ab_takes_no_empty_list_either(toy):
    with pytest.raises(ValueError, match=r"strategy: \[\] is empty"):
        specbench.ab("--sync single", "--sync none", strategy=[], **toy)
    with pytest.raises(ValueError, match=r"strategy: \[\] is empty"):
        specbench.ab({"strategy": []}, "ngram", **toy)
    with pytest.raises(ValueError, match=r"stop_token_ids: array\(\[1, 2\]\) is not allowed"):
        specbench.ab({"stop_token_ids": np.array([1, 2])}, "ngram", **toy)
    assert not toy["output_dir"].exists()


def test_options_as_they_are_and_a_run_that_goes_on(toy):
    options = specbench.RunOptions(**{**toy, "strategy": ("no-spec",), "num_repeats": 1})
    run = specbench.run(options)
    assert "--strategy no-spec" in run.record.command and "--num-prompts 3" in run.record.command
    again = specbench.run(resume=run.path)
    assert again.path == run.path and again.record.resumes == (), "nothing was left to measure"
    with pytest.raises(ValueError, match="resume: a run resumes with its own options; drop --seed"):
        specbench.run(specbench.RunOptions(resume=run.path, seed=1))
    with pytest.raises(ValueError, match="k: 3 has no effect"):
        specbench.run(replace(options, k=3))
    with pytest.raises(ValueError, match="seed: options are given as an object or by name, not both"):
        specbench.run(options, seed=1)
    with pytest.raises(ValueError, match="resume: a run resumes with its own options; drop --seed"):
        specbench.run(resume=run.path, seed=1)
    with pytest.raises(ValueError, match="batch_sizes: '1,2' makes several runs"):
        specbench.run(batch_sizes=[1, 2], **toy)


def test_a_recipe_in_an_object_is_recorded_as_the_recipe(tmp_path, toy):
    recipe = tmp_path / "mine.toml"
    recipe.write_text("[run]\nnum_repeats = 1\nk = 2\n[[arm]]\nstrategy = 'ngram'\n")
    run = specbench.run(specbench.RunOptions.of({**toy, "recipe": str(recipe)}))
    again = RunOptions.parse(shlex.split(run.record.command)[2:])
    assert again.given == {*toy, "recipe"} and [arm.label for arm in run.record.arms] == ["ngram"]


def test_what_is_not_stored_there(tmp_path, toy):
    for read in (specbench.open_run, specbench.open_sweep, specbench.open_ab):
        with pytest.raises(ValueError, match=str(tmp_path)):
            read(tmp_path)
    with pytest.raises(ValueError, match="not an A/B experiment; read it with specbench.open_run"):
        specbench.open_ab(specbench.run(strategy="no-spec", num_repeats=1, **toy).path)


def test_progress_is_told(toy):
    class Lines(NullProgress):
        def __init__(self):
            self.lines = []

        def say(self, text):
            self.lines.append(text)

    progress = Lines()
    run = specbench.run(strategy="no-spec", num_repeats=1, progress=progress, **toy)
    assert f"writing to {run.path}" in progress.lines


def test_ctrl_c_keeps_what_was_measured_and_ends_the_script(toy, monkeypatch):
    measure, blocks = NativeDeployment.measure, []

    def pressing(*words):
        blocks.append(words)
        if len(blocks) == 2:
            signal.raise_signal(signal.SIGINT)
        return measure(*words)

    monkeypatch.setattr(NativeDeployment, "measure", pressing)
    with terminal_signals(), pytest.raises(KeyboardInterrupt, match="resume with: specbench run --resume"):
        specbench.run(strategy=ARMS, num_repeats=1, **toy)
    (path,) = toy["output_dir"].iterdir()
    run = specbench.open_run(path)
    assert run.status == "interrupted" and run.table()["status"].tolist() == ["ok", "pending"]
