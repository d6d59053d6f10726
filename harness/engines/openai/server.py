"""What a server reports about itself: its kind, what it serves, whether it speculates."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypedDict

from specbench.harness.registry import BASELINE, STRATEGIES

from .dialects import LLAMA_CPP, OWNERS, PLAIN, SGLANG, VLLM, Dialect
from .endpoint import Endpoint, Page, ask

AS_SERVED = "as-served"
_PAGES = ("/v1/models", "/metrics", "/version", "/server_info?config_format=json", "/props", "/slots")


class _Details(TypedDict, total=False):
    """Of a `Server`: what only some tell."""

    version: str | None
    speculates: bool | None
    method: str
    draft_depth: int | None
    graph_mode: str | None
    backend: str | None
    has_metrics: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Server:
    """`speculates` is None, and `method` empty, if the server does not report it. `draft_depth`: of SGLang's trees.
    `replicas`: the servers to which the one at `endpoint` distributes requests."""

    endpoint: Endpoint
    dialect: Dialect
    models: tuple[str, ...] = ()
    version: str | None = None
    speculates: bool | None = None
    method: str = ""
    draft_depth: int | None = None
    graph_mode: str | None = None
    backend: str | None = None
    has_metrics: bool = False
    replicas: tuple[Endpoint, ...] = ()

    @property
    def counted(self) -> tuple[Endpoint, ...]:
        """The servers that have counters and caches."""
        return self.replicas or (self.endpoint,)

    def model(self, wanted: str, default: str) -> str:
        """The served name: `wanted` where it is served, else the first if the user named none (`wanted` is `default`).

        ValueError with what is served otherwise."""
        if wanted in self.models or not self.models:
            return wanted
        if wanted == default:
            return self.models[0]
        raise ValueError(
            f"model: {wanted!r} is not served at {self.endpoint.base_url}; served: {', '.join(self.models)}"
        )

    def check_label(self, strategy: str) -> None:
        """ValueError if an arm's label contradicts what the server reports."""
        if strategy == AS_SERVED or self.speculates is None:
            return
        at = f"the server at {self.endpoint.base_url}"
        how = f" ({self.method})" if self.method else ""
        if strategy == BASELINE and self.speculates:
            raise ValueError(f"strategy: {strategy} is not what {at} does: it speculates{how}; label it as-served")
        if strategy != BASELINE and not self.speculates:
            raise ValueError(f"strategy: {strategy} is not what {at} does: it does not speculate; label it {BASELINE}")
        if _is_another(strategy, self.method):
            raise ValueError(f"strategy: {strategy} is not what {at} does: it speculates by {self.method}")


def _is_another(label: str, method: str) -> bool:
    """Whether both are words of strategies that we know, and the label has not the method's: `eagle3` is one of
    `eagle-topk`. A label of the user's own says nothing."""
    words = {word for name in STRATEGIES for word in name.split("-")}
    (stem,) = re.findall("^[a-z]*", method)
    return label in STRATEGIES and stem in words and stem not in label.split("-")


def identify(endpoint: Endpoint) -> Server:
    """ValueError if there is no such server, or it requires a key."""
    pages = dict(zip(_PAGES, ask(endpoint, *(_at(endpoint, path) for path in _PAGES)), strict=True))
    models = pages["/v1/models"]
    if models.status in (401, 403):
        raise ValueError(f"base_url: {endpoint.base_url} answers {models.said}; its key is read from --api-key-env")
    if models.status != 200:
        raise ValueError(f"base_url: no OpenAI-compatible server at {endpoint.base_url} ({models.said})")
    listed = models.json.get("data")
    entries = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    owner = str(entries[0].get("owned_by", "")) if entries else ""
    dialect = OWNERS.get(owner, PLAIN)
    details: _Details = _TELL[dialect.name](pages) if dialect.name in _TELL else {}
    return Server(
        endpoint=endpoint, dialect=dialect, models=tuple(str(one["id"]) for one in entries if "id" in one), **details
    )


def identify_replicas(endpoint: Endpoint, replicas: Sequence[Endpoint]) -> Server:
    """What all of them say, behind `endpoint`, which is asked for nothing but answers. ValueError where they differ."""
    first, *others = [identify(each) for each in replicas]
    for other in others:
        if (differs := _kind(other)) != _kind(first):
            raise ValueError(
                f"engine.replicas: {other.endpoint.base_url} is {differs}, {first.endpoint.base_url} {_kind(first)}; "
                "replicas must be alike"
            )
    return replace(first, endpoint=endpoint, replicas=tuple(replicas))


def _kind(server: Server) -> str:
    drafts = {None: "drafts unknown", True: f"drafts by {server.method or 'some method'}", False: "no drafts"}
    return ", ".join(
        [f"{server.dialect.name} {server.version or '(no version)'}", *server.models, drafts[server.speculates]]
    )


def _at(endpoint: Endpoint, path: str) -> str:
    """The list of models is below a base URL that may end in something else than /v1."""
    return path if path != "/v1/models" else endpoint.base_url.removeprefix(endpoint.root) + "/models"


def _vllm(pages: Mapping[str, Page]) -> _Details:
    """The counters of speculation are there from the start where it speculates, and only there; with
    --disable-log-stats the page has none at all. Only servers in development mode report their configuration."""
    metrics = pages["/metrics"].text if pages["/metrics"].status == 200 else ""
    has_metrics = "vllm:" in metrics
    config = pages["/server_info?config_format=json"].json.get("vllm_config")
    config = config if isinstance(config, dict) else {}
    speculative = config.get("speculative_config")
    graphs = _inside(config, "compilation_config", "cudagraph_mode")
    return {
        "version": _text(pages["/version"].json.get("version")),
        "has_metrics": has_metrics,
        "speculates": "vllm:spec_decode_num_drafts" in metrics if has_metrics else None,
        "method": _text(_inside(speculative, "method")) or "",
        "graph_mode": _text(graphs),
        "backend": _text(_inside(config, "attention_config", "backend")),
    }


def _sglang(pages: Mapping[str, Page]) -> _Details:
    details = pages["/server_info?config_format=json"].json
    algorithm = details.get("speculative_algorithm")
    steps, topk = details.get("speculative_num_steps"), details.get("speculative_eagle_topk")
    is_tree = isinstance(topk, int) and topk > 1
    return {
        "version": _text(details.get("version")),
        "has_metrics": pages["/metrics"].status == 200,
        "speculates": bool(algorithm) if "speculative_algorithm" in details else None,
        "method": str(algorithm or "").lower(),
        "draft_depth": steps if is_tree and isinstance(steps, int) else None,
        "graph_mode": None
        if "disable_cuda_graph" not in details
        else "none"
        if details["disable_cuda_graph"]
        else "full",
        "backend": _text(details.get("attention_backend")),
    }


def _llama_cpp(pages: Mapping[str, Page]) -> _Details:
    """Whether it speculates is in its slots; `speculative.types` of /props is only what requests may choose."""
    props, slots = pages["/props"].json, pages["/slots"].items
    details = _inside(slots[0], "speculative") if slots else None
    return {
        "version": _text(props.get("build_info")),
        "has_metrics": pages["/metrics"].status == 200,
        "speculates": details if isinstance(details, bool) else None,
    }


_TELL = {VLLM.name: _vllm, SGLANG.name: _sglang, LLAMA_CPP.name: _llama_cpp}


def _inside(value: object, *keys: str) -> object:
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _text(value: object) -> str | None:
    return None if value is None else str(value)
