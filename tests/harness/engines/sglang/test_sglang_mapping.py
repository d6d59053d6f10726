"""What an arm becomes in SGLang's own words, and what is refused because SGLang has nothing that means the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import toy

from specbench.harness.engines.sglang.mapping import CONTEXT_SLACK, Weights, mapped, with_weights
from specbench.harness.spec.arm import parse_arm
from specbench.harness.spec.conditions import Conditions
from specbench.workloads.assets.shipped_heads import HEADS

NAMES = Path(toy.__file__).with_name("fake_sglang").joinpath("sglang/srt/server_args_0_5_16.txt").read_text().split()
CONDITIONS = Conditions(max_concurrency=8, max_model_len=512)
CHAIN = {"speculative_num_steps": 4, "speculative_eagle_topk": 1, "speculative_num_draft_tokens": 5}


def args_of(text: str, conditions: Conditions = CONDITIONS) -> dict:
    return mapped(parse_arm(text), conditions).server_args


def given(text: str) -> dict:
    """What the arm adds to one that says nothing."""
    plain = args_of("no-spec")
    return {key: value for key, value in args_of(text).items() if plain.get(key) != value and key != "max_total_tokens"}


@pytest.mark.parametrize(
    ("text", "args"),
    [
        ("no-spec", {}),
        ("eagle:k=4,head=x", {"speculative_algorithm": "EAGLE3", **CHAIN}),
        ("draft-model:k=4,draft=x", {"speculative_algorithm": "STANDALONE", **CHAIN}),
        (
            "eagle-topk:num_steps=2,topk=4,num_draft_tokens=4,head=x",
            {
                "speculative_algorithm": "EAGLE3",
                "speculative_num_steps": 2,
                "speculative_eagle_topk": 4,
                "speculative_num_draft_tokens": 4,
            },
        ),
        (
            "eagle-topk:num_steps=1,topk=2,num_draft_tokens=2,head=x",
            {
                "speculative_algorithm": "EAGLE3",
                "speculative_num_steps": 1,
                "speculative_eagle_topk": 2,
                "speculative_num_draft_tokens": 2,
            },
        ),
        (
            "ngram:k=7",
            {"speculative_algorithm": "NGRAM", "speculative_num_steps": 1, "speculative_num_draft_tokens": 8},
        ),
        ("mtp:k=4", {"speculative_algorithm": "NEXTN", **CHAIN}),
        ("dflash:head=x", {"speculative_algorithm": "DFLASH"}),
        ("dflash:k=7,head=x", {"speculative_algorithm": "DFLASH", "speculative_num_draft_tokens": 8}),
        ("dspark:k=7,head=x", {"speculative_algorithm": "DSPARK", "speculative_dspark_block_size": 7}),
        ("MY_OWN:num_steps=3", {"speculative_algorithm": "MY_OWN", "speculative_num_steps": 3}),
        ("no-spec:graph=none", {"disable_cuda_graph": True}),
        (
            "no-spec:graph=FULL_DECODE_ONLY",
            {"cuda_graph_backend_decode": "full", "cuda_graph_backend_prefill": "disabled"},
        ),
        (
            "no-spec:graph=full_and_piecewise",
            {"cuda_graph_backend_decode": "full", "cuda_graph_backend_prefill": "tc_piecewise"},
        ),
        ("no-spec:graph=full", {"cuda_graph_backend_decode": "full", "cuda_graph_backend_prefill": "full"}),
        ("no-spec:graph=auto,sync=auto,drafter=padded,state_update=fused", {}),
        ("no-spec:attention=triton", {"attention_backend": "triton"}),
        ("no-spec:attention=flash-attention", {"attention_backend": "fa3"}),
        ("no-spec:attention=flashinfer,attention_drafter=triton", {"attention_backend": "flashinfer"}),
        (
            "draft-model:k=4,draft=x,attention_drafter=flashinfer",
            {"speculative_algorithm": "STANDALONE", "speculative_draft_attention_backend": "flashinfer", **CHAIN},
        ),
        (
            "no-spec:engine.page_size=64,engine.sampling_backend=pytorch",
            {"page_size": 64, "sampling_backend": "pytorch"},
        ),
        ("no-spec:engine.disable_radix_cache=false", {"disable_radix_cache": False}),
    ],
)
def test_arms(text, args):
    assert given(text) == args
    assert set(args_of(text)) <= set(NAMES), "an option that SGLang 0.5.16 does not have"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("naive-eagle:k=1", "6995, with one graph per round, was not merged"),
        ("suffix:k=4", "'suffix' is not allowed; allowed with SGLang: no-spec, eagle,"),
        ("eagle:k=9,head=x", "k=9 is not allowed"),
        ("eagle:head=x,draft_sample_method=probabilistic", "own key is engine.speculative_use_rejection_sampling=true"),
        ("ngram:min_n=2", "min_n=2 is not allowed; SGLang looks up the longest match"),
        ("mtp:depth=2", "unknown option 'depth'"),
        ("mtp:k=0", "k='0' is not allowed; allowed: 1 or more"),
        ("mtp:k=4,topk=2", "k=4 describes a chain, topk a tree"),
        ("no-spec:sync=single", "sync: 'single' is not allowed; allowed with SGLang: auto"),
        ("no-spec:status_lag=2", "status_lag: '2' is not allowed; not a switch of SGLang"),
        ("eagle:k=4,head=x,drafter=unpadded", "drafter: 'unpadded' is not allowed; allowed with SGLang: padded"),
        ("no-spec:state_update=torch", "state_update: 'torch'"),
        ("no-spec:graph=one", "graph: 'one' is not allowed.*separate graphs"),
        ("no-spec:graph=piecewise", "graph: 'piecewise' is not allowed.*of prompts only"),
        ("no-spec:graph=fast", "graph: 'fast' is not allowed; allowed with SGLang: auto, none"),
        ("no-spec:graph_first=none", "graph_first: 'none' is not allowed"),
        (
            "no-spec:attention=flashinfer-xqa",
            "attention: 'flashinfer-xqa' is not allowed.*engine.attention_backend=NAME",
        ),
        ("dflash:k=4,acceptance=synthetic:2", "acceptance: 'synthetic:2' is not allowed with DFLASH"),
        ("mtp:acceptance=synthetic:2", "NEXTN also needs k=K"),
        ("eagle:k=4,head=x,acceptance=synthetic:6", "length 6 is not allowed; allowed: 1 to 5"),
        ("eagle:k=4,head=x,acceptance=real:2", "acceptance: 'real:2' is not known; allowed: real, synthetic:LENGTH"),
        ("eagle:k=4,head=x,engine.speculative_num_steps=2", "the arm's own options say 4"),
        ("no-spec:graph=none,engine.disable_cuda_graph=false", "the arm's own options say True"),
        ("no-spec:engine.model_path=x", "engine.model_path: 'x' is not allowed; --model sets it"),
    ],
)
def test_refused(text, why):
    with pytest.raises(ValueError, match=why):
        mapped(parse_arm(text), CONDITIONS)


def test_conditions():
    asked = Conditions(max_concurrency=8, max_model_len=512, seed=7, page_size=32, max_num_batched_tokens=1024)
    args = args_of("no-spec", asked)
    assert set(args) <= set(NAMES)
    wanted = {
        "random_seed": 7,
        "max_running_requests": 8,
        "cuda_graph_max_bs_decode": 8,
        "chunked_prefill_size": 1024,
        "page_size": 32,
        "disable_radix_cache": True,
        "sampling_defaults": "openai",
    }
    assert wanted.items() <= args.items()
    assert args["max_total_tokens"] >= 8 * 512, "every request of the largest batch finds room"
    assert args_of("no-spec", Conditions(page_size=32, num_pages=100))["max_total_tokens"] == 3200
    with pytest.raises(ValueError, match="num_pages: 100 is not allowed without --page-size"):
        args_of("no-spec", Conditions(num_pages=100))


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("eagle:k=4,head=x,acceptance=synthetic:3", "3"),
        ("eagle:k=4,head=x,acceptance=synthetic:rates=0.7/0.5/0.3/0.1", "2.6"),
        ("eagle-topk:num_steps=2,topk=4,num_draft_tokens=4,head=x,acceptance=synthetic:2.5", "2.5"),
        ("ngram:k=4,acceptance=synthetic:2", "2"),
        ("eagle:k=2,head=x,acceptance=synthetic:histogram=1/1/2", "2.25"),
        ("eagle:k=4,head=x", "-1"),
        ("no-spec:acceptance=synthetic:3", "-1"),
    ],
)
def test_forced_acceptance_is_in_the_environment(text, length):
    """-1 is off, and hides what the user's own environment says."""
    found = mapped(parse_arm(text), CONDITIONS)
    assert found.environment["SGLANG_SIMULATE_ACC_LEN"] == length
    forced = length != "-1"
    assert found.acceptance == (f"synthetic:{length}" if forced else "real")
    assert any("synthetic acceptance" in note and "whole batch" in note for note in found.notes) is forced


def test_heads_with_fewer_positions_than_their_target():
    allowed = "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"
    assert mapped(parse_arm("eagle:head=x"), CONDITIONS).environment[allowed] == "1"
    assert allowed not in mapped(parse_arm("ngram"), CONDITIONS).environment


def test_ngram_says_how_it_differs():
    (note,) = mapped(parse_arm("ngram:k=4"), CONDITIONS).notes
    assert "a tree of 4 nodes" in note and "steps without a match" in note


def weights(tmp_path: Path, **more) -> Weights:
    return Weights(model=tmp_path, max_position=2048, dtype="bfloat16", is_random=False, **more)


def test_model_and_context(tmp_path):
    arm = mapped(parse_arm("no-spec"), CONDITIONS)
    args = with_weights(arm, weights(tmp_path), 512)
    told = {"model_path": str(tmp_path), "dtype": "bfloat16", "load_format": "auto"}
    assert told.items() <= args.items() and args["context_length"] == 512 + CONTEXT_SLACK
    assert with_weights(arm, weights(tmp_path), 2048)["context_length"] == 2048, "no more than the model has"
    tree = mapped(parse_arm("eagle-topk:num_steps=5,topk=8,num_draft_tokens=32,head=x"), CONDITIONS)
    assert with_weights(tree, weights(tmp_path), 512)["context_length"] == 512 + CONTEXT_SLACK + 40, "for its drafts"
    own = mapped(parse_arm("no-spec:engine.context_length=1000"), CONDITIONS)
    assert with_weights(own, weights(tmp_path), 512)["context_length"] == 1000


@pytest.mark.parametrize(
    ("config", "algorithm"),
    [
        ({"architectures": ["LlamaForCausalLMEagle3"]}, "EAGLE3"),
        ({"architectures": ["LlamaForCausalLM"], "draft_vocab_size": 32000}, "EAGLE3"),
        ({"architectures": ["LlamaForCausalLMEagle"]}, "EAGLE"),
    ],
)
def test_the_head_decides_the_algorithm(tmp_path, config, algorithm):
    (tmp_path / "config.json").write_text(json.dumps(config))
    arm = mapped(parse_arm("eagle:k=2,head=x"), CONDITIONS)
    args = with_weights(arm, weights(tmp_path, draft=tmp_path), 512)
    assert args["speculative_algorithm"] == algorithm and args["speculative_draft_load_format"] == "auto"
    assert set(args) <= set(NAMES)


def test_shipped_and_random_heads(tmp_path):
    arm = mapped(parse_arm("eagle:k=2,head=x"), CONDITIONS)
    shipped = next(HEADS.glob("*/config.json")).parent
    args = with_weights(arm, weights(tmp_path, draft=shipped, draft_is_random=True), 512)
    assert args["speculative_algorithm"] == "EAGLE3" and args["speculative_draft_load_format"] == "dummy"
    assert args["speculative_draft_model_path"] == str(shipped)
