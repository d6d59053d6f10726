"""The command line of SGLang's server, made from an arm."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specbench.harness.engines.sglang.mapping import Weights, mapped, with_weights
from specbench.harness.engines.sglang.server import server_command
from specbench.harness.spec.arm import parse_arm
from specbench.harness.spec.conditions import Conditions


def words_of(text: str, tmp_path: Path) -> list[str]:
    head = tmp_path / "head"
    head.mkdir()
    (head / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLMEagle3"]}))
    arm = mapped(parse_arm(text), Conditions(max_concurrency=8, max_model_len=512))
    weights = Weights(model=tmp_path, max_position=2048, dtype="bfloat16", is_random=False, draft=head)
    command = server_command(Path("/venv/bin/python"), with_weights(arm, weights, 512), arm.environment)
    assert command.name == "sglang" and command.environment == arm.environment and command.fixed_port is None
    return command.filled(port=4711, model="m")


def after(words: list[str], option: str) -> str:
    return words[words.index(option) + 1]


def test_an_arm_as_a_command_line(tmp_path):
    words = words_of("eagle:k=4,head=x,graph=none,acceptance=synthetic:3", tmp_path)
    assert words[:3] == ["/venv/bin/python", "-m", "sglang.launch_server"]
    assert after(words, "--model-path") == str(tmp_path) and after(words, "--speculative-algorithm") == "EAGLE3"
    assert after(words, "--speculative-num-draft-tokens") == "5" and after(words, "--max-running-requests") == "8"
    assert after(words, "--sampling-defaults") == "openai"
    assert {"--disable-cuda-graph", "--disable-radix-cache"} < set(words) and "True" not in words
    assert "--skip-tokenizer-init" not in words
    assert (after(words, "--host"), after(words, "--port")) == ("127.0.0.1", "4711")


def test_several_gpus_are_the_engines_own_affair(tmp_path):
    words = words_of("no-spec:engine.server=yes,engine.tp_size=2,engine.pp_size=2,engine.dp_size=4", tmp_path)
    assert (after(words, "--tp-size"), after(words, "--pp-size"), after(words, "--dp-size")) == ("2", "2", "4")
    with pytest.raises(ValueError, match="engine.dp_size: 4 is not allowed in process"):
        mapped(parse_arm("no-spec:engine.dp_size=4"), Conditions())


def test_lists_objects_and_switches_that_are_off(tmp_path):
    own = 'engine.cuda_graph_bs_decode=[8],engine.json_model_override_args={"a":1},engine.disable_radix_cache=false'
    words = words_of(f"no-spec:{own}", tmp_path)
    assert after(words, "--cuda-graph-bs-decode") == "8" and "--disable-radix-cache" not in words
    assert json.loads(after(words, "--json-model-override-args")) == {"a": 1}
