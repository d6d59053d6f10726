"""`specbench ab` on two revisions of an engine's checkout: each side runs its own, and a wrong one is an error."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli.conftest import _wide_and_colourless, cli, inline, only_run, runs  # noqa: F401
from engines.source.conftest import checkout, laid, venv  # noqa: F401
from toy.engine_checkout import IN_FRONT, edit, git, make_finder, state

from specbench.harness.experiments.ab_fresh import FreshBlocks

MORE = "--engine sglang --model smollm2-135m --load-format dummy --num-layers 2 --dtype float32 --device cpu "
MORE += "--dataset-name random --random-input-len 6 --random-output-len 12 --num-prompts 2 --max-model-len 64 "
MORE += "--warmup-max-s 0.05"


def ab(cli, venv: Path, runs: Path, *words: str):  # noqa: F811
    return cli("ab", *words, "--engine-python", venv, *MORE.split(), "--output-dir", runs)


def test_each_side_runs_its_own_revision(cli, inline, venv, checkout, laid, runs, only_run):  # noqa: F811
    before = state(checkout)
    result = ab(
        cli, venv, runs, "-A", "no-spec --engine-ref first", "-B", "no-spec:ref=second", "--blocks", "1", "--no-verdict"
    )
    assert result.exit_code == 4, result.output
    run = only_run()
    arms = {arm.label: arm for arm in run.record.arms}
    assert not run.failed_blocks()
    for label, ref in (("A", "first"), ("B", "second")):
        facts = arms[label].engine
        assert facts.version == f"0.5.16+built.{ref}", "what it imported says so itself"
        said = {key: facts.config[f"source.{key}"] for key in ("ref", "commit", "dirty")}
        assert said == {"ref": ref, "commit": git(checkout, "rev-parse", ref), "dirty": "false"}
        assert any(note.startswith(f"code of {ref} (") for note in arms[label].notes)
    assert {path.suffix for path in laid.iterdir()} == {".lock"} and state(checkout) == before


def test_the_checkout_as_it_stands_beside_a_revision(cli, inline, venv, checkout, laid, runs, only_run):  # noqa: F811
    edit(checkout, "python/sglang/__init__.py", ".second", ".edited")
    result = ab(cli, venv, runs, "-A", "no-spec --engine-ref second", "-B", "no-spec", "--blocks", "1", "--no-verdict")
    assert result.exit_code == 4, result.output
    facts = {arm.label: arm.engine for arm in only_run().record.arms}
    assert {label: one.version for label, one in facts.items()} == {
        "A": "0.5.16+built.second",
        "B": "0.5.16+built.edited",
    }
    assert facts["B"].config["source.dirty"] == "true" and "source.ref" not in facts["B"].config


def test_a_branch_that_moves_between_blocks(cli, inline, venv, checkout, runs, laid, monkeypatch):  # noqa: F811
    run = FreshBlocks._run

    def moving(self, side, folder, log):
        code = run(self, side, folder, log)
        git(checkout, "commit", "-q", "--allow-empty", "-m", "on")
        return code

    monkeypatch.setattr(FreshBlocks, "_run", moving)
    result = ab(
        cli,
        venv,
        runs,
        "-s",
        "no-spec",
        "-A",
        "--engine-ref main",
        "-B",
        "--engine-ref first",
        "--blocks",
        "2",
        "--no-verdict",
    )
    assert result.exit_code == 2 and "A: the engine's checkout has changed since its first block" in result.stderr


def test_differences_in_compiled_sources_are_refused_before_anything_starts(cli, venv, checkout, runs):  # noqa: F811
    edit(checkout, "csrc/kernel.cu", "one", "two")
    result = ab(cli, venv, runs, "-A", "no-spec:ref=first", "-B", "no-spec")
    assert result.exit_code == 2 and "A: ref: 'first' is not allowed; its build differs" in result.stderr
    assert "csrc/kernel.cu" in result.stderr and not runs.exists()


def test_code_from_elsewhere_is_an_error(cli, tmp_path, checkout, runs, laid):  # noqa: F811
    """Of a build whose finder comes before all paths."""
    front = make_finder(tmp_path / "front", checkout, IN_FRONT)
    words = ["--engine-python", front, "--engine-ref", "first", "-s", "no-spec", *MORE.split(), "--num-repeats", "1"]
    result = cli("run", *words, "--output-dir", runs)
    assert result.exit_code == 2, result.output
    assert f"sglang comes from {checkout}" in result.stderr and "not from the revision's own files" in result.stderr


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["-s", "no-spec:ref=first"], "ref: 'first' has no effect on our own engine"),
        (
            ["-s", "sglang/no-spec:ref=first", "--engine-command", "x"],
            "ref: 'first' is not allowed together with command",
        ),
        (["-s", "llama.cpp/no-spec:ref=first"], "ref: 'first' cannot be given to llama.cpp"),
        (["-s", "openai/as-served:ref=first,url=http://127.0.0.1:9/v1"], "ref: 'first' is not allowed for a server"),
    ],
)
def test_where_there_is_no_revision_to_run(cli, runs, words, why):  # noqa: F811
    result = cli("run", *words, "--output-dir", runs)
    assert result.exit_code == 2 and why in result.stderr, result.stderr
