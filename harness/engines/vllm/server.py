"""vLLM's server as a command line: the engine arguments of an arm as the options of `vllm serve`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from specbench.harness.engines.process.server_command import ServerCommand, built_command

_IN_PROCESS = ("model", "skip_tokenizer_init", "cudagraph_metrics")  # the model is an argument without a name
_TELLS_ROUNDS = (0, 32)  # first version whose answers can report their rounds
_OFF_BY_DEFAULT = ("disable_", "enforce_")
# Only in this mode can caches be emptied and the configuration be read.
SERVER_ENVIRONMENT = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_NO_USAGE_STATS": "1"}


def server_command(
    python: Path, args: Mapping[str, object], environment: Mapping[str, str], version: tuple[int, int]
) -> ServerCommand:
    """`args`: of arm.engine_args; `version`: (0, 32) of vLLM 0.32."""
    words = [str(python), "-m", "vllm.entrypoints.cli.main", "serve", str(args["model"])]
    for key, value in args.items():
        if key not in _IN_PROCESS:
            words += _option(key, value)
    if version >= _TELLS_ROUNDS and args.get("speculative_config"):  # vLLM refuses it without drafts
        words += ["--per-request-spec-decode-metrics", "detailed"]
    return built_command("vllm", words, {**SERVER_ENVIRONMENT, **environment})


def _option(key: str, value: object) -> Iterator[str]:
    name = key.replace("_", "-")
    if value is None or (value is False and key.startswith(_OFF_BY_DEFAULT)):
        return
    yield f"--no-{name}" if value is False else f"--{name}"
    if isinstance(value, (dict, list)):
        yield json.dumps(value)
    elif not isinstance(value, bool):
        yield str(value)
