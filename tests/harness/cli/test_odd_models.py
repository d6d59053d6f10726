"""Models and heads with one odd file: one line that names it, exit code 2, nothing measured."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from cli.conftest import assert_refused
from safetensors.torch import load_file, save_file


def config(**changes):
    def change(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return change


def file(name: str, text: str):
    return lambda folder: (folder / name).write_text(text)


def tensors(edit):
    def change(folder: Path) -> None:
        path = folder / "model.safetensors"
        stored = load_file(path)
        edit(stored)
        path.unlink()
        save_file(stored, path)

    return change


def first_matrix(edit):
    def change(stored: dict[str, torch.Tensor]) -> None:
        name = min(name for name in stored if name.endswith("down_proj.weight"))
        stored[name] = edit(stored[name])

    return tensors(change)


def link(name: str, to: str):
    def change(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).symlink_to(folder / to)

    return change


def as_directory(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").mkdir()


def as_pickle(state):
    def change(folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        torch.save(state, folder / "pytorch_model.bin")

    return change


ODD = {
    "no heads": (config(num_attention_heads=0), "num_attention_heads 0 is not supported"),
    "heads that do not divide": (config(num_attention_heads=5, head_dim=None), "num_"),
    "hidden size true": (config(hidden_size=True), "hidden_size true is not supported"),
    "hidden size a fraction": (config(hidden_size=64.0), "hidden_size 64.0 is not supported"),
    "theta 0": (config(rope_theta=0), "rope_theta 0 is not supported"),
    "theta a list": (config(rope_theta=[1]), "rope_theta [1] is not supported"),
    "theta a text": (config(rope_theta="abc"), "rope_theta 'abc' is not supported"),
    "yarn": (config(rope_scaling="yarn"), "rope_scaling 'yarn' is not supported"),
    "no factor": (config(rope_scaling={"rope_type": "llama3"}), "rope_scaling of type llama3 needs factor"),
    "architectures 5": (config(architectures=5), "architecture 5 is not supported"),
    "positions a text": (config(max_position_embeddings="x"), "max_position_embeddings 'x' is not supported"),
    "head_dim 15": (config(head_dim=15), "head_dim 15 is not allowed"),
    "eps NaN": (config(rms_norm_eps=float("nan")), "rms_norm_eps NaN is not supported"),
    "unknown key": (config(attention_sinks=True), "key 'attention_sinks' with true is not known to this engine"),
    "deep": (file("config.json", "[" * 100_000), "config.json: not valid JSON (nests more than 100 deep)"),
    "NaN": (first_matrix(lambda w: w.fill_(float("nan"))), "down_proj.weight in", "not finite"),
    "int8": (first_matrix(lambda w: w.to(torch.int8)), "is stored as torch.int8, which needs scales"),
    "fp8": (first_matrix(lambda w: w.to(torch.float8_e4m3fn)), "is stored as torch.float8_e4m3fn"),
    "one missing": (tensors(lambda t: t.pop(min(n for n in t if "up_proj" in n))), "has no tensor", "up_proj.weight"),
    "one extra": (tensors(lambda t: t.update(more=torch.ones(1))), "does not use (1): more"),
    "weights a directory": (as_directory, "model.safetensors is a directory"),
    "weights gone": (link("model.safetensors", "gone"), "model.safetensors is a broken symbolic link"),
    "weights a loop": (link("model.safetensors", "model.safetensors"), "model.safetensors is a broken symbolic link"),
    "a list": (as_pickle([1, 2]), "pytorch_model.bin is not a state dict"),
    "int keys": (as_pickle({1: torch.ones(1)}), "pytorch_model.bin is not a state dict"),
    "an index of a list": (file("model.safetensors.index.json", "[]"), "model.safetensors.index.json is damaged"),
    "an odd index": (
        file("model.safetensors.index.json", '{"weight_map": {"a": 3}}'),
        "model.safetensors.index.json names '3' for 'a'",
    ),
}
EOS = {"a": 1}, "2", [[2]]


@pytest.mark.parametrize("case", ODD)
def test_an_odd_model(cli, chat, runs, chat_model, tmp_path, case):
    change, *words = ODD[case]
    model = tmp_path / "model"
    shutil.copytree(chat_model, model)
    change(model)
    assert_refused(cli(*chat, "--model", model), runs, *words)


@pytest.mark.parametrize("case", ODD)
def test_an_odd_head(cli, chat, runs, make_head, case):
    change, *words = ODD[case]
    head = make_head()
    change(head)
    assert_refused(cli(*chat, "-s", f"eagle:head={head}"), runs, *words)


@pytest.mark.parametrize("eos", EOS, ids=str)
@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
def test_odd_ids_that_end_a_text(cli, chat, runs, chat_model, tmp_path, name, eos):
    model = tmp_path / "model"
    shutil.copytree(chat_model, model)
    if name == "config.json":
        config(eos_token_id=eos)(model)
    else:
        file(name, json.dumps({"eos_token_id": eos}))(model)
    assert_refused(cli(*chat, "--model", model), runs, f"{name}: eos_token_id")


def test_random_weights_are_measured_and_marked(cli, chat, only_run):
    assert cli(*chat, "-s", "no-spec", "-s", "ngram:k=2").exit_code == 0
    run = only_run()
    assert all(any(note.startswith("output not plausible: -") for note in arm.notes) for arm in run.record.arms)
    assert (run.path / "report.md").read_text().count("output not plausible: -") >= 2


def test_dummy_weights_are_not_looked_at(cli, toy, only_run):
    assert cli(*toy, "-s", "no-spec").exit_code == 0
    assert "output not plausible" not in (only_run().path / "report.md").read_text()
