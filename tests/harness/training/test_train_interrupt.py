"""Ctrl-C and kill during `train-head`: what was generated and trained stays, and stderr says how to resume."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from toy.checkpoints import llama_config, write_llama
from toy.interrupts import interrupted, terminal_signals
from typer.testing import CliRunner

from specbench.harness.cli.main import app
from specbench.harness.engines.native.core.engine import Engine
from specbench.harness.run.interrupts import StoppedAtOnce
from specbench.harness.training import generate, pipeline
from specbench.harness.training.config import TrainHeadOptions
from specbench.harness.training.load import load_for_training
from specbench.harness.training.shards import finished_samples, read_sequences, write_shard
from specbench.harness.training.trainer import Trainer

from .test_pipeline import Quiet

TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """A toy Llama with a tokenizer of single bytes."""
    folder = tmp_path_factory.mktemp("model")
    write_llama(folder, llama_config(vocab_size=320, eos_token_id=0))
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={"<eos>": 0, **{c: i + 1 for i, c in enumerate(alphabet)}}, merges=[]))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<eos>", "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


@pytest.fixture
def options(model, tmp_path) -> TrainHeadOptions:
    rows = [{"question": f"what is {i}?", "answer": "1"} for i in range(30)]
    (tmp_path / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "test.jsonl").write_text(json.dumps({"question": "no", "answer": "1"}))
    return TrainHeadOptions(
        target=str(model),
        data=(str(tmp_path / "questions.jsonl"),),
        exclude=(str(tmp_path / "test.jsonl"),),
        out=tmp_path / "out",
        max_prompt_tokens=60,
        max_response_tokens=20,
        samples_per_prompt=1,
        generate_batch=4,
        draft_vocab_size=96,
        unroll=2,
        steps=6,
        batch_tokens=512,
        max_sequence_tokens=128,
        device="cpu",
        dtype="float32",
    )


def words(options: TrainHeadOptions) -> list[str]:
    given = ["train-head"]
    for spec in options.schema().values():
        value = getattr(options, spec.name)
        if value != spec.default:
            values = value if isinstance(value, tuple) else [value]
            given += [w for one in values for w in ((spec.flag,) if spec.kind is bool else (spec.flag, str(one)))]
    return given


def test_a_signal_ends_in_the_command_that_resumes(options):
    given = words(options)
    code, out, err = interrupted(given, "loading ", signal.SIGTERM)
    assert code == 130 and out == "" and "Traceback" not in err, err
    assert err.splitlines()[-1] == (
        "specbench: interrupted; finished responses and training steps are kept. Continue with: "
        f"specbench {' '.join(given)} --resume"
    )
    result = CliRunner().invoke(app, [*given, "--resume"])
    assert result.exit_code == 0 and (options.out / "model.safetensors").is_file(), result.output


@pytest.mark.parametrize(
    ("stop", "said"),
    [(KeyboardInterrupt, "interrupted"), (StoppedAtOnce, "stopped immediately; there is nothing to resume")],
)
def test_before_anything_is_written_there_is_nothing_to_resume(options, monkeypatch, stop, said):
    def interrupt(*_):
        raise stop

    for place in ("load.load_for_training", "pipeline._select"):
        with monkeypatch.context() as patch:
            patch.setattr(f"specbench.harness.training.{place}", interrupt)
            result = CliRunner().invoke(app, words(options))
        assert result.exit_code == 130 and result.stderr.splitlines()[-1] == f"specbench: {said}"


def test_shared_responses_alone_are_continued_without_resume(options):
    shared = options.out.parent / "shared"
    target = load_for_training(options.target, "cpu", "float32")
    pipeline.train_head(replace(options, responses=shared, only_responses=True), "s", target, Quiet())
    other = replace(options, responses=shared, out=options.out.parent / "other")
    assert pipeline.continuing(other, ["train-head"]) == ["train-head"]
    with pytest.raises(ValueError, match="resume: no training has begun in .*other"):
        pipeline.check_out(replace(other, resume=True))
    (other.out).mkdir()
    (other.out / "checkpoint.pt").touch()
    assert pipeline.continuing(other, ["train-head"]) == ["train-head", "--resume"]
    pipeline.check_out(replace(other, resume=True))


def test_finished_responses_are_written_once(options, monkeypatch):
    """Interrupted in a step of the engine, then as soon as the last shard is written."""
    target = load_for_training(options.target, "cpu", "float32")
    asked = replace(options, only_responses=True)
    whole = read_sequences(pipeline.train_head(replace(asked, out=options.out / "whole"), "s", target, Quiet()))
    num_steps, step = 0, Engine.step

    def step_until_interrupted(engine):
        nonlocal num_steps
        num_steps += 1
        if num_steps == 40:
            raise KeyboardInterrupt
        return step(engine)

    def write_with_signal(folder, rows):
        write_shard(folder, rows)
        signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Engine, "step", step_until_interrupted)
        pipeline.train_head(asked, "s", target, Quiet())
    kept = finished_samples(options.out / "responses")
    assert 0 < len(kept) < len(whole), "finished ones, and only these"
    with terminal_signals(), monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(generate, "write_shard", write_with_signal)
        pipeline.train_head(replace(asked, resume=True), "s", target, Quiet())
    again = read_sequences(pipeline.train_head(replace(asked, resume=True), "s", target, Quiet()))
    assert again.token_T.tolist() == whole.token_T.tolist()


def test_an_interrupted_training_continues_after_its_last_whole_step(options, monkeypatch):
    target = load_for_training(options.target, "cpu", "float32")
    pipeline.train_head(replace(options, only_responses=True), "s", target, Quiet())
    optimise, watcher = Trainer._optimise, Quiet()

    def optimise_with_signal(trainer, measured, num_tokens):
        if trainer.step == 3:
            signal.raise_signal(signal.SIGINT)
        optimise(trainer, measured, num_tokens)

    with terminal_signals(), monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Trainer, "_optimise", optimise_with_signal)
        pipeline.train_head(options, "s", target, Quiet())
    with pytest.raises(ValueError, match="out: .* already holds a checkpoint; give another --out, or --resume"):
        pipeline.check_out(options)
    pipeline.train_head(replace(options, resume=True), "s", target, watcher)
    assert "continuing after step 4 of 6" in watcher.said and watcher.rows[-1].step == 6


def test_nothing_to_resume_is_refused_before_anything_loads(options):
    for folder in (options.out.parent / "nowhere", options.out.parent):
        result = CliRunner().invoke(app, words(replace(options, out=folder, resume=True)))
        assert result.exit_code == 2 and "loading" not in result.stderr
        assert f"resume: no training has begun in {folder}; give its --out, or drop --resume" in result.stderr
        assert not (folder / "responses").exists()


def test_folders_that_cannot_be_written_are_named_by_their_option_before_anything_loads(options, monkeypatch):
    file = options.out.parent / "test.jsonl"
    for option, folder in (("out", file), ("out", file / "o"), ("responses", file / "r")):
        result = CliRunner().invoke(app, words(replace(options, **{option: folder})))
        assert result.exit_code == 2 and "loading" not in result.stderr and not options.out.exists()
        assert f"error: {option}: cannot write to {folder}: Not a directory" in result.stderr
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(ValueError, match=f"out: cannot write to {options.out}: Permission denied"):
        pipeline.check_out(options)
