"""What is unknown about an arm behind a server, each with the reason."""

from __future__ import annotations

from specbench.harness.store.arm_record import Fact

from .dialects import LLAMA_CPP, SGLANG, VLLM
from .server import Server

NO_STEPS = "a server does not report its steps to clients"
_HOW = {
    VLLM.name: "vLLM reports it per request only with --per-request-spec-decode-metrics detailed",
    SGLANG.name: "SGLang reported no rounds in its answers",
    LLAMA_CPP.name: "llama.cpp reports sums of drafts, not rounds",
}


def unknown_facts(server: Server, *, has_ids: bool) -> dict[Fact, str]:
    """What is unknown before the first answer. `has_ids`: prompts are sent as token ids."""
    dialect = server.dialect
    unknown = dict.fromkeys(
        (Fact.DEVICE_TIMES, Fact.ROUNDS, Fact.PHASES, Fact.GRAPHS, Fact.SYNCS, Fact.PREEMPTIONS), NO_STEPS
    )
    unknown[Fact.ACCEPTANCE] = _HOW.get(dialect.name, "the protocol does not report drafts")
    unknown[Fact.TOKEN_IDS] = dialect.no_ids or "the server has not reported any"
    if dialect.no_scores or not has_ids:
        unknown[Fact.SCORES] = dialect.no_scores or "prompts are scored by their token ids: give --tokenizer"
    return unknown
