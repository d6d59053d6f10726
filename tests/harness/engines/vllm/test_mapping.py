"""Strategies and switches as vLLM's configuration: what is asked for reaches vLLM, and what it cannot do is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from specbench.harness.engines.vllm.arm import capture_sizes, engine_args, resolve
from specbench.harness.engines.vllm.installed import Installed, minor_of
from specbench.harness.engines.vllm.switches import contradictions
from specbench.harness.spec.arm import parse_arm
from specbench.harness.spec.conditions import Conditions

METHODS = ("ngram", "draft_model", "eagle", "eagle3", "suffix", "mtp", "dflash", "medusa")
INSTALLED = Installed(python=Path("/venv/bin/python"), version="0.26.0", methods=METHODS)


def args_of(text: str, is_cpu: bool = False, **conditions) -> dict:
    given = {"max_concurrency": 4, "max_model_len": 512, **conditions}
    arm = resolve(parse_arm(text), INSTALLED)
    return engine_args(arm, Conditions(**given), model=Path("/m"), dtype="float32", is_cpu=is_cpu, gpu_share=0.425)


@pytest.mark.parametrize(
    ("text", "speculative"),
    [
        ("vllm/no-spec", None),
        ("vllm/eagle", {"method": "eagle3", "num_speculative_tokens": 4}),
        ("vllm/eagle:k=2,head=/h", {"method": "eagle3", "num_speculative_tokens": 2, "model": "/h"}),
        ("vllm/draft-model:draft=small", {"method": "draft_model", "model": "small", "num_speculative_tokens": 4}),
        (
            "vllm/ngram:k=3,min_n=1,max_n=4",
            {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 1, "prompt_lookup_max": 4},
        ),
        (
            "vllm/eagle:k=2,draft_sample_method=probabilistic",
            {"method": "eagle3", "num_speculative_tokens": 2, "draft_sample_method": "probabilistic"},
        ),
        ("vllm/mtp:k=1", {"method": "mtp", "num_speculative_tokens": 1}),
        ("vllm/dflash:k=8,head=/d", {"method": "dflash", "num_speculative_tokens": 8, "model": "/d"}),
        (
            "vllm/suffix:k=9,suffix_decoding_max_tree_depth=12",
            {"method": "suffix", "num_speculative_tokens": 9, "suffix_decoding_max_tree_depth": 12},
        ),
        (
            "vllm/eagle:k=3,drafter=unpadded,attention_drafter=flashinfer",
            {
                "method": "eagle3",
                "num_speculative_tokens": 3,
                "disable_padded_drafter_batch": True,
                "attention_backend": "FLASHINFER",
            },
        ),
        (
            "vllm/eagle:acceptance=synthetic:2.5,engine.speculative_config.parallel_drafting=true",
            {
                "method": "eagle3",
                "num_speculative_tokens": 4,
                "rejection_sample_method": "synthetic",
                "synthetic_acceptance_length": 2.5,
                "parallel_drafting": True,
            },
        ),
        (
            "vllm/eagle:k=2,acceptance=synthetic:rates=0.9/0.5",
            {
                "method": "eagle3",
                "num_speculative_tokens": 2,
                "rejection_sample_method": "synthetic",
                "synthetic_acceptance_rates": [0.9, 0.5],
            },
        ),
    ],
)
def test_strategies(text, speculative):
    assert args_of(text).get("speculative_config") == speculative


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("vllm/eagle-topk", "strategy: 'eagle-topk' is not allowed; vLLM 0.26 to 0.33 do not draft trees"),
        ("vllm/naive-eagle", "strategy: 'naive-eagle' is not allowed; .* reproduces an old version"),
        ("vllm/as-served", "strategy: 'as-served' is not allowed"),
        ("vllm/dspark", "'dspark' is not a method of the installed vLLM; allowed: .*dflash, .*eagle, .*suffix"),
        ("vllm/no-spec:k=2", "k: '2' cannot be given to vLLM's no-spec; allowed: no options"),
        ("vllm/eagle:topk=2", "topk: '2' .* vLLM's eagle; allowed: k, head, draft_sample_method, or engine.spec"),
        ("vllm/eagle:k=0", "k: '0' is not allowed; allowed: a whole number, 1 or more"),
        ("vllm/draft-model", "draft: '' is not allowed for vLLM; give a model's name"),
        ("vllm/draft-model:draft=self:2", "draft: 'self:2' is not allowed for vLLM"),
        ("vllm/eagle:sync=multi", "sync: 'multi' cannot be given to vLLM"),
        ("vllm/eagle:state_update=torch", "state_update: 'torch' cannot be given to vLLM"),
        ("vllm/eagle:status_lag=1", "status_lag: '1' cannot be given .* engine.async_scheduling"),
        ("vllm/eagle:graph_target=full", "graph_target: 'full' cannot be given .* one graph mode"),
        ("vllm/eagle:graph=one", "graph: 'one' is not a mode of vLLM; allowed: auto, none, piecewise"),
        ("vllm/eagle:attention=torch", "attention: 'torch' is not a backend of vLLM; allowed: auto, triton"),
        ("vllm/eagle:drafter=other", "drafter: 'other' is not allowed; allowed: padded, unpadded"),
        ("vllm/eagle:acceptance=synthetic:histogram=1/2", "acceptance: .* allowed: real, synthetic:LENGTH"),
        ("vllm/eagle:acceptance=synthetic:x", "acceptance: 'synthetic:x' is not allowed"),
        ("vllm/no-spec:engine.model=other", "engine.model: is not allowed; all engines get the same model"),
        ("vllm/no-spec:engine.max_model_len.x=1", "engine.max_model_len.x: is not allowed; .* is 512 and has no keys"),
        ("vllm/no-spec:url=http://x", "url: 'http://x' cannot be given to vLLM; it runs in process"),
    ],
)
def test_what_vllm_cannot_do_is_refused_with_the_reason(text, said):
    with pytest.raises(ValueError, match=said):
        args_of(text)


def test_without_drafts_there_is_nothing_to_force_or_to_pad():
    assert "speculative_config" not in args_of("vllm/no-spec:acceptance=synthetic:2,drafter=unpadded")


def test_what_is_given_for_all_arms_has_no_meaning_for_one_without_drafts():
    text = "vllm/no-spec:acceptance=synthetic:2,drafter=unpadded,attention_drafter=triton"
    assert "speculative_config" not in args_of(text)
    arm = resolve(parse_arm(text), INSTALLED)
    assert arm.notes == () and (arm.setup().acceptance, arm.setup().drafter) == ("real", None)


def test_what_nobody_chose_is_not_refused():
    assert "compilation_config" not in args_of("vllm/no-spec:sync=auto,state_update=fused,graph=auto", is_cpu=True)


@pytest.mark.parametrize(
    ("graph", "mode"),
    [
        ("none", "NONE"),
        ("piecewise", "PIECEWISE"),
        ("full", "FULL"),
        ("FULL_DECODE_ONLY", "FULL_DECODE_ONLY"),
        ("full-and-piecewise", "FULL_AND_PIECEWISE"),
    ],
)
def test_graph_modes(graph, mode):
    assert args_of(f"vllm/no-spec:graph={graph}")["compilation_config"]["cudagraph_mode"] == mode


def test_full_batches_are_captured_without_padding():
    assert capture_sizes(1, 0) == [1] and capture_sizes(1, 4) == [1, 5]
    assert capture_sizes(20, 3) == [1, 2, 4, 8, 16, 20, 32, 64, 80]
    compilation = args_of("vllm/eagle:k=3,graph=full", max_concurrency=20)["compilation_config"]
    assert compilation["cudagraph_capture_sizes"][-1] == compilation["max_cudagraph_capture_size"] == 80
    assert list(args_of("vllm/eagle:graph=none")["compilation_config"]) == ["cudagraph_mode"]


def test_the_same_question_to_every_engine():
    args = args_of("vllm/eagle:attention=flash-attention", page_size=32, num_pages=99, seed=3)
    wanted = {
        "model": "/m",
        "dtype": "float32",
        "max_model_len": 512,
        "max_num_seqs": 4,
        "max_num_batched_tokens": 2048,
        "seed": 3,
        "enable_prefix_caching": False,
        "generation_config": "vllm",
        "disable_log_stats": False,
        "block_size": 32,
        "num_gpu_blocks_override": 99,
        "attention_backend": "FLASH_ATTN",
        "gpu_memory_utilization": 0.425,
        "load_format": "auto",
    }
    assert {key: args.get(key) for key in wanted} == wanted and "skip_tokenizer_init" not in args


def test_a_step_holds_the_whole_batch_with_its_drafts():
    assert args_of("vllm/eagle:k=4", max_concurrency=600)["max_num_batched_tokens"] == 3000


def test_random_weights_have_no_tokenizer():
    args = args_of("vllm/no-spec", load_format="dummy")
    assert args["load_format"] == "dummy" and args["skip_tokenizer_init"] is True


def test_a_cpu_has_no_graphs_and_no_share_of_a_gpu():
    args = args_of("vllm/eagle:attention=CPU_ATTN", is_cpu=True)
    assert args["attention_backend"] == "CPU_ATTN"
    assert not {"gpu_memory_utilization", "compilation_config", "cudagraph_metrics"} & set(args)


def test_keys_of_the_engine_itself_come_last_and_nest():
    text = "vllm/no-spec:engine.gpu_memory_utilization=0.5,engine.compilation_config.mode=3,engine.tokenizer_mode=slow"
    args = args_of(text)
    assert args["gpu_memory_utilization"] == 0.5 and args["tokenizer_mode"] == "slow"
    assert args["compilation_config"]["mode"] == 3 and args["compilation_config"]["cudagraph_capture_sizes"]


def test_the_record_says_how_it_is_set_up():
    setup = resolve(parse_arm("vllm/eagle:k=2,drafter=unpadded,engine.block_size=32"), INSTALLED).setup()
    assert (setup.engine, setup.driven, setup.num_drafts, setup.drafter) == ("vllm", "in process", 2, "unpadded")
    assert setup.options == {"k": "2", "engine.block_size": "32"} and setup.acceptance == "real"
    assert resolve(parse_arm("vllm/no-spec"), INSTALLED).setup().num_drafts == 0
    assert resolve(parse_arm("vllm/mtp"), INSTALLED).setup().num_drafts is None, "as the model says"


def test_a_version_that_is_newer_than_what_was_read_is_noted():
    assert INSTALLED.notes == () and replace(INSTALLED, version="0.33.1+cu130").notes == ()
    assert "newer" in replace(INSTALLED, version="0.34.0").notes[0]
    assert minor_of("0.32.0+cpu") == (0, 32) and minor_of("1.0") == (1, 0)


def test_what_vllm_resolved_otherwise_is_said():
    asked = {
        "dtype": "bfloat16",
        "compilation_config": {"cudagraph_mode": "FULL"},
        "attention_backend": "FLASH_ATTN",
        "speculative_config": {"method": "ngram", "num_speculative_tokens": 4},
    }
    told = {"dtype": "bfloat16", "cudagraph_mode": "FULL", "speculative_config": {"method": "ngram"}}
    assert list(contradictions(asked, told, "FLASH_ATTN")) == []
    told |= {"cudagraph_mode": "PIECEWISE", "speculative_config": {"method": "ngram", "num_speculative_tokens": 2}}
    assert list(contradictions(asked, told, "TRITON_ATTN")) == [
        "graph mode: FULL was requested, vLLM runs PIECEWISE",
        "attention: FLASH_ATTN was requested, vLLM runs TRITON_ATTN",
        "speculative num_speculative_tokens: 4 was requested, vLLM runs 2",
    ]
    assert list(contradictions({}, {"speculative_config": {"method": "mtp"}}, None)) == [
        "speculation: none was requested, vLLM runs mtp"
    ]
