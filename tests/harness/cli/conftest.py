"""The command in this process: `cli(...)` runs it, `toy` and `chat` are options of runs that take a second."""

from __future__ import annotations

import contextlib
import io
import json
import os
from pathlib import Path
from unittest import mock

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from toy.checkpoints import eagle3_config, llama_config, write_eagle3, write_llama
from toy.clock import clock as clock
from typer.testing import CliRunner, Result

from specbench.harness.cli.main import app
from specbench.harness.engines.native.deployment import NativeDeployment
from specbench.harness.experiments import sweep as sweep_experiment
from specbench.harness.experiments.ab_fresh import FreshBlocks
from specbench.harness.experiments.run import ROWS_ALONE
from specbench.harness.store.roofline_record import Machine
from specbench.harness.store.run_directory import RunDirectory
from specbench.harness.store.sweep_directory import SweepDirectory

CHAT_VOCAB = 320
HEAD = eagle3_config(vocab_size=CHAT_VOCAB)
_TOY = (
    "--load-format dummy --model toy --dtype float32 --dataset-name random --random-input-len 12 "
    "--random-output-len 10 --num-prompts 3 --num-repeats 1 --warmup-max-s 0.02 --max-model-len 64"
)


def assert_refused(result: Result, runs: Path, *words: str) -> None:
    """Bad input: one line with the reason, the last one; nothing measured, nothing written."""
    assert result.exit_code == 2, result.output
    (line,) = [line for line in result.stderr.splitlines() if "error: " in line]
    assert line.startswith("specbench: error: ") and all(word in line for word in words), line
    assert result.stderr.splitlines()[-1] == line, "the reason must be the last line"
    assert ": repeat" not in result.stderr and result.stdout == "" and not runs.exists()


def refused(result: Result, *words: str) -> None:
    """The same of a command that measures nothing, so that the reason is the only line."""
    assert result.exit_code == 2 and result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("specbench: error: ") and all(word in line for word in words), line


@pytest.fixture(autouse=True)
def _wide_and_colourless(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.fixture
def cli():
    """Runs the whole command, as `main` does; the result has exit_code, stdout and stderr."""

    def call(*words: object):
        result = CliRunner().invoke(app, [str(word) for word in words], prog_name="specbench")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception  # a user would see a traceback
        return result

    return call


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Where `toy` runs go; it does not exist until one is written."""
    return tmp_path / "runs"


@pytest.fixture
def toy(runs: Path) -> list[str]:
    """`run` and options; later ones win, so tests add theirs."""
    return ["run", *_TOY.split(), "--output-dir", str(runs)]


@pytest.fixture
def only_run(runs: Path):
    """The one run directory that a test has made."""

    def find() -> RunDirectory:
        (path,) = runs.iterdir()
        return RunDirectory.open(path)

    return find


@pytest.fixture(scope="session")
def chat_model(tmp_path_factory) -> Path:
    """A toy Llama with a tokenizer of single bytes; its ids are bytes + 1, and 0 ends a text."""
    folder = tmp_path_factory.mktemp("models") / "chat"
    config = llama_config(vocab_size=CHAT_VOCAB, max_position_embeddings=256, eos_token_id=0, num_hidden_layers=2)
    write_llama(folder, config)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={"<eos>": 0, **{c: i + 1 for i, c in enumerate(alphabet)}}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<eos>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "hello there", "max_tokens": 6}\n{"prompt": "hello again", "max_tokens": 6}\n')
    return path


@pytest.fixture
def chat(runs: Path, chat_model: Path, prompts: Path) -> list[str]:
    """As `toy`, on real files: a checkpoint and a JSONL."""
    words = f"--model {chat_model} --dtype float32 --dataset-name jsonl --dataset-path {prompts} --num-prompts 2"
    return [
        "run",
        *words.split(),
        *"--num-repeats 1 --warmup-max-s 0.02 --max-model-len 64".split(),
        "--output-dir",
        str(runs),
    ]


@pytest.fixture
def make_head(tmp_path: Path):
    """Writes an EAGLE-3 head for `chat_model`; `config` and `change` break it."""

    def make(target=None, change=None, **config) -> Path:
        folder = tmp_path / "head"
        write_eagle3(folder, {**HEAD, **config}, target or llama_config(vocab_size=CHAT_VOCAB), change=change)
        return folder

    return make


@pytest.fixture
def machine(monkeypatch) -> Machine:
    """A machine whose limits are known at once."""
    known = Machine(
        device="CPU",
        dtype="float32",
        read_bytes_per_s=1e10,
        matmul_flops_per_s=1e11,
        attention_flops_per_s=1e11,
        kernel_launch_s=1e-6,
    )
    monkeypatch.setattr(sweep_experiment, "measure_machine", lambda device, dtype: known)
    return known


@pytest.fixture
def toy_sweep(toy, machine) -> list[str]:
    return ["sweep", *toy[1:]]


@pytest.fixture
def only_sweep(runs: Path):
    def find() -> SweepDirectory:
        (path,) = runs.iterdir()
        return SweepDirectory.open(path)

    return find


@pytest.fixture
def blocks(monkeypatch) -> list[str]:
    """Labels of the blocks that are measured, as they are."""
    measured: list[str] = []

    def measure(self, load, sink, whole=NativeDeployment.measure):
        whole(self, load, sink)
        measured.append(f"{self.engine.strategy.name} {load.max_concurrency}")

    monkeypatch.setattr(NativeDeployment, "measure", measure)
    return measured


@pytest.fixture
def small(toy) -> list[str]:
    """Options of both sides; six prompts, so that tokens per step get a verdict."""
    words = iter(toy[1:])
    kept = [word for name in words for word in (name, next(words)) if name != "--num-repeats"]
    return [*kept, "--num-prompts", "6", "--quiet"]


@pytest.fixture
def inline(monkeypatch):
    """Blocks of an A/B in processes of their own run in this one instead, by the same command line. A list of the sides
    that ran; `fail`: by their number, what the process raises or exits with."""

    class Ran(list):
        def __init__(self):
            super().__init__()
            self.fail: dict[int, object] = {}

    ran = Ran()

    def run(self, side, folder: Path, log: Path) -> int:
        ran.append(side.label)
        outcome = ran.fail.get(len(ran))
        if isinstance(outcome, BaseException):
            raise outcome
        if isinstance(outcome, int):
            log.write_text("specbench: loading\nspecbench: the GPU is on fire\n")
            return outcome
        words = ["run", *side.words, "--num-repeats", "1", "--label", side.label, "--output-dir", str(folder)]
        stderr = io.StringIO()
        alone, silent = mock.patch.dict(os.environ, {ROWS_ALONE: "1"}), contextlib.redirect_stdout(io.StringIO())
        with alone, silent, contextlib.redirect_stderr(stderr):
            try:
                app(words, prog_name="specbench", standalone_mode=True)
                code = 0
            except SystemExit as stop:
                code = int(stop.code or 0)
        log.write_text(stderr.getvalue())
        return code

    monkeypatch.setattr(FreshBlocks, "_run", run)
    return ran
