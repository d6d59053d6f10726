"""What is not known of an arm behind a server, each with the reason."""

from __future__ import annotations

from specbench.harness.store.arm_record import Fact

from .dialects import LLAMA_CPP, SGLANG, VLLM
from .server import Server

NO_STEPS = "a server tells its clients nothing of its steps"
_HOW = {
    VLLM.name: "vLLM tells it of each request with --per-request-spec-decode-metrics detailed only",
    SGLANG.name: "SGLang told of no rounds in its answers",
    LLAMA_CPP.name: "llama.cpp tells sums of drafts and no rounds",
}


def unknown_facts(server: Server, *, has_ids: bool) -> dict[Fact, str]:
    """Before the first answer. `has_ids`: prompts go as token ids."""
    dialect = server.dialect
    unknown = dict.fromkeys(
        (Fact.DEVICE_TIMES, Fact.ROUNDS, Fact.PHASES, Fact.GRAPHS, Fact.SYNCS, Fact.PREEMPTIONS), NO_STEPS
    )
    unknown[Fact.ACCEPTANCE] = _HOW.get(dialect.name, "the protocol tells nothing of drafts")
    unknown[Fact.TOKEN_IDS] = dialect.no_ids or "the server has not told any"
    if dialect.no_scores or not has_ids:
        unknown[Fact.SCORES] = dialect.no_scores or "prompts are scored by their token ids: give --tokenizer"
    return unknown
