"""`specbench ab` refuses what it cannot measure or judge, before anything is written, and to go on with other code."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specbench.harness.store.ab_record import AbPlan
from specbench.harness.text import parse_percent

REFUSED = {
    "no sides": ([], 2, "name the sides with -A and -B"),
    "another workload": (["-A", "no-spec", "-B", "no-spec --num-prompts 5"], 5, "dataset num_prompts: 6 and 5"),
    "another load": (["-A", "no-spec", "-B", "no-spec --max-concurrency 2"], 5, "max_concurrency: 1 and 2"),
    "two arms": (
        ["-A", "-s no-spec -s ngram", "-B", "ngram"],
        2,
        "A: strategy: no-spec, ngram are not allowed; allowed: one arm",
    ),
    "no arm": (
        ["-A", "--sync single", "-B", "ngram"],
        2,
        "A: strategy: no-spec, ngram are not allowed; allowed: one arm; name it in",
    ),
    "one side": (
        ["-A", "ngram"],
        2,
        "ngram are not allowed; allowed: one arm; name it in -B, as -B eagle:k=4, or for both sides with -s",
    ),
    "more outputs than all": (
        ["-A", "ngram", "-B", "no-spec", "--min-same-output", "200%"],
        2,
        "min_same_output: '200%'",
    ),
    "an effect of all": (["-A", "ngram", "-B", "no-spec", "--min-effect", "100%"], 2, "min_effect: '100%' is not"),
    "repeats of its own": (
        ["-A", "ngram --num-repeats 2", "-B", "ngram"],
        2,
        "A: --num-repeats: every block is one repeat; set the number of blocks with --blocks",
    ),
    "a label of one side": (
        ["-A", "ngram", "-B", "ngram --label x"],
        2,
        "B: --label cannot be set for one side; set it for both, outside of -A and -B",
    ),
    "progress of one side": (["-A", "ngram --progress none", "-B", "ngram"], 2, "A: --progress cannot be set for one"),
    "a checkout without a revision": (
        ["-A", "ngram", "-B", "no-spec", "--checkout", "."],
        2,
        "checkout: '.' has no effect without a revision",
    ),
    "blank sides": (["-A", " ", "-B", " ", "-s", "ngram"], 2, "name the sides with -A and -B"),
    "another model": (["-A", "ngram", "-B", "ngram --model llama-3.1-8b"], 5, "model: "),
    "accuracy in every block": (["-A", "ngram --accuracy gsm8k", "-B", "ngram"], 2, "A: --accuracy: each block"),
    "an unknown strategy": (["-A", "nospec", "-B", "ngram"], 2, "'nospec' is not known"),
    "an unknown option of an arm": (["-A", "ngram", "-B", "ngram:kk=2"], 2, "B: ngram: unknown option 'kk'"),
    "a plan that cannot be": (["-A", "ngram", "-B", "ngram:graph=one"], 2, "B: graph is refused"),
    "an unknown option": (["-A", "ngram --colour red", "-B", "ngram"], 2, "error: A: No such option: --colour"),
    "an unknown common option": (["-A", "ngram", "-B", "no-spec", "--colour", "red"], 2, "No such option: --colour"),
    "an open quote": (["-A", "ngram 'x", "-B", "ngram"], 2, "A: cannot read"),
    "an effect without a unit": (["-A", "ngram", "-B", "no-spec", "--min-effect", "2"], 2, "give a percentage"),
    "no blocks": (["-A", "ngram", "-B", "no-spec", "--blocks", "0"], 2, "blocks: 0 is not allowed"),
    "a revision in this process": (["-A", "ref:HEAD ngram", "-B", "ngram", "--in-process"], 2, "--in-process"),
    "two revisions of one side": (["-A", "ref:HEAD ngram", "-B", "ngram", "--ref-a", "HEAD"], 2, "given twice"),
    "an empty revision": (["-A", "ref: ngram", "-B", "ngram"], 2, "needs a revision"),
    "too few blocks": (["-A", "ngram", "-B", "no-spec", "--blocks", "2"], 2, "a verdict takes 6 or more, --no-verdict"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_before_anything_is_written(cli, small, runs, inline, case):
    words, code, message = REFUSED[case]
    result = cli("ab", *small, *words)
    assert result.exit_code == code and message in " ".join(result.stderr.split()), result.stderr
    assert not runs.exists() or not list(runs.iterdir())
    assert not inline


def test_refused_in_one_process(cli, small, runs):
    result = cli("ab", *small, "-A", "no-spec", "-B", "no-spec --dtype bfloat16", "--in-process")
    assert (
        result.exit_code == 2 and "also differ in dtype; leave --in-process out" in result.stderr and not runs.exists()
    )


def test_what_is_no_experiment(cli, toy, only_run, tmp_path):
    cli(*toy, "-s", "no-spec", "--quiet")
    result = cli("ab", "--resume", only_run().path)
    assert result.exit_code == 2 and "is not an A/B run; resume with: specbench run --resume" in result.stderr
    beside = cli("ab", "--resume", only_run().path, "--blocks", 3, "--num-prompts", 2)
    assert beside.exit_code == 2 and "drop --blocks --num-prompts 2" in beside.stderr


def test_an_experiment_does_not_go_on_with_other_code(cli, small, only_run, inline):
    inline.fail[3] = KeyboardInterrupt()
    assert cli("ab", "-A", "no-spec", "-B", "ngram:k=2", "--blocks", 2, "--no-verdict", *small).exit_code == 130
    run = only_run()
    record = run.record
    sides = {label: replace(side, git=replace(side.git, sha="0" * 40)) for label, side in record.ab.sides.items()}
    run.put(replace(record, ab=replace(record.ab, sides=sides)))
    resumed = cli("ab", "--resume", run.path, "--quiet")
    assert resumed.exit_code == 2 and f"its first block ran the code of {'0' * 40}" in resumed.stderr
    assert len(only_run().done_blocks()) == 2, "what was measured is kept"


def test_an_experiment_in_one_process_does_not_go_on_with_other_code(cli, small, only_run):
    words = ["-A", "no-spec", "-B", "ngram:k=2", "--blocks", 1, "--no-verdict", "--in-process"]
    assert cli("ab", *words, *small).exit_code == 4
    run = only_run()
    ab = run.record.ab
    run.put(replace(run.record, ab=replace(ab, code_state="another", plan=replace(ab.plan, num_blocks=2))))
    resumed = cli("ab", "--resume", run.path)
    assert resumed.exit_code == 2 and "began with different code (commit or local edits)" in resumed.stderr
    assert "resume with" not in resumed.stderr and not only_run().record.resumes, "refused before it goes on"


@pytest.mark.parametrize(
    ("states", "message"),
    [
        (["one", "one", "one", "two"], "B: the code was edited while a block ran it; start a new experiment"),
        (["one", "one", "two", "two"], "B: the code was edited since A's first block; start a new experiment"),
        (["one"] * 4 + ["two"] * 2, "A: the code was edited since its first block; start a new experiment"),
    ],
)
def test_local_edits_end_an_experiment(cli, small, inline, monkeypatch, states, message):
    """States of the checkout as they are asked for, before and after every process; A goes first in the first block."""
    asked = iter(states)
    monkeypatch.setattr("specbench.harness.experiments.ab_fresh.code_state", lambda root: next(asked))
    monkeypatch.setattr(AbPlan, "order", lambda plan: [("A", "B")] * plan.num_blocks)
    result = cli("ab", "-A", "no-spec", "-B", "ngram:k=2", "--blocks", 2, "--no-verdict", *small)
    assert result.exit_code == 2 and message in " ".join(result.stderr.split()), result.stderr


@pytest.mark.parametrize("text", ["2", "1", "-1%", "one", "%", "", "nan"])
def test_what_is_no_percentage(text):
    with pytest.raises(ValueError, match="min_effect: .* give a percentage"):
        parse_percent("min_effect", text)
