"""Data sets, recipes, policies and rules, what servers and other benchmarks say."""

from __future__ import annotations

import gzip
import io
import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from unittest import mock

import pandas as pd
import tool_files

from fuzz.mutate import Mutate, mutate_bytes, mutate_json, mutate_lines, mutate_packed, mutate_toml
from fuzz.targets import Reader, Target
from specbench.harness.engines.openai import server
from specbench.harness.engines.openai.acceptance import step_rows
from specbench.harness.engines.openai.answers import error_text, read_answer
from specbench.harness.engines.openai.endpoint import Endpoint, Page
from specbench.harness.engines.openai.metrics_page import read_counters
from specbench.harness.engines.openai.stream import Exchange
from specbench.harness.experiments.imports.write import import_files
from specbench.harness.judge.history.accepted import read_accepted
from specbench.harness.judge.lm_eval_samples import read_samples
from specbench.harness.judge.policy import read_policy
from specbench.harness.profiling.node_map import read_node_maps
from specbench.harness.profiling.rules import PhaseRules
from specbench.harness.spec.options import RunOptions
from specbench.harness.spec.recipe_files import load_recipe
from specbench.harness.store.journal import read_journal
from specbench.strategies.ngram import Ngram
from specbench.workloads.guarded import read_json_object
from specbench.workloads.jsonl import load
from specbench.workloads.questions import read_gsm8k
from specbench.workloads.records import read_records
from specbench.workloads.sharegpt_file import write_compact
from specbench.workloads.turns import read_turns

ROOT = Path(__file__).parents[2]
LINES = [
    {"prompt": "hello", "max_tokens": 6, "id": "a", "category": "c"},
    {"messages": [{"role": "user", "content": "hi"}], "output_len": 3, "reference": "r"},
    {"prompt_token_ids": [1, 2, 3]},
]
TURNS = [{"question_id": 81, "category": "x", "turns": ["a", "b"], "reference": ["r", "s"]}]
SHARED = [{"id": "i", "conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}] * 2
SERVED = {
    **{"date": "20260102-030405", "backend": "openai", "label": None, "model_id": "m", "num_prompts": 2},
    **{"request_rate": "inf", "max_concurrency": 1, "duration": 0.6, "completed": 2, "failed": 0},
    **{"input_lens": [20, 20], "output_lens": [9, 9], "ttfts": [0.1, 0.1], "itls": [[0.05] * 4] * 2},
    **{"start_times": [1000.0, 1000.3], "latencies": [0.3, 0.3], "generated_texts": ["a", "b"], "errors": ["", ""]},
    **{"spec_decode_acceptance_rate": 25.0, "spec_decode_num_drafts": 24, "spec_decode_draft_tokens": 24},
    **{"spec_decode_accepted_tokens": 6, "output_throughput": 30.0},
}
SAMPLE = {
    **{"doc_id": 0, "doc": {}, "target": "1", "resps": [["1"]], "filter": "none", "metrics": ["exact_match"]},
    **{"exact_match": 1.0, "doc_hash": "a", "prompt_hash": "b", "target_hash": "c"},
}
VLLM = {"num_spec_steps": 1, "num_draft_tokens": 2, "num_accepted_draft_tokens": 1, "num_spec_tokens": 2}
EVENTS: list[object] = [
    {"choices": [{"text": " a", "finish_reason": None, "token_ids": [5]}]},
    {"choices": [{"delta": {"content": " b c"}, "finish_reason": "stop", "token_ids": [6, 7]}]},
    {
        **{"choices": [], "usage": {"prompt_tokens": 2, "completion_tokens": 3}, "timings": {"predicted_n": 3}},
        "metrics": {"speculative_decoding": {**VLLM, "acceptance_histogram": [0, 1, 0], "per_step_drafted": [2]}},
        "sglext": {"spec_tokens_details": {"spec_verify_ct": 2, "spec_correct_drafts_histogram": [1, 1]}},
    },
]
JOURNAL = [{"arm": "a", "repeat": 0, "num_requests": 2}, {"requests": [[0, "p", 1, 1, "stop", 1, 2, 3]]}, {"steps": []}]
PAGE = b'# TYPE vllm:num_preemptions counter\nvllm:num_preemptions_total{engine="0"} 3.0\nsglang:cached_tokens 5\n'


def lines(values: Iterable[object]) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def packed(value: object) -> bytes:
    return gzip.compress(json.dumps(value).encode())


def reads(name: str, seeds: list[bytes], read: Callable[[Path], object], mutate: Mutate) -> Target:
    """The plain case: a file of that name, and a function of its path."""

    def prepare(folder: Path) -> Reader:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        return Reader(file=file, seeds=seeds, read=partial(read, file))

    return Target(prepare=prepare, mutate=mutate)


def _jsonl(folder: Path) -> Reader:
    from toy.byte_tokenizer import write_byte_tokenizer

    from specbench.workloads.base import WorkloadRequest
    from specbench.workloads.tokenizer import load_tokenizer

    write_byte_tokenizer(folder, chat_template="{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}{% endfor %}")
    tokenizer, file = load_tokenizer(folder), folder / "prompts.jsonl"
    request = WorkloadRequest(name="jsonl", path=str(file), num_prompts=3, max_model_len=256)
    return Reader(file=file, seeds=[lines(LINES)], read=lambda: load(request, tokenizer).sha256)


def _parquet() -> bytes:
    stream = io.BytesIO()
    pd.DataFrame({"question": ["a", "b"], "n": [1, 2]}).to_parquet(stream)
    return stream.getvalue()


def _stream(file: Path) -> object:
    data = file.read_bytes()
    pieces = [(n, data[n : n + 40]) for n in range(0, len(data), 40)]
    answer = read_answer(Exchange(t_submit_ns=-5, status=200, pieces=pieces))
    return step_rows(1, answer)


def _served(file: Path) -> object:
    try:
        return import_files([file], file.parent / "runs", ["specbench", "import"])
    finally:
        shutil.rmtree(file.parent / "runs", ignore_errors=True)


def _server(file: Path) -> object:
    """What a server says of itself, page by page, and why it refuses."""
    data = file.read_bytes()
    pages = read_json_object(file)

    def ask(endpoint: Endpoint, *paths: str) -> list[Page]:
        return [Page(200 if path in pages else 404, json.dumps(pages.get(path))) for path in paths]

    with mock.patch.object(server, "ask", ask):
        return server.identify(Endpoint("http://h/v1")), error_text(data)


def _draft_table(file: Path) -> object:
    strategy = Ngram.of({"k": "auto", "k_table": str(file)})
    return [strategy.draft_counts().choose(num) for num in (1, 3, 9)]


def imported(*objects: object) -> Target:
    return reads("r.json", [lines(objects)], _served, mutate_lines)


def _toml(*paths: str) -> list[bytes]:
    return [(ROOT / path).read_bytes() for path in paths]


RECIPES = _toml(*(f"harness/spec/recipes/{path.name}" for path in (ROOT / "harness/spec/recipes").glob("*-pr-*.toml")))
POLICIES = _toml("reports/templates/specbench.toml", "reports/templates/specbench-ab.toml", ".ci/counts.toml")
RULES = _toml(*(str(path.relative_to(ROOT)) for path in (ROOT / "harness/profiling").glob("*rules*.toml")))
ACCEPTED = b'[[accepted]]\ncommit = "3f21af4"\nnote = "larger head"\n'
NODES = _toml("tests/harness/profiling/golden/eagle/nodes.json")
EVENT_BYTES = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in EVENTS) + b"data: [DONE]\n\n"
INFO = "/server_info?config_format=json"
SERVERS = [
    {"/v1/models": {"data": [{"id": "m", "owned_by": owner}]}, "error": {"message": "x"}, **pages}
    for owner, pages in (
        ("vllm", {"/version": {"version": "1"}, INFO: {"vllm_config": {"speculative_config": {"method": "eagle"}}}}),
        ("sglang", {INFO: {"version": "1", "speculative_algorithm": "EAGLE", "speculative_eagle_topk": 2}}),
        ("llamacpp", {"/props": {"build_info": "b1"}, "/slots": [{"speculative": True}]}),
    )
]
REQUESTS = tool_files.served(num=2)
TIMES = [{"num_drafts": k, "round_ms": 9.0, "tpot_ms": 8.0 - k} for k in (0, 2)]
LOADS = [{"max_concurrency": n, "best": 2, "times": TIMES} for n in (1, 8)]
DRAFT_TABLE = {"strategy": "ngram", "options": {}, "acceptance": [0.5, 0.25], "loads": LOADS}
DRAFT_TABLES = {"schema": "specbench.draft_table/1", "sweep_id": "s", "model": None, "hardware": "x"}
SAMPLES = "samples_gsm8k_2026-11-22T19-04-05.123456.jsonl"

TEXTS: Mapping[str, Target] = {
    "jsonl": Target(prepare=_jsonl, mutate=mutate_lines),
    "jsonl-packed": reads("d.jsonl.gz", [packed({"a": 1})], lambda file: list(read_records(file)), mutate_packed),
    "json-list": reads("d.json", [json.dumps(TURNS).encode()], lambda file: list(read_records(file)), mutate_json),
    "parquet": reads("d.parquet", [_parquet()], lambda file: list(read_records(file)), mutate_bytes),
    "mt-bench": reads("q.jsonl", [lines(TURNS)], read_turns, mutate_lines),
    "gsm8k": reads("q.jsonl", [lines([{"question": "a", "answer": "b #### 3"}])], read_gsm8k, mutate_lines),
    "sharegpt": reads(
        "s.json", [json.dumps(SHARED, indent=2).encode()], lambda f: write_compact(f, f.with_name("c")), mutate_json
    ),
    "recipe": reads("r.toml", RECIPES, lambda file: load_recipe(str(file), RunOptions.schema()), mutate_toml),
    "policy": reads("p.toml", POLICIES, read_policy, mutate_toml),
    "rules": reads("u.toml", RULES, lambda file: PhaseRules.shipped().with_file(file).matcher().rule("x"), mutate_toml),
    "draft-table": reads(
        "t.json", [json.dumps({**DRAFT_TABLES, "tables": [DRAFT_TABLE]}).encode()], _draft_table, mutate_json
    ),
    "nodes": reads("nodes.json", NODES, read_node_maps, mutate_json),
    "accepted": reads("history.toml", [ACCEPTED], lambda file: read_accepted(file.parent), mutate_toml),
    "stream": reads("stream", [EVENT_BYTES], _stream, mutate_lines),
    "metrics-page": reads(
        "page", [PAGE], lambda file: read_counters(file.read_bytes().decode(errors="replace")), mutate_bytes
    ),
    "server-pages": reads("pages.json", [json.dumps(one).encode() for one in SERVERS], _server, mutate_json),
    "serve-result": reads("r.json", [json.dumps(SERVED).encode()], _served, mutate_json),
    "sglang-result": imported(tool_files.sglang_bench(REQUESTS)),
    "aiperf-records": imported(*tool_files.aiperf_records(REQUESTS)),
    "aiperf-totals": imported(tool_files.AIPERF_TOTALS),
    "guidellm-report": imported(tool_files.guidellm_report(REQUESTS)),
    "journal": reads("a.jsonl", [lines(JOURNAL)], read_journal, mutate_lines),
    "lm-eval-samples": reads(SAMPLES, [lines([SAMPLE, {**SAMPLE, "doc_id": 1}])], read_samples, mutate_lines),
}
