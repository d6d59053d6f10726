"""Files that do not fit or are broken: heads, checkpoints, tokenizers, data sets. Found before anything is measured."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from cli.conftest import assert_refused
from toy.checkpoints import llama_config

from specbench.harness.store.prompts import read_prompts


def test_a_good_head_is_measured(cli, chat, only_run, make_head):
    result = cli(*chat, "-s", "no-spec", "-s", f"eagle:k=2,head={make_head()}")
    assert result.exit_code == 0, result.output
    assert only_run().failed_blocks() == {} and len(only_run().done_blocks()) == 2


HEADS = {
    "hidden size": (
        dict(hidden_size=96, target_hidden_size=96, target=llama_config(hidden_size=96)),
        "was trained for hidden_size 96, the target has 64",
    ),
    "vocabulary": (dict(vocab_size=640), "was trained for vocab_size 640, the target has 320"),
    "no fc": (dict(change=lambda t: t.pop("fc.weight")), "has no tensor fc.weight; is it an EAGLE-3 head?"),
    "no norm": (dict(change=lambda t: t.pop("norm.weight")), "has no tensor 'norm.weight'"),
    "shape": (dict(change=lambda t: t.update({"norm.weight": t["norm.weight"][:5]})), "has shape (5,)"),
    "d2t": (dict(change=lambda t: t.update(d2t=t["d2t"] + 9999)), "must map 48 draft ids into 0..319"),
    "architecture": (dict(architectures=["MambaForCausalLM"]), "architecture 'MambaForCausalLM' is not supported"),
}


@pytest.mark.parametrize("case", HEADS)
def test_a_head_that_does_not_fit(cli, chat, runs, make_head, case):
    how, words = HEADS[case]
    arm = f"naive-eagle:head={make_head(**how)}"
    # Behind an arm that is fine: it must not have been measured when the head is refused.
    assert_refused(cli(*chat, "-s", "no-spec", "-s", arm), runs, words, "head")


def truncate(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:5000])


def pickle_of_noise(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"noise" * 100)


def config(text: str):
    return lambda folder: (folder / "config.json").write_text(text)


def config_without(key: str):
    def change(folder: Path) -> None:
        values = json.loads((folder / "config.json").read_text())
        del values[key]
        (folder / "config.json").write_text(json.dumps(values))

    return change


BROKEN = {
    "truncated": (truncate, "is not a complete safetensors file", "again"),
    "corrupt pickle": (pickle_of_noise, "pytorch_model.bin is corrupt, truncated or no state dict", "fetch it again"),
    "config not JSON": (config("{not json"), "config.json", "not", "valid JSON"),
    "config a list": (config("[]"), "config.json"),
    "config without a size": (config_without("hidden_size"), "config.json has no whole number under hidden_size"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_head(cli, chat, runs, make_head, case):
    change, *words = BROKEN[case]
    head = make_head()
    change(head)
    assert_refused(cli(*chat, "-s", "no-spec", "-s", f"eagle:head={head}"), runs, *words)


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_model(cli, chat, runs, chat_model, tmp_path, case):
    change, *words = BROKEN[case]
    model = tmp_path / "model"
    shutil.copytree(chat_model, model)
    change(model)
    assert_refused(cli(*chat, "--model", model), runs, *words)


def test_a_model_without_a_tokenizer(cli, chat, runs, chat_model, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(chat_model, model, ignore=shutil.ignore_patterns("tokenizer*"))
    assert_refused(cli(*chat, "--model", model), runs, "no usable tokenizer in")


def test_paths_that_are_no_model(cli, chat, runs, tmp_path):
    noise = tmp_path / "noise.gguf"
    noise.write_bytes(b"noise" * 1000)
    for model, words in (
        ("./nowhere", "./nowhere does not exist"),
        (tmp_path, "is not a Hugging Face model directory"),
        (noise, "is not a readable GGUF file"),
        ("", "model: is empty"),
    ):
        assert_refused(cli(*chat, "--model", model), runs, words)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("--dataset-name jsonl --dataset-path nowhere.jsonl", "dataset_path: nowhere.jsonl does not exist"),
        ("--dataset-name gsm8k --dataset-path /", "dataset_path: / is a directory; the data set gsm8k reads a file"),
        ("--dataset-name jsonl", "workload jsonl needs a file: --dataset-path FILE"),
    ],
)
def test_a_path_that_is_no_file_is_told_before_a_model_is_looked_for(cli, given, said):
    done = cli("run", "-s", "no-spec", "--model", "no-such-model", *given.split())
    assert done.exit_code == 2 and said in done.stderr and "no-such-model" not in done.stderr


LINES = {
    "malformed": ('{"prompt": "a", "max_tokens": 4}\n{"prompt": \n', ":2: not valid JSON"),
    "too long": (
        json.dumps({"prompt": "x" * 80, "max_tokens": 4}) + "\n",
        ":1: prompt of 80 tokens",
        "--max-model-len",
    ),
    "foreign id": (
        '{"prompt_token_ids": [1, 99999], "max_tokens": 4}\n',
        ":1: 'prompt_token_ids' is [1, 99",
        "[0, 257)",
    ),
    "too few": ('{"prompt": "a", "max_tokens": 4}\n', "num_prompts: 2 is not allowed", "has 1", "allowed: 1 to 1"),
    "half a pair": ('{"prompt": "\\ud800"}\n', ":1: holds '\\ud800', half of a surrogate pair"),
    "deep": ("[" * 100_000 + "\n", ":1: nests more than 100 deep"),
    "turns": ('{"question_id": 1, "turns": ["a"]}\n', ":1: holds 'turns'", "--dataset-name spec-bench --dataset-path"),
    "unknown key": ('{"prompt": "a", "temprature": 1}\n', ":1: unknown key 'temprature'"),
}


@pytest.mark.parametrize("case", LINES)
def test_a_broken_jsonl(cli, chat, runs, prompts, case):
    text, *words = LINES[case]
    prompts.write_text(text)
    assert_refused(cli(*chat), runs, *words)


def test_data_sets_that_are_not_there(cli, chat, runs, tmp_path):
    assert_refused(cli(*chat, "--dataset-path", tmp_path / "no.jsonl"), runs, "does not exist")
    assert_refused(
        cli(*chat, "--dataset-name", "sharegpt", "--dataset-path", tmp_path / "no.json"), runs, "does not exist"
    )
    assert_refused(cli(*chat, "--dataset-name", "mt-bench"), runs, ":1: 'turns' is None; allowed: a list")


TEMPLATES = {
    "refuses": ("{{ raise_exception('Conversation roles must alternate') }}", "Conversation roles must alternate"),
    "divides": ("{{ 1 // 0 }}", "ZeroDivisionError"),
    "undefined": ("{{ messages[0].nothing.more }}", "UndefinedError"),
    "no template": ("{% for %}", "TemplateSyntaxError"),
    "not allowed": ("{{ messages.__class__.__mro__ }}", "SecurityError"),
    "huge": ("{{ 'x' * 99999999999999 }}", "MemoryError"),
    "not a list": ("{{ messages + 5 }}", "TypeError"),
}


@pytest.mark.parametrize("case", TEMPLATES)
def test_a_chat_template_that_fails_is_one_line(cli, chat, runs, chat_model, prompts, tmp_path, case):
    template, words = TEMPLATES[case]
    model = tmp_path / "model"
    shutil.copytree(chat_model, model)
    file = model / "tokenizer_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "chat_template": template}))
    prompts.write_text('{"messages": [{"role": "user", "content": "a"}]}\n' * 2)
    assert_refused(cli(*chat, "--model", model), runs, f"{prompts}:1: the chat template of {model} failed", words)


def bad_regex(folder: Path) -> None:
    file = folder / "tokenizer.json"
    pattern = {"type": "Split", "pattern": {"Regex": "(?P<"}, "behavior": "Isolated", "invert": False}
    file.write_text(json.dumps({**json.loads(file.read_text()), "pre_tokenizer": pattern}))


TOKENIZERS = {
    "a list": lambda folder: (folder / "tokenizer.json").write_text("[]"),
    "deep": lambda folder: (folder / "tokenizer.json").write_text("[" * 100_000),
    "a bad regex": bad_regex,
    "settings of a list": lambda folder: (folder / "tokenizer_config.json").write_text("[]"),
    "deep settings": lambda folder: (folder / "tokenizer_config.json").write_text("[" * 100_000),
}


@pytest.mark.parametrize("case", TOKENIZERS)
def test_a_broken_tokenizer_is_one_line(cli, chat, runs, chat_model, tmp_path, case):
    model = tmp_path / "model"
    shutil.copytree(chat_model, model)
    TOKENIZERS[case](model)
    assert_refused(cli(*chat, "--model", model), runs, f"no usable tokenizer in {model}")


def test_prompts_are_in_the_run_directory(cli, chat, only_run):
    assert cli(*chat, "-s", "no-spec", "-s", "ngram:k=2").exit_code == 0
    table = read_prompts(only_run().path)
    assert set(table["prompt_id"].to_pylist()) == set(only_run().frames().requests["prompt_id"])
    assert table["token_ids"].to_pylist()[0] != table["token_ids"].to_pylist()[1] and len(table) == 2
    assert "prompts.parquet" in only_run().record.files


def test_a_tree_wider_than_the_vocabulary_of_its_head(cli, chat, runs, make_head):
    head = make_head(draft_vocab_size=5)
    arm = f"eagle-topk:topk=6,num_steps=2,num_draft_tokens=8,head={head}"
    result = cli(*chat, "-s", "no-spec", "-s", arm)
    said = "topk=6 is not allowed; allowed with this head, which drafts 5 different tokens: 1 to 5"
    assert result.exit_code == 2 and said in " ".join(result.stderr.split()), result.output
    assert not list(runs.glob("*")), "nothing was measured"
