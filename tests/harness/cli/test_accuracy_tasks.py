"""What `specbench accuracy` asks and how: rendered prompts, chat templates, tasks of the user's, sampled decoding."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pandas as pd
import pytest
from toy.eval_tasks import with_chat_template, write_tasks
from toy.interrupts import interrupted

pytest.importorskip("lm_eval")

from lm_eval.api.instance import Instance  # noqa: E402

from specbench.harness.quality.lm_evaluation.by_arguments import SpecbenchLM  # noqa: E402
from specbench.harness.quality.lm_evaluation.model import EngineLM  # noqa: E402
from specbench.harness.quality.lm_evaluation.store import read_accuracy  # noqa: E402
from specbench.harness.store.run_directory import RunDirectory  # noqa: E402

ARMS = ["-s", "no-spec", "-s", "ngram:k=2"]
ROLLING = """\
output_type: loglikelihood_rolling
test_split: test
doc_to_text: ""
doc_to_target: "{{question}}"
metric_list:
  - metric: word_perplexity
"""


@pytest.fixture
def words(chat_model, runs, tmp_path) -> list[str]:
    """An evaluation of the six items of `counting`; later options win."""
    folder = write_tasks(tmp_path / "tasks")
    options = f"--model {chat_model} --dtype float32 --device cpu --max-model-len 200 --batch_size 1"
    return ["accuracy", *options.split(), "--warmup-max-s", "0.02", "--output-dir", str(runs)] + [
        *("--tasks", "counting", "--include_path", str(folder))
    ]


@pytest.fixture
def contexts(monkeypatch) -> list[str]:
    """Every prompt as the model class gets it, in order."""
    found: list[str] = []
    whole = EngineLM._prompt_ids

    def record(self, context, max_tokens):
        found.append(context)
        return whole(self, context, max_tokens)

    monkeypatch.setattr(EngineLM, "_prompt_ids", record)
    return found


def outputs(run: RunDirectory) -> dict[tuple[str, str], list[int]]:
    rows = run.frames().requests
    keys = zip(rows["arm"], rows["prompt_id"], strict=True)
    return {key: list(ids) for key, ids in zip(keys, rows["output_token_ids"], strict=True)}


def test_few_shot_examples_are_never_test_rows(cli, words, contexts):
    assert cli(*words, "-s", "no-spec", "--num_fewshot", "2").exit_code == 0
    assert len(contexts) == 6
    for item, context in enumerate(contexts):
        assert context.endswith(f"Question: test {item}+1?\nAnswer:")
        assert context.count("test ") == 1 and context.count("Question: train ") == 2


def test_examples_from_the_asked_split_are_said_and_never_the_asked_row(cli, words, contexts, tmp_path):
    folder = write_tasks(tmp_path / "test", examples="test")
    result = cli(*words, "--include_path", folder, "-s", "no-spec", "--num_fewshot", "2")
    assert result.exit_code == 0, result.output
    assert "few-shot examples of counting are other rows of the evaluated split" in result.stdout
    assert [context.count(f"test {item}+1?") for item, context in enumerate(contexts)] == [1] * 6


def test_a_task_whose_examples_could_be_the_asked_row_is_refused(cli, words, runs, tmp_path):
    folder = write_tasks(tmp_path / "bare", examples="")
    result = cli(*words, "--include_path", folder, "-s", "no-spec", "--num_fewshot", "2")
    assert result.exit_code == 2 and "no rows for examples except the evaluated ones" in result.stderr
    assert not runs.exists()


def test_a_task_whose_items_have_no_scores_is_refused_before_anything_is_measured(cli, words, runs, tmp_path):
    """lm-eval gives the perplexity of texts as pairs, which failed the arm after all of its tasks were answered."""
    folder = write_tasks(tmp_path / "texts")
    task = folder / "counting.yaml"
    task.write_text(task.read_text().partition("output_type")[0] + ROLLING)
    result = cli(*words, "--include_path", folder, "-s", "no-spec")
    assert result.exit_code == 2 and "counting is not allowed: its items have no scores" in result.stderr
    assert not runs.exists()


@pytest.mark.parametrize(("name", "metric"), [("choosing", "brier_score"), ("counting", "f1"), ("counting", "bleu")])
def test_a_task_whose_every_metric_is_of_all_items_is_refused_before(cli, words, runs, tmp_path, name, metric):
    folder = write_tasks(tmp_path / "pairs")
    task = folder / f"{name}.yaml"
    task.write_text(re.sub("metric: .*(\n    .*)*", f"metric: {metric}", task.read_text()))
    result = cli(*words, "--include_path", folder, "--tasks", name, "-s", "no-spec")
    assert result.exit_code == 2 and f"{name} is not allowed: its items have no scores" in result.stderr
    assert not runs.exists()


def test_a_task_that_cannot_score_an_empty_answer_is_asked_all_the_same(cli, words, only_run, tmp_path):
    folder = write_tasks(tmp_path / "own")
    (folder / "own.py").write_text("def score(doc, results):\n    return {'half': 1 / bool(results[0])}\n")
    task = folder / "counting.yaml"
    task.write_text(task.read_text().replace("metric_list", "process_results: !function own.score\nmetric_list"))
    result = cli(*words, "--include_path", folder, "-s", "no-spec")
    assert result.exit_code == 0, result.output
    assert set(read_accuracy(only_run().path)["metric"]) == {"half"}


def test_a_metric_of_all_items_together_does_not_fail_the_others(cli, words, only_run, tmp_path):
    """Of an item lm-eval gives a pair, which is no score: it failed the arm after all items were answered."""
    folder = write_tasks(tmp_path / "pairs")
    task = folder / "choosing.yaml"
    task.write_text(task.read_text().replace("- metric: acc", "- metric: acc\n  - metric: brier_score"))
    result = cli(*words, "--include_path", folder, "--tasks", "choosing", "-s", "no-spec")
    assert result.exit_code == 0, result.output
    run = only_run()
    assert set(read_accuracy(run.path)["metric"]) == {"acc"}
    assert "choosing: no brier_score, of which items have no score" in run.record.arm("no-spec").notes


def test_the_same_examples_for_every_arm_and_batch(cli, words, contexts):
    assert cli(*words, *ARMS, "--num_fewshot", "2").exit_code == 0
    assert contexts[:6] == contexts[6:] and len(set(contexts)) == 6


def test_chat_template(cli, words, contexts, chat_model, tmp_path, only_run):
    model = with_chat_template(chat_model, tmp_path)
    result = cli(*words, *ARMS, "--model", model, "--apply_chat_template", "--num_fewshot", "1", "--limit", "2")
    assert result.exit_code == 0, result.output
    for item, context in enumerate(contexts[:2]):
        shot = r"<user>Question: train \d\+1\?\nAnswer:<assistant>\s?\d"
        assert re.fullmatch(rf"{shot}<user>Question: test {item}\+1\?\nAnswer:<assistant>", context), context
    own = outputs(only_run())
    assert [ids for (arm, _), ids in own.items() if arm == "no-spec"] == [
        ids for (arm, _), ids in own.items() if arm == "ngram:k=2"
    ]


def test_a_model_without_a_chat_template_is_refused_before_anything_is_written(cli, words, runs):
    result = cli(*words, "--apply-chat-template")
    assert result.exit_code == 2 and "has no chat template" in result.stderr and not runs.exists()


def test_the_bos_of_a_template_is_not_doubled(chat_model, tmp_path):
    folder = with_chat_template(chat_model, tmp_path)
    model = SpecbenchLM(pretrained=str(folder), dtype="float32", max_model_len=64)

    class AddsBos:
        bos_id = 7

        def encode(self, text):
            return [7, *([7] if text.startswith("<s>") else []), 1, 2]

    model._model = replace(model._model, tokenizer=AddsBos())
    assert model.tok_encode("<s>ab") == [7, 1, 2] == model.tok_encode("ab")


def test_tasks_of_the_users_own_need_no_gsm8k(cli, words, monkeypatch, only_run):
    monkeypatch.setattr("specbench.harness.quality.lm_evaluation.tasks.find_rows", None)
    result = cli(*words, "--tasks", "counting:3,choosing", *ARMS)
    assert result.exit_code == 0, result.output
    rows = read_accuracy(only_run().path)
    assert rows.groupby(["arm", "task"]).size().to_dict() == {
        (arm, task): count for arm in ("no-spec", "ngram:k=2") for task, count in (("counting", 3), ("choosing", 6))
    }
    assert rows[rows["task"] == "choosing"]["num_output_tokens"].isna().all()
    assert rows["higher_is_better"].eq(True).all(), "as lm-eval says of exact_match and acc"
    choosing = next(line for line in result.stdout.splitlines() if re.match(r"ngram:k=2 +choosing .*100%", line))
    assert choosing.split()[-2:] == ["-", "-"], "nothing was generated: no speed, no acceptance"


def test_sampled_answers_are_the_same_twice_and_for_every_strategy(cli, words, runs):
    sampled = ["--gen_kwargs", "do_sample=True,temperature=0.8,max_gen_toks=12"]
    found = []
    for extra in (sampled, [*sampled, "--batch_size", "3"], [*sampled, "--seed", "7"]):
        result = cli(*words, *ARMS, *extra, "--output-dir", runs / str(len(found)))
        assert result.exit_code == 0, result.output
        (path,) = (runs / str(len(found))).iterdir()
        found.append(outputs(RunDirectory.open(path)))
    assert found[0] == found[1], "whatever stands beside it in a batch"
    one, other = ({k: v for (a, k), v in found[0].items() if a == arm} for arm in ("no-spec", "ngram:k=2"))
    assert one == other and len(one) == 6
    assert list(found[2].values()) != list(found[0].values()), "another seed"


def test_a_sampled_question_that_a_task_repeats_is_answered_anew(chat_model):
    model = SpecbenchLM(pretrained=str(chat_model), dtype="float32", max_model_len=64)

    def ask(**settings):
        once = Instance(
            "generate_until", {}, ("hello", {"until": [], "max_gen_toks": 12, **settings}), 0, ("toy", 0, 3)
        )
        return model.generate_until([once] * 3, disable_tqdm=True)

    assert len(set(ask(do_sample=True, temperature=1.0))) == 3
    assert len(set(ask(do_sample=False))) == 1


def test_items_follow_a_warm_up_that_leaves_no_rows(cli, words, only_run, clock):
    result = cli(*words, "-s", "no-spec", "--limit", "2", "--warmup-max-s", "1")
    assert result.exit_code == 0 and result.stderr.index("warming up") < result.stderr.index("2 requests")
    (arm,) = only_run().record.arms
    assert int(re.search(r"\((\d+) rounds\)", arm.warmup).group(1)) > 0
    assert len(only_run().frames().requests) == 2
    steps, requests = only_run().frames().steps, only_run().frames().requests
    assert steps["t_start_ns"].min() >= requests["t_submit_ns"].min(), "no step of the warm-up"


def test_cut_prompts_are_said(cli, words, only_run):
    assert cli(*words, "-s", "no-spec", "--num_fewshot", "3", "--max-model-len", "90").exit_code == 0
    assert only_run().record.arms[0].notes[-1] == "6 prompts shortened at the beginning to fit"


def test_a_real_interrupt_and_a_resume_give_the_same_table(cli, words, runs, tmp_path):
    asked = [*words, *ARMS, "--warmup-max-s", "1"]
    whole = cli(*asked, "--output-dir", tmp_path / "whole")
    assert whole.exit_code == 0, whole.output
    code, _, stderr = interrupted(asked, "ngram:k=2: warming up")
    assert code == 130 and "Traceback" not in stderr, stderr
    (path,) = runs.iterdir()
    assert stderr.splitlines()[-1].endswith(f"Continue with: specbench accuracy --resume {path}")
    assert set(read_accuracy(path)["arm"]) == {"no-spec"}
    resumed = cli("accuracy", "--resume", path)
    assert resumed.exit_code == 0, resumed.output
    (one,) = (tmp_path / "whole").iterdir()
    pd.testing.assert_frame_equal(read_accuracy(one), read_accuracy(path))
    assert outputs(RunDirectory.open(one)) == outputs(RunDirectory.open(path))
    assert _without_times(whole.stdout) == _without_times(resumed.stdout)


def _without_times(text: str) -> list[list[str]]:
    """Words of the two tables but those of the last column, TPOT; no line that names the run or gives a time."""
    lines = [line for line in text.splitlines() if not re.search(r"Accuracy \(|run directory|^-|TPOT|warm-up", line)]
    return [re.sub(r"[\d.]+ \([\d.]+x.*$", "", line).split() for line in lines]


def test_changed_questions_are_not_gone_on_with(cli, words, only_run, tmp_path):
    assert cli(*words, "-s", "no-spec", "--limit", "1").exit_code == 0
    (tmp_path / "tasks" / "test.jsonl").write_text(json.dumps({"question": "other?", "answer": "1"}) + "\n")
    result = cli("accuracy", "--resume", only_run().path)
    assert result.exit_code == 2 and "questions of the evaluation have changed" in result.stderr


def test_forced_acceptance_is_refused(cli, words, runs):
    result = cli(*words, "-s", "ngram:k=2,acceptance=synthetic:2.0")
    assert result.exit_code == 2 and "forced acceptance gives wrong text" in result.stderr and not runs.exists()
