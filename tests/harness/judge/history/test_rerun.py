from __future__ import annotations

import shlex
from dataclasses import replace

import pytest

from specbench.harness.judge.rerun import certify_command, floor_command, load_options, rerun_command, sweep_command
from specbench.harness.spec.arm import parse_arm
from specbench.harness.spec.conditions import RunConfig
from specbench.harness.store.ab_record import AbPlan, AbRecord, Side, SideRecord
from specbench.harness.store.run_record import RunRecord

A, B = "a" * 40, "b" * 40


def measured(text: str = "eagle:k=4", label: str = "eagle:k=4", **conditions) -> RunConfig:
    arms = (replace(parse_arm(text), label=label),)
    return RunConfig(arms=arms, **{"num_prompts": 4, "num_repeats": 7, **conditions})


def record(config: RunConfig | None, *words: str, **more) -> RunRecord:
    return RunRecord(argv=("specbench", *words), arms=(), config=config, **more)


@pytest.mark.parametrize("command", ["run", "ab", "sweep", "power", "run --recipe vllm-pr-20078"])
def test_the_load_is_that_of_the_configuration_whoever_made_it(command):
    """A recipe, a sweep and an A/B name no model or data set of their own in their command."""
    config = measured(model="my model", dataset_name="jsonl", dataset_path="~/a b.jsonl", max_concurrency=4)
    config = replace(config, ignore_eos=True, stop=("x", "y"), request_rate=0.5)
    assert load_options(record(config, *command.split())) == (
        "--model 'my model' --dataset-name jsonl --dataset-path ~/'a b.jsonl' --num-prompts 4 --max-concurrency 4 "
        "--request-rate 0.5 --ignore-eos --stop x --stop y"
    )


@pytest.mark.parametrize(("names", "said"), [("random,gsm8k", " --random-input-len 9"), ("gsm8k,humaneval", "")])
def test_lengths_that_no_data_set_reads_are_left_out(names, said):
    """A recipe set them for its own data set, and a command with them would be refused."""
    config = measured(dataset_name=names, random_input_len=9)
    assert load_options(record(config, "run")) == f"--dataset-name {names} --num-prompts 4{said}"


def test_what_was_imported_has_no_load():
    assert load_options(record(None, "import", "x.json")) == ""


def test_arms_are_named_with_every_switch():
    stored = record(measured("eagle:k=4,head=random", label="fused", max_concurrency=8))
    assert floor_command(stored, "fused").endswith("-s eagle:k=4,head=random --num-prompts 4 --max-concurrency 8")
    assert sweep_command(stored, ["fused"]).endswith("1,4,16 -s eagle:k=4,head=random --num-prompts 4")


def ab(sides: dict[str, RunConfig], sha: str | None = None) -> RunRecord:
    plan = AbPlan(sides=tuple(Side(label=n, text="", words=(), sha=sha) for n in "AB"))  # type: ignore[arg-type]
    stored = {name: SideRecord(config=config) for name, config in sides.items()}
    return record(next(iter(sides.values())), "ab", ab=AbRecord(plan=plan, sides=stored))


def test_both_sides_of_an_experiment_are_certified_by_one_command():
    """The configuration of a run whose sides had processes of their own names one of them alone."""
    sides = {"A": measured("eagle:k=2", num_prompts=50), "B": measured("eagle:k=4", num_prompts=50)}
    assert certify_command(ab(sides)) == "specbench certify -s eagle:k=2 -s eagle:k=4 --max-concurrency 1"
    in_one = replace(measured(), arms=(parse_arm("ngram"), parse_arm("eagle:k=2")))
    one = replace(ab({"A": in_one}), ab=replace(ab({"A": in_one}).ab, sides={}))
    assert certify_command(one).startswith("specbench certify -s ngram -s eagle:k=2 --num-prompts 4")


def test_sides_that_one_command_cannot_certify():
    sides = {"A": measured("eagle:k=2"), "B": measured("eagle:k=4")}
    assert certify_command(ab(sides, sha=A)) == ""
    assert certify_command(ab({**sides, "B": measured("eagle:k=4", model="other")})) == ""


def test_the_command_is_one_that_ab_reads():
    command = rerun_command(A, B, "eagle:k=4", "--num-prompts 4")
    assert shlex.split(command)[2:] == [
        "-A",
        f"ref:{A[:12]} eagle:k=4",
        "-B",
        f"ref:{B[:12]} eagle:k=4",
        *"--num-prompts 4".split(),
    ]


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (A, B + "+", "without local changes: bbbbbbbbbbbb+ cannot"),
        (A + "+1a2b", B, "without local changes: aaaaaaaaaaaa+ cannot"),
        ("20260101T000000Z-run-12345678", B, "is not a commit"),
    ],
)
def test_what_is_no_commit_cannot_be_run_again(before, after, why):
    assert why in rerun_command(before, after, "no-spec", "")
