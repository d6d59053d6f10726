"""Bad input: exit code 2, one line that says what is allowed, nothing written, no traceback."""

from __future__ import annotations

import re

import pytest
import typer
from cli.conftest import assert_refused

from specbench.harness.cli.main import app
from specbench.harness.spec.spellings import key_of

OPTIONS = [
    # what is added to a good command, and words of the one line
    ("-s nospec", "'nospec' is not known (did you mean 'no-spec'?); allowed: no-spec, eagle"),
    ("-s eagle:k=3,hed=random", "unknown option 'hed'='random'; allowed: k, k_table, head"),
    ("-s eagle:k", "'k' is not key=value"),
    ("-s ngram:k=3,k=4", "k is given twice"),
    ("-s no-spec -s no-spec", "'no-spec' is given twice"),
    ("-s ngram:k=3 -s ngram:num_speculative_tokens=3", "_tokens=3' gives the same arm as 'ngram:k=3'; every arm"),
    ("-s ngram -s no-spec -s ngram:min_n=2,k=4", "'ngram:min_n=2,k=4' gives the same arm as 'ngram'; every arm must"),
    ("-s no-spec -s no-spec:sync=auto", "'no-spec:sync=auto' gives the same arm as 'no-spec'"),
    ("-s eagle:k=3", "no head for this model; give eagle:head=DIR"),
    ("-s no-spec -s eagle:head=nowhere", "head='nowhere' is not a directory"),
    ("-s eagle:k=9,head=random", "k=9 is not allowed; allowed: 1 to 8"),
    ("-s eagle:k=0,head=random", "k=0 is not allowed"),
    ("-s eagle:k=2.5,head=random", "k='2.5' is not a whole number"),
    ("-s ngram:min_n=3,max_n=2", "min_n=3, max_n=2 is not allowed; allowed: 1 <= min_n <= max_n"),
    ("--head random -s ngram", "no arm among ngram takes a head"),
    ("--k 3 -s no-spec -s ngram:k=2", "k: 3 has no effect; every arm that takes a k sets its own"),
    ("--base-url http://x/v1 -s ngram", "--base-url: 'http://x/v1' has no effect; no arm among ngram runs on another"),
    ("--num-clients 4 -s ngram", "--num-clients: 4 has no effect; no arm among ngram runs on another engine"),
    ("--tokenizer x -s ngram", "--tokenizer: 'x' has no effect; no arm among ngram runs on another engine"),
    ("--deploy alternate -s ngram", "--deploy: 'alternate' has no effect; no arm among ngram runs on another engine"),
    ("-s eagle:k=3,head=random,acceptance=synthetic:9", "allowed: 1 to k+1 = 4"),
    ("-s eagle:k=3,head=random,acceptance=synthetic:nan", "allowed: 1 to k+1 = 4"),
    ("-s eagle:k=3,head=random,acceptance=often", "allowed: real, synthetic:LENGTH"),
    ("-s no-spec:status_lag=abc", "status_lag: 'abc' is not a whole number"),
    ("-s no-spec:status_lag=1", "status_lag is refused: sync=none reads the status 1 or more rounds late"),
    ("--attention flashinfer", "FlashInfer needs a CUDA device and the package flashinfer-python"),
    ("--attention fa2", "attention: 'fa2' is not known; allowed: auto, torch, triton, flash-attention, flashinfer"),
    ("--attention-drafter fa2 -s eagle:head=random", "attention_drafter: 'fa2' is not known; allowed: same, torch"),
    ("--attention triton", "need a CUDA device"),
    ("--graph one --device cpu", "CUDA graphs need a CUDA device"),
    ("--graph two", "graph: 'two' is not known; allowed: auto, none, piecewise, full_decode_only, full_and_piecewise"),
    ("--graph-first two", "graph_first: 'two' is not known; allowed: none, piecewise, full, one"),
    ("--graph-mixed one", "graph_mixed: 'one' is not known; allowed: none, piecewise, full"),
    ("--graph-later one", "one captures the whole round; target=none, first=none, later=one"),
    ("--graph-target piecewise --device cpu", "CUDA graphs need a CUDA device"),
    ("--sync often", "sync: 'often' is not known; allowed: auto, multi, single, none"),
    ("--drafter ragged -s eagle:head=random", "drafter: 'ragged' is not known; allowed: padded, unpadded"),
    ("--drafter unpadded -s ngram", "drafter=unpadded + no EAGLE chain is refused: only an EAGLE chain"),
    ("--state-update slow", "state_update: 'slow' is not known; allowed: fused, torch"),
    ("--head random -s draft-model:draft=self:2", "no arm among draft-model:draft=self:2 takes a head"),
    ("--sync none --device cpu", "launches on a CPU are synchronous"),
    ("--device tpu", "'tpu' is not known; allowed: auto, cpu, cuda"),
    ("--dtype float16", "'float16' is not known; allowed: auto, bfloat16, float32"),
    ("--load-format gguf", "'gguf' is not known; allowed: auto, dummy"),
    ("--model toyy", "no published shape 'toyy'"),
    ("--model llama-2-70b --num-layers 81", "num_layers: 81 is not allowed; llama-2-70b has 80"),
    ("--num-layers 0", "num_layers: 0 is not allowed; allowed: 1 or more"),
    ("--dataset-name shargpt", "'shargpt' is not known (did you mean 'sharegpt'?)"),
    ("--dataset-name random,sharegpt", "'sharegpt' needs a tokenizer, which --load-format dummy does not have"),
    ("--num-prompts 0", "num_prompts: 0 is not allowed; allowed: 1 to 1000000"),
    ("--num-prompts -3", "num_prompts: -3 is not allowed"),
    (
        "--num-prompts 100000000000000000000000",
        "num_prompts: 100000000000000000000000 is not allowed; allowed: 1 to 1000000",
    ),
    ("--num-prompts 9999999", "num_prompts: 9999999 is not allowed; allowed: 1 to 1000000"),
    ("--num-repeats 100000000000000000000", "num_repeats: 100000000000000000000 is not allowed; allowed: 1 to 100000"),
    ("--max-concurrency 99999999999", "max_concurrency: 99999999999 is not allowed; allowed: 1 to 65536"),
    ("--num-pages 99999999999999", "num_pages: 99999999999999 is not allowed; allowed: 2 to 16777216"),
    ("--top-k 100000000000000000000", "top_k: 100000000000000000000 is not allowed; allowed: 0 to 16777216"),
    ("--temperature 1e300", "temperature: 1e+300 is not allowed; allowed: 0 to 1000"),
    ("--random-output-len 99999999999", "random_output_len: 99999999999 is not allowed; allowed: 1 to 16777216"),
    ("--seed 99999999999999999999", "seed: 99999999999999999999 is not allowed; allowed: 0 to 9223372036854775807"),
    ("--seed " + "9" * 400, "seed: 999999"),
    ("-s ngram:k=4 -s ngram:k=04", "ngram: k='04' is not a whole number as numbers are written"),
    ("-s ngram:k=" + "9" * 5000, "ngram: k='999999"),
    ("-s ngram:", "strategy: 'ngram:': nothing follows the colon; allowed: ngram, or ngram:key=value"),
    ("-s /ngram", "strategy: '/ngram': nothing precedes the slash; allowed: ngram, or ENGINE/ngram"),
    ("-s ngram:k=4,", "strategy: 'ngram:k=4,': '' is not key=value"),
    ("-s no-spec:status_lag=²", "status_lag: '²' is not a whole number"),
    ("--dataset-path prompts.jsonl", "dataset_path: 'prompts.jsonl' is not allowed; random does not read a file"),
    ("--output-dir=", "output_dir: is empty; give a value"),
    ("--output-len 0", "output_len: 0 is not allowed"),
    ("--random-input-len 0", "random_input_len: 0 is not allowed"),
    ("--random-range-ratio 1", "random_range_ratio: 1.0 is not allowed; allowed: 0 or more, below 1"),
    ("--hf-split test", "hf_split: 'test' is not allowed; only the data set hf takes it, not random"),
    ("--max-model-len 20", "reach 22 tokens; allowed: up to max_model_len 20"),
    ("--max-model-len 1", "max_model_len: 1 is not allowed; allowed: 2 to 16777216"),
    ("--max-model-len 5000", "longer than the model's 4096 positions"),
    ("--max-concurrency 0", "max_concurrency: 0 is not allowed"),
    ("--max-num-batched-tokens 0", "max_num_batched_tokens: 0 is not allowed"),
    ("--num-repeats 0", "num_repeats: 0 is not allowed"),
    ("--request-rate 0", "request_rate: 0.0 is not allowed; allowed: above 0"),
    ("--request-rate nan", "request_rate: nan is not allowed"),
    ("--burstiness inf", "burstiness: inf is not allowed"),
    ("--dataset-name gsm8k", "random_input_len: 12 has no effect on gsm8k; allowed with dataset_name random"),
    ("--burstiness 2", "burstiness: 2 has no effect without a finite request_rate"),
    ("--max-concurrency 4 --batch-sizes 1,2", "max_concurrency: 4 has no effect beside batch_sizes '1,2'; drop one"),
    ("--warmup-max-s nan", "warmup_max_s: nan is not allowed"),
    ("--temperature -1", "temperature: -1.0 is not allowed; allowed: 0 to 1000"),
    ("--temperature inf", "temperature: inf is not allowed"),
    ("--top-p 0", "top_p: 0.0 is not allowed; allowed: above 0, up to 1"),
    ("--top-k -1", "top_k: -1 is not allowed; allowed: 0 to 16777216"),
    ("--min-p 2", "min_p: 2.0 is not allowed; allowed: 0 to 1"),
    ("--frequency-penalty 3", "frequency_penalty: 3.0 is not allowed; allowed: -2 to 2"),
    ("--repetition-penalty 0", "repetition_penalty: 0.0 is not allowed; allowed: above 0"),
    ("--logit-bias 5", "logit_bias: '5' is not allowed; write ID:BIAS"),
    ("--logit-bias x:1", "logit_bias: 'x:1' is not allowed; write ID:BIAS"),
    ("--logit-bias 128:-1", "logit_bias: token 128 is not allowed; the model has 0 to 127"),
    ("--banned-token-id 4 --allowed-token-id 4", "allowed_token_id: every one of them is banned"),
    ("--bad-word 5,x", "bad_word: '5,x' is not allowed; write ID,ID,.."),
    ("--bad-word 5,128", "bad_word: token 128 is not allowed; the model has 0 to 127"),
    ("--min-tokens -1", "min_tokens: -1 is not allowed"),
    ("--seed -1", "seed: -1 is not allowed"),
    ("--stop-token-id -1", "stop_token_id: -1 is not allowed"),
    ("--stop-token-id 128", "stop_token_id: 128 is not allowed; the model has 0 to 127"),
    (" ".join(f"--stop-token-id {i}" for i in range(9)), "stop_token_id: 9 ids are not allowed; allowed: 0 to 8"),
    ("--page-size 129", "page_size: 129 is not allowed; allowed: 1 to 128"),
    ("--page-size -1", "page_size: -1 is not allowed"),
    ("--num-pages 1", "num_pages: 1 is not allowed; allowed: 2 to 16777216"),
    ("--num-prompts abc", "num_prompts: 'abc' is not a whole number"),
    ("--num-prompts ٣", "num_prompts: '٣' is not a whole number; allowed: 1 to 1000000"),
    ("--temperature ٣", "temperature: '٣' is not a number"),
    ("--label größe", "label: 'größe' is not allowed; allowed: 1 to 50 characters of a-z, A-Z, 0-9 and . _ = -"),
    (f"--label {'x' * 51}", "is not allowed; allowed: 1 to 50 characters"),
    ("--label ../x", "label: '../x' is not allowed"),
    ("--logprobs 1.5", "logprobs: '1.5' is not a whole number; allowed: 0 to 20"),
    ("--num-layers x", "num_layers: 'x' is not a whole number; allowed: 1 or more"),
    ("--tensor-parallel-size two", "tensor_parallel_size: 'two' is not a whole number; allowed: 1 to 4"),
    ("--temperature-grid 0 --temperature-grid a,b", "temperature_grid: 'a,b' is not a number"),
    (
        "--temperature-grid 0.5 --temperature-grid 1 --temperature 0.7",
        "temperature: 0.7 has no effect beside temperature_grid [0.5, 1.0]; add it to the grid, or drop it",
    ),
    ("-s ngram:k=Auto", "ngram: k='Auto' is not allowed; allowed: a whole number, or auto"),
    ("--draft-tensor-parallel-size 2", "draft_tensor_parallel_size: 2 is not allowed; allowed: 1 (0: as the model)"),
    ("--page-size 16 --num-pages 2", "request 0 needs 2 pages of 16 tokens, the cache has 1"),
]


@pytest.mark.parametrize(("options", "words"), OPTIONS, ids=[options[:60] for options, _ in OPTIONS])
def test_options(cli, toy, runs, options, words):
    assert_refused(cli(*toy, *options.split()), runs, words)


@pytest.mark.parametrize(
    ("options", "words"), [("--modle toy", "No such option: --modle"), ("extra", "unexpected extra argument")]
)
def test_usage(cli, toy, runs, options, words):
    result = cli(*toy, *options.split())
    assert result.exit_code == 2 and "Usage: specbench run" in result.stderr and not runs.exists()
    assert_refused(result, runs, words)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("bound", "Missing argument 'RUN'"),
        ("run --head", "'--head' requires an argument"),
        ("import", "Missing argument 'FILE'"),
        ("history show /tmp --last 0", "last: '0' is not allowed; allowed: a whole number of 1 or more"),
        ("power --aa x", "aa: 'x' is not a whole number"),
        ("accuracy --prompt-logprobs 3", "No such option: --prompt-logprobs"),
        ("train-head --target t --data d --out o --steps x", "steps: 'x' is not a whole number"),
        (
            "sweep --batch-sizes 0",
            "error: batch_sizes: '0' is not allowed; allowed: different numbers from 1 to 65536, as 1,4,16",
        ),
        ("sweep --batch-sizes=abc", "error: batch_sizes: 'abc' is not allowed; allowed: different numbers from 1"),
        ("sweep --batch-sizes 4,4", "error: batch_sizes: '4,4' is not allowed; allowed: different numbers from 1"),
        (
            "sweep --batch-sizes 1,65537",
            "error: batch_sizes: '1,65537' is not allowed; allowed: different numbers from",
        ),
        ("sweep --batch-sizes 4", "error: batch_sizes: '4' is one load"),
        ("sweep --batch-sizes 1,2 --max-concurrency 0", "error: max_concurrency: '0' is not allowed"),
        ("accuracy --batch-size 0", "error: batch_size: 0 is not allowed; allowed: 1 to 65536"),
        ("accuracy --batch_size x", "error: batch_size: 'x' is not a whole number; allowed: 1 to 65536"),
        ("run --block-size=-1", "error: block_size: -1 is not allowed"),
        ("run --random-seed -1", "error: random_seed: -1 is not allowed; allowed: 0 to 9223372036854775807"),
        ("run --dataset-name gsm8k --input-len 5", "error: input_len: 5 has no effect on gsm8k"),
        ("run --model-path=", "error: model_path: is empty; give a value"),
        ("ab -A ngram -B ngram --block-size x", "error: A: block_size: 'x' is not a whole number"),
        ("power --aa 6 -s ngram --block-size x", "error: block_size: 'x' is not a whole number"),
        ("no-such-command", "No such command 'no-such-command'"),
    ],
)
def test_words_that_a_command_does_not_take(cli, runs, command, words):
    assert_refused(cli(*command.split()), runs, words)


@pytest.mark.parametrize("group", ["profile", "history"])
def test_a_group_alone_answers_with_its_help(cli, group):
    result = cli(group)
    assert f"Usage: specbench {group}" in result.output and "error: " not in result.output


def test_a_gpu_that_is_not_there(cli, toy, runs, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert_refused(cli(*toy, "--device", "cuda"), runs, "torch sees no CUDA device; use --device cpu")


def test_weights_that_memory_does_not_hold(cli, toy, runs, monkeypatch):
    monkeypatch.setattr("psutil.virtual_memory", lambda: type("Memory", (), {"available": 10_000}))
    assert_refused(cli(*toy, "--device", "cpu"), runs, "model: toy needs 0.0 GB for its weights in float32")


def test_an_output_dir_that_takes_nothing(cli, toy, runs, tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    assert_refused(cli(*toy, "--output-dir", file / "runs"), runs, f"output_dir: {file} is not a directory")


def test_an_output_dir_that_may_not_be_written(cli, toy, runs, tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda path, mode: False)
    assert_refused(cli(*toy), runs, f"output_dir: cannot write to {tmp_path}")


def test_other_commands(cli, tmp_path):
    for words, message in (
        (("show", tmp_path), "not a run directory"),
        (("list", "--device", "tpu"), "device: 'tpu' is not known; allowed: auto, cpu, cuda"),
        (("fetch", "nonsense"), "'nonsense' is not known"),
        (("fetch",), "needs a name"),
    ):
        result = cli(*words)
        assert result.exit_code == 2 and message in result.stderr and result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("run", "--output-dir", ""), "output_dir"),
        (("compare", "a", "--baseline", ""), "baseline"),
        (("report", ""), "runs"),
        (("report", "runs", "-o", ""), "output"),
        (("report", "runs", ""), "runs"),
        (("ab", "-A", "ngram", "-B", "ngram", "--output-dir", ""), "output_dir"),
        (("ab", "-A", "ngram", "-B", "ngram", "--tokenizer", ""), "A: tokenizer"),
    ],
)
def test_an_empty_path_is_not_the_folder_one_is_in(cli, tmp_path, monkeypatch, words, name):
    monkeypatch.chdir(tmp_path)
    result = cli(*words)
    assert result.exit_code == 2 and f"error: {name}: is empty; give a" in result.stderr, result.stderr
    assert list(tmp_path.iterdir()) == []


def _parameters(command, words=()):
    """(words of a command, parameter) of everything that takes a value."""
    for name, below in getattr(command, "commands", {}).items():
        yield from _parameters(below, (*words, name))
    if not hasattr(command, "commands"):
        yield from ((words, each) for each in command.params if not getattr(each, "is_flag", False))


def test_no_value_may_be_empty(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    accepted = []
    for words, parameter in _parameters(typer.main.get_command(app)):
        is_option = parameter.param_type_name == "option"
        result = cli(*words, parameter.opts[0] if is_option else "--", *[""] * max(parameter.nargs, 1))
        name = key_of(parameter.opts[0]) if is_option else r"\w+"  # the first of several arguments
        if result.exit_code != 2 or not re.search(f"error: {name}: is empty; give a", result.stderr):
            accepted.append(" ".join((*words, parameter.name)))
    assert accepted == [] and list(tmp_path.iterdir()) == []
