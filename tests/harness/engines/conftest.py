"""`specbench ... --engine echo`, from a package of its own, against a server of the test's own."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli.conftest import _wide_and_colourless, cli, inline, only_run, runs  # noqa: F401
from toy.echo_engine import EchoServer, echo_server
from toy.packages import install
from toy.packages import site as site


@pytest.fixture
def server(site: Path) -> EchoServer:
    install(site, "echo-engine", "1", {"specbench.engines": {"echo": "toy.echo_engine:EchoEngine"}})
    with echo_server() as running:
        yield running


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.jsonl"
    words = "one two three four five six seven eight"
    path.write_text("".join(f'{{"prompt": "{n} {words}", "max_tokens": 8}}\n' for n in range(6)))
    return path


@pytest.fixture
def echo(server: EchoServer, prompts: Path, runs: Path) -> list[str]:  # noqa: F811
    """`run` and options, without arms."""
    words = f"--engine echo --model {server.url} --dataset-name jsonl --dataset-path {prompts} --num-prompts 6"
    more = "--num-repeats 2 --warmup-max-s 0.05 --max-model-len 64 --output-dir"
    return ["run", *words.split(), *more.split(), str(runs)]
