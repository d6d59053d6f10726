"""lm-eval's own command line with our model: its spellings, its options, and GSM8K without the hub."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
from toy.eval_tasks import with_chat_template, write_tasks

pytest.importorskip("lm_eval")

from specbench.harness.quality.lm_evaluation import cli as lm_eval_cli  # noqa: E402
from specbench.harness.quality.lm_evaluation.gsm8k import Gsm8kRows  # noqa: E402

ROOT = Path(__file__).parents[3]


@pytest.fixture
def words(chat_model, tmp_path) -> list[str]:
    folder = write_tasks(tmp_path / "tasks")
    arguments = f"pretrained={chat_model},strategy=ngram,k=2,dtype=float32,max_model_len=200"
    options = f"--model specbench --model_args {arguments} --device cpu --tasks counting --include_path {folder}"
    return [*options.split(), "--output_path", str(tmp_path / "out"), "--log_samples"]


@pytest.fixture
def command(monkeypatch, capsys):
    """Runs `specbench-lm-eval` in this process, over the tasks of the include path only: lm-eval's own take ten
    seconds to read. Other tests read what lm-eval logs: its level is put back."""
    from lm_eval.tasks import TaskManager

    whole = TaskManager.__init__
    monkeypatch.setattr(
        TaskManager, "__init__", lambda self, *a, **options: whole(self, *a, **options | {"include_defaults": False})
    )
    monkeypatch.setenv("LMEVAL_LOG_LEVEL", "ERROR")
    logger = logging.getLogger("lm_eval")
    level = logger.level

    def call(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["specbench-lm-eval", *arguments])
        lm_eval_cli.main()
        return capsys.readouterr().out

    yield call
    logger.setLevel(level)


def samples(folder: Path) -> list[int]:
    """Items in lm-eval's own record of its samples."""
    (file,) = folder.rglob("samples_counting*.jsonl")
    return sorted(json.loads(line)["doc_id"] for line in file.read_text().splitlines())


@pytest.mark.parametrize("start", [["run"], []], ids=["run", "the older spelling"])
def test_both_spellings(command, words, tmp_path, start):
    out = command(*start, *words, "--limit", "3")
    assert "|counting|" in out and "exact_match" in out and "specbench (" in out
    assert samples(tmp_path / "out") == [0, 1, 2]


def test_samples_by_number(command, words, tmp_path):
    command("run", *words, "--samples", '{"counting": [1, 4]}')
    assert samples(tmp_path / "out") == [1, 4]


def test_a_chat_template_stands_in_lm_evals_record(command, words, tmp_path, chat_model):
    place = words.index("--model_args") + 1
    words[place] = words[place].replace(str(chat_model), str(with_chat_template(chat_model, tmp_path)))
    command("run", *words, "--limit", "1", "--apply_chat_template")
    (file,) = (tmp_path / "out").rglob("results_*.json")
    assert json.loads(file.read_text())["chat_template"] == "<user>QUESTION<assistant>"


def test_help(command, capsys):
    with pytest.raises(SystemExit) as ended:
        command("run", "--help")
    assert ended.value.code == 0 and "--include_path" in capsys.readouterr().out


def test_a_wrong_key_is_one_line(command, words, capsys):
    words[words.index("--model_args") + 1] += ",kk=3"
    with pytest.raises(SystemExit) as ended:
        command("run", *words)
    said = capsys.readouterr().err.splitlines()[-1]
    assert ended.value.code == 2 and said.startswith("specbench: error: ngram:") and "kk" in said


def test_code_of_a_model_is_never_trusted(command, words, capsys):
    with pytest.raises(SystemExit) as ended:
        command("run", *words, "--trust_remote_code")
    said = capsys.readouterr().err.splitlines()[-1]
    assert ended.value.code == 2 and said.startswith("specbench: error:") and "trust_remote_code" in said


@pytest.mark.parametrize(("key", "value"), [("device", "cpu"), ("batch_size", "4")])
@pytest.mark.parametrize("has_option", [True, False], ids=["beside lm-eval's option", "beside its default"])
def test_an_option_of_lm_evals_among_the_keys_is_one_line(command, words, capsys, key, value, has_option):
    place = words.index("--device")
    if not has_option:
        del words[place : place + 2]
    words[words.index("--model_args") + 1] += f",{key}={value}"
    with pytest.raises(SystemExit) as ended:
        command("run", *words)
    said = capsys.readouterr().err.splitlines()[-1]
    assert ended.value.code == 2
    assert said == f"specbench: error: {key}: is an option of lm-eval, not a key of --model_args; give --{key} {value}"


# As `python -m`, over the tasks of the include path only: as in `command`.
MODULE = """
import runpy
from functools import partialmethod
from lm_eval.tasks import TaskManager
TaskManager.__init__ = partialmethod(TaskManager.__init__, include_defaults=False)
runpy.run_module("specbench.harness.quality.lm_evaluation.cli", run_name="__main__", alter_sys=True)
"""


def test_a_process_of_its_own(words, tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / ".ns"), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    module = [sys.executable, "-c", MODULE]
    done = subprocess.run([*module, "run", *words, "--limit", "2"], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert "|counting|" in done.stdout and samples(tmp_path / "out") == [0, 1]


def test_the_one_liner_for_users_of_simple_evaluate(words, chat_model, command):
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    lm_eval_cli.register()
    found = simple_evaluate(
        model="specbench",
        model_args={"pretrained": str(chat_model), "strategy": "ngram", "dtype": "float32", "max_model_len": 200},
        device="cpu",
        tasks=["counting"],
        limit=2,
        bootstrap_iters=0,
        task_manager=TaskManager(include_path=words[words.index("--include_path") + 1]),
    )
    assert found["results"]["counting"]["exact_match,none"] == 0.0


@pytest.mark.parametrize(
    ("words", "replaced"),
    [
        (["run", "--tasks", "gsm8k,arc_easy"], True),
        (["run", "--tasks=gsm8k"], True),
        (["run", "-t", "gsm8k"], True),
        (["run", "--tasks", "gsm8k_cot"], False),
        (["run", "--tasks", "gsm8k", "--include_path", "x"], False),
        (["run", "--tasks", "gsm8k", "--include_path=x"], False),
    ],
)
def test_gsm8k_needs_no_hub_and_what_was_replaced_is_said(command, monkeypatch, capsys, tmp_path, words, replaced):
    row = json.dumps({"question": "1+1?", "answer": "#### 2"})
    (tmp_path / "rows.jsonl").write_text(row + "\n")
    path, given = str(tmp_path / "rows.jsonl"), []
    rows = Gsm8kRows(test=path, fewshot=path, source="file", notes=("examples from elsewhere",))
    monkeypatch.setattr("specbench.harness.quality.lm_evaluation.gsm8k.find_rows", lambda **_: rows)
    monkeypatch.setattr("lm_eval.__main__.cli_evaluate", lambda: given.extend(sys.argv))
    command(*words)
    assert (Path(given[-1]).name.startswith("specbench-tasks-")) == replaced


def test_what_it_logs_is_paired_by_accuracy(command, words, cli, tmp_path):
    """Its own files, written by two commands: names, hashes, values and the direction of the metric."""
    for name in "ab":
        command("run", *words, "--output_path", str(tmp_path / name))
    files = [next((tmp_path / name).rglob("samples_counting*.jsonl")) for name in "ab"]
    result = cli("accuracy", "--samples", *files, "--format", "json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    (metric,) = found["metrics"]
    assert found["tasks"] == ["counting", "counting"] and metric["metric"] == "exact_match"
    assert (metric["items"]["n"], metric["left_out"], metric["items"]["same_output"]) == (6, {}, 1.0)
    assert metric["higher_is_better"] is True and metric["num_by_target"] == metric["num_other_prompts"] == 0
