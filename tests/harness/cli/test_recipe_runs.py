"""`specbench run --recipe` and `--base` on the toy model: the table, what is stored, what the command line replaces."""

from __future__ import annotations

import json

import pytest
from cli.conftest import assert_refused

from specbench.harness.spec.measured_acceptance import measured_acceptances
from specbench.harness.spec.plans import PLANS
from specbench.harness.spec.recipe_files import FOLDER

CPU = (
    "--model toy --device cpu --dtype float32 --num-prompts 2 --output-len 8 --max-model-len 1100 --num-repeats 1 "
    "--warmup-max-s 0.02 --attention torch --graph none -q"
)


@pytest.fixture
def toy_recipe(cli, runs):
    def call(*words: object):
        return cli("run", *CPU.split(), "--output-dir", runs, *words)

    return call


def forced(depth: int) -> str:
    """What `measured:sharegpt` is for a chain of `depth` drafts."""
    return "synthetic:rates=" + "/".join(f"{r:g}" for r in measured_acceptances()["sharegpt"].marginal[:depth])


def table_below(stdout: str, title: str) -> list[str]:
    lines = stdout.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(title))
    return lines[start:]


def test_20078_prints_its_table_and_stores_what_it_was(toy_recipe, only_run):
    result = toy_recipe("--recipe", "vllm-pr-20078", "--sync", "single")
    assert result.exit_code == 0, result.output
    lines = table_below(result.stdout, "vLLM PR 20078")
    for header in ("state update", "TPOT change [95% CI]", "claimed TPOT", "syncs/round"):
        assert header in lines[1]
    assert lines[3].startswith("torch ops, multi [sync=single] (synthetic)") and "baseline" in lines[3]
    assert "* claimed: vLLM PR 20078" in result.stdout and "acceptance measured:sharegpt" in result.stdout
    record = only_run().record
    recipe, config = record.purpose.recipe, record.config
    assert recipe.name == "vllm-pr-20078" and len(recipe.sha256) == 64
    assert config.max_num_batched_tokens == 8192, "from the recipe"
    assert config.model == "toy", "from the command line"
    assert config.arms[0].engine["acceptance"] == forced(4)
    assert record.arms[0].graph_parts == PLANS["none"]


def test_a_recipe_s_lengths_stay_where_the_user_takes_another_data_set(toy_recipe, only_run):
    words = "--num-layers 2 --dataset-name sharegpt-lengths --output-len 4 --max-model-len 96 -s no-spec"
    result = toy_recipe("--recipe", "sglang-pr-6995-one-gpu", *words.split())
    assert result.exit_code == 0, result.output
    assert only_run().record.config.random_input_len == 870


def test_6995_has_trees_and_requests_per_second(toy_recipe):
    lengths = "--num-layers 2 --random-input-len 12 --random-output-len 8"
    result = toy_recipe("--recipe", "sglang-pr-6995-one-gpu", *lengths.split())
    assert result.exit_code == 0, result.output
    lines = table_below(result.stdout, "SGLang PR 6995")
    assert [line.split("  ")[0] for line in lines[3:8]] == [
        f"{name} (synthetic)"
        for name in ("no speculation", "EAGLE (2, 4, 4)", "EAGLE (1, 2, 2)", "EAGLE (1, 1, 2)", "naive EAGLE")
    ]
    assert "requests/s" in lines[1] and "0.68" in lines[7]


def test_25196_counts_the_drafters_rows(toy_recipe):
    result = toy_recipe("--recipe", "vllm-pr-25196", "--format", "json")
    assert result.exit_code == 0, result.output
    (table,) = json.loads(result.stdout)["tables"]
    rows = [dict(zip(table["headers"], row, strict=True)) for row in table["rows"]]
    assert [row["drafter batch"] for row in rows] == ["unpadded", "padded", "unpadded", "padded", "padded"]
    assert float(rows[1]["drafter rows/round"]) == 5 > float(rows[0]["drafter rows/round"])
    assert any("measured once" in note for note in table["notes"]), "both backends became torch"


def test_34880_with_a_draft_model_of_the_toys_vocabulary(toy_recipe, tmp_path):
    copy = tmp_path / "toy.toml"
    copy.write_text((FOLDER / "vllm-pr-34880.toml").read_text().replace("shape:qwen3-0.6b", "shape:toy"))
    result = toy_recipe("--recipe", copy, "--num-prompts", "1")
    assert result.exit_code == 0, result.output
    lines = table_below(result.stdout, "vLLM PR 34880")
    assert len([line for line in lines if line.startswith(("EAGLE K=", "draft model K="))]) == 17
    assert "first drafter pass" in lines[1] and "as eager" in lines[4]


def test_an_arm_that_cannot_run_here_is_refused_by_name(cli, runs):
    result = cli("run", *CPU.split(), "--output-dir", runs, "--recipe", "vllm-pr-20078")
    assert result.exit_code == 2 and not runs.exists()
    assert "specbench: error: fused, none, padded: sync=none is refused" in result.stderr


def test_arms_typed_replace_the_recipes(toy_recipe, only_run):
    result = toy_recipe("--recipe", "vllm-pr-25196", "-s", "no-spec", "-s", "naive-eagle:k=2")
    assert result.exit_code == 0, result.output
    record = only_run().record
    assert [arm.label for arm in record.arms] == ["no-spec", "naive-eagle:k=2,head=random"]
    assert record.config.arms[1].engine["acceptance"] == forced(2)
    assert "claimed TPS" not in result.stdout, "the claims are about other arms"


def test_a_users_own_recipe(toy_recipe, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        '[run]\nload_format = "dummy"\ndataset_name = "random"\nrandom_input_len = 9\nhead = "random"\n'
        '[[arm]]\nstrategy = "no-spec"\nbaseline = true\n[[arm]]\nstrategy = "eagle"\nk = 2\n[report]\ntitle = "ours"\n'
    )
    result = toy_recipe("--recipe", path)
    assert result.exit_code == 0, result.output
    lines = table_below(result.stdout, "ours")
    assert [line.split()[0] for line in lines[3:5]] == ["no-spec", "eagle:k=2"]


@pytest.mark.parametrize("text", ["", "[run]\nnum_prompts = 2\n", "arm = []\n"])
def test_a_recipe_without_arms_is_refused(toy_recipe, tmp_path, runs, text):
    """The default arms, which no recipe means, took hours on another model."""
    path = tmp_path / "conditions.toml"
    path.write_text(text)
    why = f"recipe {path}: arm: none is given; allowed: one or more [[arm]], or --strategy"
    assert_refused(toy_recipe("--recipe", path), runs, why)


def test_a_recipe_of_conditions_takes_the_arms_that_are_typed(toy_recipe, only_run, tmp_path):
    path = tmp_path / "conditions.toml"
    path.write_text('[run]\nload_format = "dummy"\ndataset_name = "random"\nrandom_input_len = 9\n')
    assert toy_recipe("--recipe", path, "-s", "no-spec").exit_code == 0
    assert [arm.label for arm in only_run().record.arms] == ["no-spec"]


def test_an_ablation_over_two_batch_sizes(toy_recipe, runs):
    words = "--base vllm-0.9 --ablate sync=single,none --ablate drafter=padded --batch-sizes 1,2"
    result = toy_recipe(*words.split())
    assert result.exit_code == 0, result.output
    assert len(list(runs.iterdir())) == 2
    joined = result.stdout[result.stdout.rindex("Ablation of vllm-0.9") :].splitlines()
    cells = [line.split() for line in joined[3:] if line]
    assert [row[:3] for row in cells if row[0] in ("base", "sync", "drafter")] == [
        ["base", "vllm-0.9", "1"],
        ["base", "vllm-0.9", "2"],
        ["sync", "single", "1"],
        ["sync", "single", "2"],
        ["sync", "none", "-"],
        ["drafter", "padded", "1"],
        ["drafter", "padded", "2"],
    ]
    assert "refused: sync=none: launches on a CPU are synchronous" in result.stdout


def test_a_resumed_or_shown_run_has_its_table_too(toy_recipe, cli, only_run):
    first = toy_recipe("--recipe", "vllm-pr-25196", "-s", "no-spec").stdout
    title = "vLLM PR 25196: FlashInfer in speculative decoding, padded drafter batch"
    assert title in first
    path = only_run().path
    assert title in cli("show", path).stdout
    assert title in cli("run", "--resume", path, "-q").stdout
    assert f"## {title}" in (path / "report.md").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--recipe vllm-pr-20078 --base best", "base: --recipe and --base are mutually exclusive"),
        ("--ablate sync=none", "ablate: needs --base"),
        ("--base best -s no-spec", "strategy: --base brings its own arm"),
        ("--recipe seed-1", "recipe: 'seed-1' is not known"),
        ("--recipe seed-25196", "recipe: 'seed-25196' is now called 'vllm-pr-25196'"),
        ("--base seed-faithful", "base: 'seed-faithful' is now called 'vllm-0.9'"),
        ("--base vllm-before-pr-20078", "base: 'vllm-before-pr-20078' is now called 'vllm-0.9'"),
        ("--base worst", "base: 'worst' is not known; allowed: vllm-0.9, best"),
        ("--batch-sizes 1,x", "batch_sizes: '1,x' is not allowed"),
        ("--batch-sizes 2,2", "batch_sizes: '2,2' is not allowed"),
        ("--batch-sizes 0", "batch_sizes: '0' is not allowed"),
        ("--acceptance measured:x", "acceptance: 'measured:x' is not known; allowed: measured:sharegpt"),
    ],
)
def test_bad_input_ends_in_one_line(toy, cli, runs, words, message):
    result = cli(*toy, *words.split())
    assert result.exit_code == 2 and not runs.exists()
    assert message in result.stderr and len(result.stderr.strip().splitlines()) == 1


def test_list_shows_recipes_and_bases(cli):
    content = json.loads(cli("list", "--format", "json").stdout)
    seeds = {"sglang-pr-6995", "sglang-pr-6995-one-gpu", "vllm-pr-20078", "vllm-pr-25196", "vllm-pr-34880"}
    in_others = {"sglang-pr-6995-in-sglang", "vllm-pr-25196-in-vllm", "vllm-pr-34880-in-vllm"}
    assert set(content["recipes"]) == seeds | in_others
    assert list(content["bases"]) == ["vllm-0.9", "best"]
    assert "vLLM PR 25196" in cli("list").stdout
