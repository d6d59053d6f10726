"""An arm behind an address: its label, and the form of requests to its server."""

from __future__ import annotations

from dataclasses import dataclass, field

from specbench.harness.engines.base import Capabilities
from specbench.harness.spec.arm import ArmConfig, ArmSetup

from .asking import APIS, PROMPTS, Asking
from .endpoint import ApiKey, Endpoint
from .server import Server

_KEYS = ("api", "prompt", "replicas")
_UNTOLD = "the server does not report whether it speculates"


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenAIArm:
    """`server` and `asking` are None until the server has been queried."""

    config: ArmConfig
    endpoint: Endpoint
    api: str
    prompt: str
    replicas: tuple[Endpoint, ...] = ()
    capabilities: Capabilities = field(default_factory=Capabilities)
    notes: tuple[str, ...] = ()
    server: Server | None = None
    asking: Asking | None = None
    graph_parts: None = None
    footprint: int = 0

    def setup(self) -> ArmSetup:
        return ArmSetup(options=dict(self.config.options), engine="openai", driven="HTTP")


def parse_openai_arm(arm: ArmConfig, api_key_env: str) -> OpenAIArm:
    """ValueError for switches that can only be set when a server is started."""
    own = arm.own_config
    for key in arm.engine:
        if key not in ("url", *(f"engine.{name}" for name in _KEYS)):
            raise ValueError(
                f"{key}: {arm.engine[key]!r} is not allowed for a server that is already running; "
                "allowed: url, engine.api, engine.prompt, engine.replicas"
            )
    url = arm.engine.get("url")
    if not url:
        raise ValueError("base_url: the engine openai needs --base-url http://HOST:PORT/v1, or url=... in each arm")
    api, prompt = own.get("api", "completions"), own.get("prompt", "auto")
    if api not in APIS:
        raise ValueError(f"engine.api: {api!r} is not known; allowed: {', '.join(APIS)}")
    if prompt not in ("auto", *PROMPTS):
        raise ValueError(f"engine.prompt: {prompt!r} is not known; allowed: auto, {', '.join(PROMPTS)}")
    if api == "chat" and prompt == "ids":
        raise ValueError("engine.prompt: ids is not allowed with engine.api=chat, which takes messages; allowed: text")
    api_key = ApiKey.of_environment(api_key_env)
    texts = own["replicas"].split("+") if "replicas" in own else []
    replicas = tuple(Endpoint.parse(each, api_key, "engine.replicas") for each in texts)
    if len(set(replicas)) < len(replicas):
        raise ValueError(
            f"engine.replicas: {own['replicas']!r} names a replica twice; its counters would be counted twice"
        )
    return OpenAIArm(config=arm, endpoint=Endpoint.parse(url, api_key), api=api, prompt=prompt, replicas=replicas)


def notes_of(arm: OpenAIArm, server: Server, *, as_ids: bool, has_tokenizer: bool) -> tuple[str, ...]:
    """What a reader of its row must know."""
    dialect = server.dialect
    if arm.api == "chat":
        prompts = "prompts as chat messages, in the server's own template"
    else:
        prompts = "" if as_ids else "prompts as text, without a chat template"
    lengths = "" if has_tokenizer else "lengths of prompts are estimates: no --tokenizer"
    untold = _UNTOLD if server.speculates is None else ""
    return tuple(filter(None, (f"{dialect.name}; prefix cache: {dialect.cache}", prompts, lengths, untold)))
