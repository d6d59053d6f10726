"""The schema of what is asked: words, files and calls give the same options, and what nobody knows is named."""

from __future__ import annotations

import dataclasses
import shlex

import pytest

from specbench.harness.registry import STRATEGIES
from specbench.harness.spec.arm import parse_arm
from specbench.harness.spec.commands import (
    AbOptions,
    AccuracyOptions,
    CertifyOptions,
    CheckHeadOptions,
    PowerOptions,
    ProfileOptions,
    SweepOptions,
)
from specbench.harness.spec.conditions import RunConfig
from specbench.harness.spec.fields import named_values
from specbench.harness.spec.options import GROUPS, OutputOptions, RunOptions
from specbench.harness.spec.spellings import RENAMED, RENAMED_FILES, SYNONYMS, one_each
from specbench.harness.store.codec import from_document, to_document
from specbench.harness.training.config import TrainHeadOptions
from specbench.workloads.assets.resolve import AssetError

KINDS = [
    *(RunOptions, SweepOptions, AbOptions, PowerOptions, ProfileOptions, CertifyOptions, AccuracyOptions),
    *(CheckHeadOptions, TrainHeadOptions),
]


def parse(text: str) -> RunOptions:
    return RunOptions.parse(shlex.split(text))


@pytest.mark.parametrize("kind", KINDS)
def test_every_option_says_what_it_is(kind):
    flags = [flag for said in kind.schema().values() for flag in said.flags]
    assert len(flags) == len(set(flags)) > 4
    for name, said in kind.schema().items():
        assert said.help and said.group in GROUPS, name
        assert not said.choices or said.default in said.choices, name
        assert said.kind in (int, float, str, bool) or said.kind.__name__ == "Path", name


def test_words_of_a_command_are_options():
    options = parse("-s eagle:k=4 --strategy=ngram --num-prompts 3 --ignore-eos --stop-token-id 5 --stop-token-id=6 -q")
    assert options.strategy == ("eagle:k=4", "ngram") and options.stop_token_ids == (5, 6)
    assert options.num_prompts == 3 and options.ignore_eos and options.quiet
    assert options.given == {"strategy", "num_prompts", "ignore_eos", "stop_token_ids", "quiet"}
    assert parse("--num-prompts 3 --num-prompts 4").num_prompts == 4, "the later one counts"
    assert parse("--seed 42").given == {"seed"}, "named, though it is the default"
    assert str(parse("-o there").output_dir) == str(parse("--output-dir there").output_dir) == "there"
    assert parse("").given == frozenset() and parse("") == RunOptions()


def test_keywords_are_the_options_that_words_are():
    named = dict(strategy="ngram", stop_token_id=[5, 6], request_rate=2, ignore_eos=True, batch_sizes=[1, 8], seed=None)
    words = "-s ngram --stop-token-id 5 --stop-token-id 6 --request-rate 2 --ignore-eos --batch-sizes 1,8"
    assert RunOptions.of(named_values(named, RunOptions.schema())) == parse(words)
    loads = SweepOptions.of(named_values({"max_concurrency": [1, 4], "block_size": 16}, SweepOptions.schema()))
    assert (loads.loads, loads.page_size) == ("1,4", 16)


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"colour": "red"}, "No such option: colour"),
        ({"num_prompt": 3}, r"No such option: num_prompt \(did you mean 'num_prompts'\?\)"),
        ({"num_prompts": 2.5}, "num_prompts: '2.5' is not a whole number"),
        ({"ignore_eos": 1}, "ignore_eos: 1 is not allowed; allowed: True, False"),
    ],
)
def test_keywords_that_are_no_options_are_named(named, message):
    with pytest.raises(ValueError, match=message):
        named_values(named, RunOptions.schema())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--colour red", "No such option: --colour"),
        ("--num-prompt 3", r"No such option: --num-prompt \(did you mean '--num-prompts'\?\)"),
        ("--num-prompts", "num_prompts: --num-prompts needs a value"),
        ("--num-prompts many", "num_prompts: 'many' is not a whole number"),
        ("--burstiness much", "burstiness: 'much' is not a number"),
        ("--ignore-eos=yes", "ignore_eos: .* takes no value"),
        ("--dtype float16", "dtype: 'float16' is not known; allowed: auto, bfloat16, float32"),
        ("--seed -1", "seed: -1 is not allowed; allowed: 0 to 9223372036854775807"),
        ("eagle", "No such option: eagle"),
        ("--recipe best.toml --base best", "--recipe and --base are mutually exclusive"),
    ],
)
def test_words_that_are_no_options_are_named(words, message):
    with pytest.raises(ValueError, match=message):
        parse(words)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (["batch_sizes"], "batch_sizes: 0 is not allowed"),
        (["loads"], "loads: 0 is not allowed"),
        (["batch_sizes", "max_concurrency"], "max_concurrency: 0 is not allowed"),
        (["seed"], "max_concurrency: 0 is not allowed"),
    ],
)
def test_an_error_names_an_option_as_it_was_written(keys, said):
    with pytest.raises(ValueError) as error, SweepOptions.as_written(keys):
        raise ValueError("max_concurrency: 0 is not allowed")
    assert str(error.value) == said


def test_as_written_changes_no_other_error():
    with pytest.raises(AssetError, match="^no network: max_concurrency"), SweepOptions.as_written(["batch_sizes"]):
        raise AssetError("no network: max_concurrency")


def test_a_recipe_s_key_is_named_as_it_was_written(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("[run]\nblock_size = 'x'\n")
    with pytest.raises(ValueError, match=r"run\.block_size: 'x' is not allowed; allowed: int"):
        RunOptions.of({"recipe": str(path)})


def test_a_recipe_gives_values_to_options_that_are_not_named(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("[run]\nnum_prompts = 7\nblock_size = 8\nsync = 'multi'\nstop_token_id = [1]\n")
    options = RunOptions.of({"recipe": str(path), "num_prompts": 3})
    assert (options.num_prompts, options.page_size, options.stop_token_ids) == (3, 8, (1,))
    assert options.given == {"recipe", "num_prompts"}
    assert options.switches.defaults == {"sync": "multi"} and not options.switches.given
    assert parse(f"--recipe {path} --num-prompts 3") == options
    assert RunOptions.of({"recipe": str(path)}).num_prompts == 7
    with pytest.raises(ValueError, match="RunOptions.of reads a recipe"):
        RunOptions(recipe=str(path))


def test_what_is_resumed_has_its_own_options():
    with pytest.raises(ValueError, match="resume: a run resumes with its own options; drop --seed, --strategy$"):
        parse("--resume runs/x -s ngram --seed 1 --format json").check_alone("a run")
    parse("--resume runs/x --format json -q").check_alone("a run")


# -- other spellings -------------------------------------------------------------------------------------------------


def test_synonyms_stand_for_options_or_keys_that_there_are():
    from specbench.harness.spec.arm import own_keys

    known = {*RunOptions.schema(), *(key for name in STRATEGIES for key in own_keys(name))}
    assert set(SYNONYMS.values()) <= known and not known & set(SYNONYMS)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("--num-speculative-tokens 3", "--k 3"),
        ("--speculative-num-steps=2", "--num-steps 2"),
        ("--block-size 16", "--page-size 16"),
        ("--attention-backend triton", "--attention triton"),
        ("--chunked-prefill-size 512", "--max-num-batched-tokens 512"),
        ("--input-len 9 --output-len 3", "--random-input-len 9 --output-len 3"),
    ],
)
def test_spellings_of_other_engines_are_accepted(theirs, ours):
    assert parse(theirs) == parse(ours) != RunOptions()


def test_spellings_of_other_engines_in_an_arm():
    arm = parse_arm("eagle-topk:speculative_num_steps=2,speculative_eagle_topk=4,attention_backend=torch")
    assert arm.options == {"num_steps": "2", "topk": "4"} and arm.engine == {"attention": "torch"}
    with pytest.raises(ValueError, match="k is given twice"):
        parse_arm("eagle:k=3,num_speculative_tokens=4")


@pytest.mark.parametrize(
    "words", ["--goodput ttft:500 tpot:50", "--goodput=ttft:500 tpot:50", "--goodput ttft:500 --goodput tpot:50"]
)
def test_limits_stand_behind_one_flag_as_vllm_takes_them(words):
    options = RunOptions.parse([*words.split(), "--seed", "7"])
    assert options.slos == {"ttft": 500.0, "tpot": 50.0} and options.seed == 7


def test_a_path_behind_the_limits_is_not_one_of_them():
    words = ["--goodput", "ttft:500", "runs/a:1", "C:\\runs", "tpot:50"]
    assert one_each(words) == words
    with pytest.raises(ValueError, match="goodput: 'itl:5' is not allowed"):
        RunOptions.parse(["--goodput", "itl:5"])


@pytest.mark.parametrize("words", ["run --json", "show x --markdown", "list --json", "gate x --json", "run --factor"])
def test_an_option_with_a_new_name_says_it(words):
    from typer.testing import CliRunner

    from specbench.harness.cli.main import app

    result = CliRunner().invoke(app, words.split(), prog_name="specbench")
    old = words.split()[-1]
    assert result.exit_code == 2 and f"{old} is now written {RENAMED[old]}" in result.stderr


def test_old_names_of_files_have_new_ones_that_ship():
    from specbench.harness.spec.recipe_files import base_summaries, recipe_names

    assert set(RENAMED_FILES.values()) <= {*recipe_names(), *base_summaries()}


# -- from options to what runs ---------------------------------------------------------------------------------------


def test_a_configuration_has_the_conditions_of_its_options_and_comes_back_as_stored():
    options = parse("--num-prompts 3 --temperature 0.5 --stop-token-id 4 --request-rate 2.5")
    config = RunConfig.of_arms(options, [parse_arm("ngram:k=2")], seed=9)
    assert (config.num_prompts, config.temperature, config.stop_token_ids, config.seed) == (3, 0.5, (4,), 9)
    assert config.workload.num_prompts == 3 and config.workload.seed == 9
    assert from_document(RunConfig, to_document(config), "config") == config


def test_options_of_output_are_not_part_of_the_comparison():
    assert not {field.name for field in dataclasses.fields(OutputOptions)} & {
        field.name for field in dataclasses.fields(RunConfig)
    }
