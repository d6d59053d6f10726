"""Engine arguments as options of vLLM's server."""

from __future__ import annotations

from pathlib import Path

import pytest

from specbench.harness.engines.vllm.arm import engine_args, resolve
from specbench.harness.engines.vllm.installed import Installed
from specbench.harness.engines.vllm.server import server_command
from specbench.harness.spec.arm import parse_arm
from specbench.harness.spec.conditions import Conditions


def test_arguments_are_options():
    args = {
        **{"model": "/m", "dtype": "float32", "max_num_seqs": 2, "enable_prefix_caching": False, "enforce_eager": True},
        **{
            "disable_log_stats": False,
            "skip_tokenizer_init": True,
            "cudagraph_metrics": True,
            "attention_backend": None,
        },
        "speculative_config": {"method": "ngram"},
    }
    command = server_command(Path("/v/bin/python"), args, {"A": "1"}, (0, 32))
    assert command.filled(port=7, model="")[1:] == [
        *("-m", "vllm.entrypoints.cli.main", "serve", "/m", "--dtype", "float32", "--max-num-seqs", "2"),
        *("--no-enable-prefix-caching", "--enforce-eager", "--speculative-config", '{"method": "ngram"}'),
        *("--per-request-spec-decode-metrics", "detailed", "--host", "127.0.0.1", "--port", "7"),
    ]
    assert command.environment["A"] == "1" and command.environment["VLLM_SERVER_DEV_MODE"] == "1"


def test_a_server_without_drafts_is_not_asked_for_rounds():
    words = server_command(Path("python"), {"model": "/m"}, {}, (0, 32)).words
    assert "--per-request-spec-decode-metrics" not in words


def test_an_older_server_is_not_asked_for_rounds():
    words = server_command(
        Path("python"), {"model": "/m", "speculative_config": {"method": "ngram"}}, {}, (0, 26)
    ).words
    assert "--per-request-spec-decode-metrics" not in words


def test_several_gpus_are_the_engines_own_affair():
    installed = Installed(python=Path("python"), version="0.32.0", methods=("ngram",))
    own = "engine.tensor_parallel_size=2,engine.pipeline_parallel_size=2,engine.data_parallel_size=4"
    arm = resolve(parse_arm(f"ngram:engine.server=yes,{own},engine.distributed_executor_backend=ray"), installed)
    args = engine_args(arm, Conditions(), model=Path("/m"), dtype="bfloat16", is_cpu=False, gpu_share=0.5)
    words = " ".join(server_command(Path("python"), args, {}, (0, 32)).words)
    assert "--tensor-parallel-size 2 --pipeline-parallel-size 2 --data-parallel-size 4" in words
    assert "--distributed-executor-backend ray" in words
    with pytest.raises(ValueError, match="engine.data_parallel_size: 4 is not allowed in process"):
        resolve(parse_arm(f"ngram:{own}"), installed)


@pytest.mark.parametrize(("given", "driven"), [("yes", "HTTP"), ("no", "in process")])
def test_an_arm_may_ask_for_a_server(given, driven):
    installed = Installed(python=Path("python"), version="0.32.0+cpu", methods=("ngram",))
    arm = resolve(parse_arm(f"ngram:engine.server={given}"), installed)
    args = engine_args(arm, Conditions(), model=Path("/m"), dtype="float32", is_cpu=True, gpu_share=0.5)
    assert arm.setup().driven == driven and "server" not in args
    with pytest.raises(ValueError, match="engine.server: 'perhaps' is not allowed; allowed: yes, no"):
        resolve(parse_arm("ngram:engine.server=perhaps"), installed)
