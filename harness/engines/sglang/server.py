"""SGLang's server as a command line: the ServerArgs of an arm as the options of `sglang.launch_server`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from specbench.harness.engines.process.server_command import ServerCommand, built_command

_IN_PROCESS = ("skip_tokenizer_init",)  # a server answers in text


def server_command(python: Path, server_args: Mapping[str, object], environment: Mapping[str, str]) -> ServerCommand:
    """`server_args`: of mapping.with_weights. The server is told where to listen when it is started."""
    words = [str(python), "-m", "sglang.launch_server", "--enable-metrics"]
    for key, value in server_args.items():
        if key not in _IN_PROCESS:
            words += _option(key, value)
    return built_command("sglang", words, environment)


def _option(key: str, value: object) -> Iterator[str]:
    """A switch is there or not: of SGLang 0.5.16 none that we set is on by default."""
    if value is None or value is False:
        return
    yield f"--{key.replace('_', '-')}"
    if isinstance(value, list):
        yield from map(str, value)
    elif isinstance(value, dict):
        yield json.dumps(value)
    elif value is not True:
        yield str(value)
