"""vLLM itself, for a CPU, beside our engine: the same rounds on the same prompts, and answers and scores of a child."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path

import pytest
import torch
from cli.conftest import _wide_and_colourless, cli  # noqa: F401

from specbench.harness.engines.load import PromptRequest
from specbench.harness.engines.native import target as targets
from specbench.harness.engines.native.models.score import last_logits
from specbench.harness.engines.vllm.engine import PYTHON_VARIABLE, VllmEngine
from specbench.harness.run.block_sink import NullSink
from specbench.harness.run.progress import NullProgress
from specbench.harness.spec.arm import parse_arm
from specbench.harness.spec.conditions import RunConfig
from specbench.harness.spec.sampling import SamplingParams
from specbench.harness.store.run_directory import RunDirectory

ROOT = Path(__file__).resolve().parents[4]
VENV = Path(os.environ.get(PYTHON_VARIABLE) or ROOT / ".engines" / "vllm")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not VENV.exists(), reason=f"no vLLM: `make engines`, or name a venv in {PYTHON_VARIABLE}"),
]
# With its memory given, engines start at the same time.
EAGER = "engine.enforce_eager=true,engine.kv_cache_memory_bytes=33554432"
STRATEGIES = ("no-spec", "ngram:k=4", "eagle:k=4")
# Some are answered in a word, so that others begin while the rest go on.
QUESTIONS = (
    "What is the capital of France? Answer with one word.",
    "Count from 1 to 30.",
    "Write a short poem about the sea.",
    "Repeat this line five times: the quick brown fox jumps over the lazy dog",
    "List the days of the week, then list them again.",
    "Explain what a binary search does.",
    "Name five fruits and the colour of each.",
    "Write a Python function that adds two numbers.",
)


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv(PYTHON_VARIABLE, str(VENV))


@pytest.fixture
def agreement():
    spec = importlib.util.spec_from_file_location("engine_agreement", ROOT / "benchmarks" / "engine_agreement.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_both_engines_take_the_same_rounds(cli, tmp_path, agreement, capsys):  # noqa: F811
    arms = [*STRATEGIES, *(f"vllm/{text}{',' if ':' in text else ':'}{EAGER}" for text in STRATEGIES)]
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": text, "max_tokens": 48}) + "\n" for text in QUESTIONS))
    words = "--dtype float32 --num-prompts 8 --max-concurrency 4 --num-repeats 1 --max-model-len 512"
    given = ["--dataset-name", "jsonl", "--dataset-path", prompts, "--warmup-max-s", "0.1"]
    asked = [word for arm in arms for word in ("-s", arm)]
    result = cli("run", *asked, *words.split(), *given, "--output-dir", tmp_path / "runs")
    assert result.exit_code == 0, result.output
    (path,) = (tmp_path / "runs").iterdir()
    failed = agreement.main([str(path), "--least", "500"])
    told = capsys.readouterr().out
    assert failed == 0, told
    assert told.count("the same, by position too") == 3 and "past a stop or the limit" in told

    run = RunDirectory.open(path)
    requests = run.frames().requests
    assert set(requests["finish_reason"]) == {"length", "stop"}
    assert requests.loc[requests["finish_reason"] == "stop", "num_output_tokens"].max() > 1
    eagle = run.record.arm(arms[-1])
    assert eagle.engine is not None and eagle.engine.version and eagle.engine.backend == "CPU_ATTN"
    assert eagle.engine.graph_mode == "none" and eagle.engine.notes == ()
    assert eagle.engine.config["speculative_config.num_speculative_tokens"] == "4"
    assert (eagle.config.engine, eagle.config.driven) == ("vllm", "in process")
    steps = run.frames().steps
    steps = steps[steps["arm"] == eagle.label]
    assert (steps["t_host_ns"] > steps["t_start_ns"]).all() and set(steps["graph"]) == {"none"}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A deployment of vLLM, and our own target on the same weights."""
    os.environ[PYTHON_VARIABLE] = str(VENV)
    arm = parse_arm(f"vllm/ngram:k=3,{EAGER}")
    config = RunConfig(arms=(arm,), engine="vllm", dtype="float32", max_model_len=128, max_concurrency=2)
    engine = VllmEngine()
    model, (resolved,) = engine.open(config, NullProgress())
    with engine.deploy(resolved, config, tmp_path_factory.mktemp("vllm") / "log") as deployment:
        yield deployment, model, targets.load(config)


def test_scores_are_those_of_our_own_target(served):
    deployment, model, target = served
    ids = model.tokenizer.encode("The capital of France is Paris, and the capital of Italy is Rome.")
    told = deployment.score(ids, 6)
    log_probs = last_logits(target.model, ids[:-1], 6).float().log_softmax(-1)
    own = log_probs.gather(1, torch.tensor(ids[-6:])[:, None]).sum().item()
    assert told.log_prob == pytest.approx(own, abs=2e-3)
    assert told.is_greedy == bool((log_probs.argmax(-1) == torch.tensor(ids[-6:])).all())


def test_answers_end_at_stop_strings_and_ids_and_at_nothing_else(served):
    deployment, model, _ = served
    ids = tuple(model.tokenizer.encode("1, 2, 3, 4, 5,"))

    def ask(number: int, **more) -> PromptRequest:
        sampling = SamplingParams(max_tokens=12, stop_token_ids=more.pop("ids", ()))
        return PromptRequest(id=number, key=str(number), prompt_ids=ids, text="", sampling=sampling, **more)

    class Rows(NullSink):
        def __init__(self):
            self.of = {}

        def request(self, row):
            self.of[row.request_id] = row

    free, cut = Rows(), Rows()
    (text,) = deployment.generate([ask(0)], free).values()
    tokens = list(free.of[0].output_token_ids)
    assert len(tokens) == 12 and free.of[0].finish_reason == "length" and text == model.tokenizer.decode(tokens)
    stop_id = next(token for token in tokens if tokens.index(token) > 2)
    texts = deployment.generate([ask(0, stop=(text[3:6],)), ask(1, ids=(stop_id,))], cut)
    assert texts[0] == text[: text.index(text[3:6])] and cut.of[0].finish_reason == "stop"
    assert list(cut.of[1].output_token_ids) == tokens[: tokens.index(stop_id) + 1]
    assert cut.of[1].finish_reason == "stop"
    deployment.reset()
