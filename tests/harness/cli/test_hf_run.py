"""`specbench run --dataset-name hf`: its options reach the data set, and mistakes in them end in one line."""

from __future__ import annotations

import json
import shutil

import pytest
from datasets import Dataset, DatasetDict

from specbench.reports.markdown import escape_markdown


@pytest.fixture
def asked(chat, chat_model, tmp_path) -> list[str]:
    """A run over a data set of two splits, on the chat model with a template of one turn."""
    model = shutil.copytree(chat_model, tmp_path / "templated")
    settings = json.loads((model / "tokenizer_config.json").read_text())
    settings["chat_template"] = "{{ messages[0]['content'] }}"
    (model / "tokenizer_config.json").write_text(json.dumps(settings))
    data = {name: Dataset.from_list([{"said": f"{name} {i}", "n": i} for i in range(3)]) for name in ("a", "b")}
    DatasetDict(data).save_to_disk(str(tmp_path / "data"))
    words = f"--model {model} --dataset-name hf --dataset-path {tmp_path / 'data'} --output-len 6"
    return [*chat, *words.split(), "-s", "no-spec", "-s", "ngram:k=2"]


def test_a_data_set_is_measured(cli, asked, only_run):
    result = cli(*asked, "--hf-split", "b", "--hf-column", "said")
    assert result.exit_code == 0, result.output
    workload = only_run().record.workload
    assert "split 'b', column 'said', all 3 rows; " in workload.rule and workload.num_prompts == 2
    assert escape_markdown(workload.rule) in (only_run().path / "report.md").read_text()


MISTAKES = {
    "split": (["--hf-split", "c"], "hf_split: 'c' is not in the data set; allowed: a, b"),
    "column": (["--hf-split", "a"], "hf_column: none is given; allowed: said, n"),
    "subset": (["--hf-subset", "main"], "hf_subset: 'main' is not allowed; "),
    "path": (["--dataset-path", "no/where.parquet"], "dataset_path: 'no/where.parquet' does not exist"),
    "too few": (["--hf-split", "a", "--hf-column", "said", "--num-prompts", "4"], "has 3 that pass its rule"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes_end_in_one_line(cli, asked, runs, case):
    words, said = MISTAKES[case]
    result = cli(*asked, *words)
    assert result.exit_code == 2 and result.stdout == "" and not runs.exists()
    line = result.stderr.splitlines()[-1]
    assert line.startswith("specbench: error: ") and said in line
