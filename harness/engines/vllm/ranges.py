"""Ranges around the calls of vLLM's model runners that make up a round, one for each drafter pass. Runs in the child.

The calls were determined from the sources of the versions in READ; other versions are unknown and get no ranges. The
first runner has scopes of its own, which are switched on; a pass is its drafter's forward. The second has none; a pass
there is what vLLM captures as one graph: forward, sampling, and the next pass's inputs.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from steady import Ranges

READ = ("0.26", "0.32")
FIRST, NEXT, REST = "specbench:draft_first", "specbench:draft_next", "specbench:draft_rest"
_BASE = "vllm.v1.spec_decode.llm_base_proposer"
_SECOND = "vllm.v1.worker.gpu.spec_decode"
_PASS_BY_PASS = {"0.26": f"{_SECOND}.autoregressive.speculator.AutoRegressiveSpeculator"}
_PASS_BY_PASS["0.32"] = f"{_SECOND}.target_dependent_ar.speculator.TargetDependentARSpeculator"


class Proposer(Protocol):
    """A drafter of the first runner."""

    def propose(self, *args: object, **kwargs: object) -> object: ...


def put_ranges(ranges: Ranges, version: str, runner: Any) -> list[str]:
    """Installs the ranges. `runner`: of vLLM's worker. Returns a note about the ranges for the reader of the trace."""
    minor = ".".join(version.split(".")[:2])
    if minor not in READ:
        return [f"vLLM {version}: no ranges; the calls of a round are known for {', '.join(READ)} only"]
    if type(runner).__module__ == "vllm.v1.worker.gpu.model_runner":
        return [f"vLLM {version}, second model runner: ranges around its calls", *_second(ranges, minor, runner)]
    return [f"vLLM {version}, first model runner: its own scopes", *_first(ranges, runner)]


def _first(ranges: Ranges, runner: Any) -> Iterator[str]:
    utils: Any = importlib.import_module("vllm.v1.utils")
    utils._PROFILER_FUNC = ranges  # vLLM makes its scopes with this function once it is set
    drafter = getattr(runner, "drafter", None)
    if drafter is None:
        return
    base = importlib.import_module(_BASE)
    if not isinstance(drafter, base.SpecDecodeBaseProposer) or "propose" in _own(type(drafter), base):
        yield f"the passes of {type(drafter).__name__} are not distinguished: how it drafts is unknown"
        return
    _count_passes(ranges, base, drafter)


def _own(drafter: type, base: Any) -> set[str]:
    """Methods that its class or one below the common base defines itself."""
    classes = drafter.__mro__[: drafter.__mro__.index(base.SpecDecodeBaseProposer)]
    return {name for each in classes for name in vars(each)}


def _count_passes(ranges: Ranges, base: Any, drafter: Proposer) -> None:
    """`propose` runs every forward of the drafter in a forward context, and nothing else."""
    plain, propose = base.set_forward_context, drafter.propose
    number = 0

    @contextmanager
    def in_pass(*args: object, **kwargs: object) -> Iterator[object]:
        nonlocal number
        name, number = NEXT if number else FIRST, number + 1
        with ranges(name), plain(*args, **kwargs) as context:
            yield context

    def proposing(*args: object, **kwargs: object) -> object:
        nonlocal number
        number = 0
        return propose(*args, **kwargs)

    base.set_forward_context = in_pass
    drafter.propose = proposing  # type: ignore[method-assign]


def _second(ranges: Ranges, minor: str, runner: Any) -> Iterator[str]:
    ranges.around(runner, "execute_model", "specbench:advance")
    ranges.around(runner, "sample_tokens", "specbench:accept")
    ranges.around(runner.model, "forward", "specbench:verify")
    if runner.cudagraph_manager is not None:
        ranges.around(runner.cudagraph_manager, "run_fullgraph", "specbench:verify")
        ranges.around(runner.cudagraph_manager, "run_pw_graph", "specbench:verify")
    speculator = runner.speculator
    if speculator is None:
        return
    ranges.around(speculator, "propose", "specbench:draft")
    module, _, name = _PASS_BY_PASS[minor].rpartition(".")
    if not isinstance(speculator, getattr(importlib.import_module(module), name)):
        yield f"the passes of {type(speculator).__name__} are not distinguished: how it drafts is unknown"
        return
    ranges.around(speculator, "_prefill", FIRST)
    ranges.around(speculator, "_generate_draft", NEXT)
    if speculator.prefill_cudagraph_manager is not None:
        ranges.around(speculator.prefill_cudagraph_manager, "run_fullgraph", FIRST)
    if speculator.decode_cudagraph_manager is not None:
        is_one = getattr(speculator, "supports_decode_metadata_update", False)
        ranges.around(speculator.decode_cudagraph_manager, "run_fullgraph", REST if is_one else NEXT)
        if is_one:
            yield "passes after the first are one graph when replayed, and are not distinguished there"
