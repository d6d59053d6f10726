"""`specbench accuracy` and the lm-eval model class on a toy checkpoint, without a network."""

from __future__ import annotations

import json
import logging
import re

import pandas as pd
import pytest

pytest.importorskip("lm_eval")

from lm_eval import evaluator  # noqa: E402
from lm_eval.api.instance import Instance  # noqa: E402

from specbench.harness.engines.native import adapter as native  # noqa: E402
from specbench.harness.quality.lm_evaluation import by_arguments  # noqa: E402
from specbench.harness.quality.lm_evaluation import evaluate as evaluation  # noqa: E402
from specbench.harness.quality.lm_evaluation.by_arguments import SpecbenchLM  # noqa: E402
from specbench.harness.quality.lm_evaluation.cli import register  # noqa: E402
from specbench.harness.quality.lm_evaluation.gsm8k import EXEMPLARS, find_rows, read_rows  # noqa: E402
from specbench.harness.quality.lm_evaluation.quiet import lm_eval_noise  # noqa: E402
from specbench.harness.store.run_directory import RunDirectory  # noqa: E402

WARM = ["--warmup-max-s", "0.02"]


@pytest.fixture
def rows(tmp_path):
    """Files of six test and four train rows."""
    paths = {}
    for split, count in (("test", 6), ("train", 4)):
        paths[split] = tmp_path / f"{split}.jsonl"
        lines = [{"question": f"{split} {i}+1?", "answer": f"It is {i + 1}.\n#### {i + 1}"} for i in range(count)]
        paths[split].write_text("".join(json.dumps(line) + "\n" for line in lines))
    return paths


@pytest.fixture
def words(rows, chat_model, runs):
    options = f"--model {chat_model} --dtype float32 --device cpu --max-model-len 200 --gen_kwargs max_gen_toks=8"
    files = f"--gsm8k-path {rows['test']} --fewshot-path {rows['train']} --output-dir {runs}"
    return ["accuracy", *options.split(), *files.split(), "--num_fewshot", "1", "--batch_size", "1", *WARM]


def _requests(kind, arguments):
    return [Instance(kind, {}, args, i, ("toy", i, 1)) for i, args in enumerate(arguments)]


@pytest.mark.parametrize("arm", [dict(strategy="no-spec"), dict(strategy="ngram", k=3)])
def test_all_three_calls_agree_with_lm_evals_hf(chat_model, arm):
    pytest.importorskip("accelerate")  # lm-eval's `hf` needs it
    from lm_eval.models.huggingface import HFLM

    hf = HFLM(pretrained=str(chat_model), dtype="float32", device="cpu", batch_size=1, trust_remote_code=False)
    own = SpecbenchLM(**arm, batch_size=2, pretrained=str(chat_model), dtype="float32", max_model_len=256)
    settings = {"until": ["\n\n", "zz"], "max_gen_toks": 12, "do_sample": False}
    prompts = [("hello there hello there", settings), ("a b a b a b", settings), ("x", {**settings, "max_gen_toks": 5})]
    asked = _requests("generate_until", prompts)
    assert own.generate_until(asked, disable_tqdm=True) == hf.generate_until(asked, disable_tqdm=True)
    pairs = _requests("loglikelihood", [("two and two is", " four"), ("", "alone"), ("a ", "b")])
    for (mine, mine_greedy), (theirs, theirs_greedy) in zip(
        own.loglikelihood(pairs, disable_tqdm=True), hf.loglikelihood(pairs, disable_tqdm=True), strict=True
    ):
        assert mine == pytest.approx(theirs, abs=1e-3) and mine_greedy == theirs_greedy
    texts = _requests("loglikelihood_rolling", [("a text that is scored whole. " * 12,)])  # longer than the model
    assert own.loglikelihood_rolling(texts, disable_tqdm=True) == pytest.approx(
        hf.loglikelihood_rolling(texts, disable_tqdm=True), rel=1e-4
    )


def test_lm_eval_finds_the_class():
    from lm_eval.api.registry import get_model

    register()
    register()
    assert get_model("specbench") is SpecbenchLM


@pytest.mark.parametrize(
    ("options", "text"),
    [(dict(kk=4), "kk"), (dict(max_concurrency="x"), "max_concurrency: 'x'"), (dict(strategy="nospec"), "no-spec")],
)
def test_unknown_keys_are_refused(chat_model, options, text):
    with pytest.raises(ValueError, match=text):
        SpecbenchLM(**{"strategy": "ngram", "pretrained": str(chat_model), **options})


def test_keys_of_lm_evals_command_are_the_runs_or_the_arms(chat_model, monkeypatch):
    class Asked(Exception):
        pass

    def serve(config, progress):
        raise Asked(config)

    monkeypatch.setattr(by_arguments, "serve", serve)
    words = f"strategy=ngram,k=3,pretrained={chat_model},max_num_batched_tokens=64,mixed_chunk_size=16,num_pages=50"
    with pytest.raises(Asked) as asked:
        SpecbenchLM.create_from_arg_string(words, {"batch_size": 2})
    (config,) = asked.value.args
    assert (config.max_num_batched_tokens, config.mixed_chunk_size, config.num_pages) == (64, 16, 50)
    assert config.max_concurrency == 2 and config.model == str(chat_model)
    assert [arm.label for arm in config.arms] == ["ngram:k=3"]


def test_arms_that_are_the_same_are_refused(cli, words, runs):
    result = cli(*words, "-s", "ngram", "-s", "ngram:k=4")
    assert result.exit_code == 2 and "strategy: 'ngram:k=4' gives the same arm as 'ngram'" in result.stderr
    assert not runs.exists()


def test_table_rows_and_pairs(cli, words, only_run):
    result = cli(*words, "-s", "no-spec", "-s", "ngram:k=2", "--limit", "4")
    assert result.exit_code == 0, result.output
    assert "flexible-extract" in result.stdout and "strict-match" in result.stdout and "McNemar" in result.stdout
    assert "few-shot examples from file:" in result.stdout
    assert re.search(r"gsm8k test questions from file:\S+ in place of the hub's openai/gsm8k", result.stdout)
    run = only_run()
    table = pd.read_parquet(run.path / evaluation.TABLE)
    assert len(table) == 2 * 2 * 4  # arms, filters, items
    pairs = run.record.results.accuracy.pairs
    assert [p.items.same_output for p in pairs] == [1.0, 1.0] and all(p.arm == "ngram:k=2" for p in pairs)
    shown = cli("show", run.path)
    assert "McNemar" in shown.stdout


def test_it_says_which_arm_it_is_at_and_how_long_the_rest_takes(cli, words):
    result = cli(*words, "--limit", "2", "-s", "no-spec", "-s", "ngram:k=2", "--progress", "json")
    assert result.exit_code == 0, result.output
    lines = [json.loads(line) for line in result.stderr.splitlines() if line.startswith("{")]  # not lm-eval's
    blocks = [line for line in lines if line["event"] == "block"]
    assert [(block["label"], block["arm"], block["num_arms"]) for block in blocks] == [
        ("no-spec", 1, 2),
        ("ngram:k=2", 2, 2),
    ]
    assert blocks[0]["text"] == "arm 1 of 2: no-spec" and blocks[0]["remaining_s"] is None
    assert re.fullmatch(r"arm 2 of 2: ngram:k=2, about \d+ s left", blocks[1]["text"])
    assert blocks[1]["remaining_s"] > 0


def test_files_in_the_users_home_are_found_again(cli, words, runs, monkeypatch, tmp_path):
    """The record writes them from `~` on; the checks and the questions read them from where they are."""
    monkeypatch.setenv("HOME", str(tmp_path))
    result = cli(*words, "-s", "no-spec", "--tasks", "gsm8k:2")
    assert result.exit_code == 0, result.stderr
    run = next(runs.glob("*/run.json"))
    assert json.loads(run.read_text())["purpose"]["evaluation"]["gsm8k"]["test"].startswith("~/")
    assert cli("report", str(run.parent)).exit_code == 0


def test_quiet_says_nothing_but_errors(cli, words, monkeypatch, tmp_path, capfd, caplog):
    """lm-eval's bars, what it logs, and what git tells it outside a checkout."""
    monkeypatch.chdir(tmp_path)
    spoken = cli(*words, "-s", "no-spec", "--limit", "2")
    assert "it/s" in spoken.stderr and "not a git repository" in capfd.readouterr().err and caplog.records
    caplog.clear()
    result = cli(*words, "-s", "no-spec", "--limit", "2", "--quiet")
    assert result.exit_code == 0 and "flexible-extract" in result.stdout
    assert (result.stderr, capfd.readouterr().err, caplog.messages) == ("", "", [])
    assert evaluator.get_git_commit_hash.__module__ == "lm_eval.loggers.utils"  # all is as it was
    logging.getLogger("lm_eval").warning("heard again")
    with lm_eval_noise(is_heard=False):
        logging.getLogger("lm_eval").warning("a remark")
        logging.getLogger("lm_eval").error("a fault")
    assert caplog.messages == ["heard again", "a fault"]


def test_interrupted_and_resumed_gives_the_same_scores(cli, words, runs, monkeypatch):
    both = ["-s", "no-spec", "-s", "ngram:k=2"]
    assert cli(*words, *both).exit_code == 0
    (whole,) = runs.iterdir()
    put, calls = evaluation.ItemStore.put, []

    def interrupted(self, block):
        put(self, block)
        calls.append(self)
        if len(calls) == 3:  # in the middle of the second arm
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(evaluation.ItemStore, "put", interrupted)
        broken = cli(*words, *both)
    assert broken.exit_code == 130, broken.output
    (path,) = set(runs.iterdir()) - {whole}
    resumed = cli("accuracy", "--resume", path)
    assert resumed.exit_code == 0, resumed.output
    assert "4 outputs are already stored" in resumed.stderr
    figures = [RunDirectory.open(p).record.results.accuracy for p in (whole, path)]
    assert figures[0] == figures[1]
    requests = RunDirectory.open(path).frames().requests
    assert requests.groupby("arm")["prompt_id"].nunique().tolist() == [6, 6] and len(requests) == 12


def test_an_arm_that_failed_is_a_row_and_is_tried_again(cli, words, only_run, monkeypatch):
    build = native.build_engine

    def fails(arm, *rest):
        if arm.config.strategy == "ngram":
            raise RuntimeError("no room")
        return build(arm, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(native, "build_engine", fails)
        result = cli(*words, "-s", "no-spec", "-s", "ngram:k=2", "--limit", "2")
    assert result.exit_code == 1 and "ngram:k=2: not scored: RuntimeError: no room" in result.stdout
    result = cli("accuracy", "--resume", only_run().path)
    assert result.exit_code == 0, result.output
    assert "McNemar" in result.stdout and "no room" not in result.stdout and not only_run().failed_blocks()


def test_examples_from_the_test_rows_are_refused(rows):
    with pytest.raises(ValueError, match="6 examples .* are test questions"):
        find_rows(str(rows["test"]), str(rows["test"]))


def test_exemplars_end_in_the_form_that_the_strict_filter_reads():
    assert len(read_rows(EXEMPLARS)) == 8
    assert [row["answer"].rsplit("\n", 1)[1] for row in read_rows(EXEMPLARS)][:3] == ["#### 6", "#### 5", "#### 39"]


@pytest.mark.parametrize("bad", [["--limit", "0"], ["--num-fewshot", "-1"], ["--tasks", ","]])
def test_bad_numbers_are_refused(cli, words, runs, bad):
    result = cli(*words, *bad)
    assert result.exit_code == 2 and not runs.exists()


@pytest.mark.parametrize(
    ("bad", "what"),
    [
        ("min_tokens=3", "gen_kwargs: min_tokens is not known; allowed: until, max_gen_toks, do_sample"),
        ("max_gen_toks=many", "gen_kwargs: 'max_gen_toks=many' is not allowed"),
        ("top_k=few", "gen_kwargs: 'top_k=few' is not allowed"),
        ("max_gen_toks=0", "max_tokens: 0 is not allowed; allowed: 1 or more"),
        ("temperature=-1,do_sample=true", "temperature: -1.0 is not allowed; allowed: 0 or more"),
        ("top_p=2", "top_p: 2.0 is not allowed; allowed: above 0, up to 1"),
        ("max_new_tokens=900", "max_model_len: 200 is too short for gsm8k, whose answers take up to 900 tokens"),
    ],
)
def test_bad_generation_options_are_refused_before_anything_is_loaded(cli, words, runs, bad, what):
    result = cli(*words, "--gen_kwargs", bad)
    assert result.exit_code == 2 and what in result.stderr and not runs.exists()


def test_options_beside_resume_are_refused(cli, words, only_run):
    assert cli(*words, "-s", "no-spec", "--limit", "1").exit_code == 0
    result = cli("accuracy", "--resume", only_run().path, "--limit", "2", "--tasks", "gsm8k")
    assert result.exit_code == 2 and "resumes with its own options; drop --limit, --tasks" in result.stderr


def test_without_lm_eval_the_command_says_how_to_get_it(cli, words, monkeypatch):
    monkeypatch.setattr("specbench.harness.quality.lm_evaluation.tasks.find_spec", lambda name: None)
    result = cli(*words)
    assert result.exit_code == 2 and "pip install 'specbench-harness[accuracy]'" in result.stderr
