"""What a server counted between two readings of its page."""

from __future__ import annotations

import pytest

from specbench.harness.engines.openai.metrics_page import counted, read_counters

VLLM = """# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 9.0
vllm:spec_decode_num_drafts_total{engine="1",model_name="m"} 1.0
# TYPE vllm:spec_decode_num_accepted_tokens_per_pos_total counter
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 7.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="1"} 2.0
# TYPE vllm:spec_decode_num_drafts_created gauge
vllm:spec_decode_num_drafts_created{engine="0",model_name="m"} 1.7e+09
# TYPE vllm:prefix_cache_hits_total counter
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 16.0
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
"""
LLAMA_CPP = """# HELP llamacpp:spec_decode_num_draft_tokens_total Draft tokens
# TYPE llamacpp:spec_decode_num_draft_tokens_total counter
llamacpp:spec_decode_num_draft_tokens_total 24
"""
SGLANG = """# TYPE sglang:spec_accept_length gauge
sglang:spec_accept_length{model_name="m"} 2.5
# TYPE sglang:cuda_graph_passes_total counter
sglang:cuda_graph_passes_total{mode="decode"} 40
"""


def test_counters_by_name_and_position():
    assert read_counters(VLLM) == {
        "spec_decode_num_drafts": 10,
        "spec_decode_num_accepted_tokens_per_pos/0": 7,
        "spec_decode_num_accepted_tokens_per_pos/1": 2,
        "prefix_cache_hits": 16,
    }
    assert read_counters(LLAMA_CPP) == {"spec_decode_num_draft_tokens": 24}


def test_averages_over_requests_of_before_are_not_read():
    assert read_counters(SGLANG) == {"cuda_graph_passes/decode": 40}


def test_a_block_is_the_difference():
    rows = counted([{"spec_decode_num_drafts": 4.0}], [{"spec_decode_num_drafts": 10.0, "prefix_cache_hits": 3.0}])
    assert {row.name: row.value for row in rows} == {
        "engine.spec_decode_num_drafts": 6.0,
        "engine.prefix_cache_hits": 3.0,
    }


@pytest.mark.parametrize("after", [{"spec_decode_num_drafts": 3.0, "num_preemptions": 9.0}, {"num_preemptions": 9.0}])
def test_a_server_that_started_again_has_no_counts_of_the_block(after):
    before = {"spec_decode_num_drafts": 4.0, "num_preemptions": 0.0}
    assert counted([before], [after]) == []
    other = {"spec_decode_num_drafts": 0.0}, {"spec_decode_num_drafts": 90.0}
    assert counted([before, other[0]], [after, other[1]]) == [], "nor has their sum, though it went up"


def test_counts_of_several_servers_are_added_up():
    before, after = [{"num_preemptions": 1.0}, {}], [{"num_preemptions": 2.0}, {"num_preemptions": 5.0}]
    assert [tuple(row) for row in counted(before, after)] == [("engine.num_preemptions", 6.0)]
