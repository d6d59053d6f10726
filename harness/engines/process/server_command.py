"""A server's command line, either the user's own or built from an arm, and the address that it listens on."""

from __future__ import annotations

import shlex
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

HOST = "127.0.0.1"
_LISTEN = ("--host", "{host}", "--port", "{port}")


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerCommand:
    """`words` may contain {host}, {port} and {model}; other braces are literal. `health`: paths, of which at least one
    returns 200 once the server is ready. `environment`: variables added to the user's. `name`: the engine, for
    messages."""

    name: str
    words: tuple[str, ...]
    health: tuple[str, ...] = ("/health", "/v1/models")
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def fixed_port(self) -> int | None:
        """The port that the user's command names; None if we choose it."""
        return None if "{port}" in " ".join(self.words) else _named_port(self.words)

    def filled(self, *, port: int, model: str) -> list[str]:
        found = []
        for word in self.words:
            for name, value in (("{host}", HOST), ("{port}", str(port)), ("{model}", model)):
                word = word.replace(name, value)
            found.append(word)
        return found


def users_command(name: str, text: str, environment: Mapping[str, str] | None = None) -> ServerCommand:
    """The user's command line. The address to listen on is added if it has none.

    ValueError if it is empty, cannot be split into words, or its port is not a valid port number.
    """
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise ValueError(f"engine_command: {text!r} cannot be split into words: {error}") from error
    if not words:
        raise ValueError("engine_command: is empty; give a server's command line, with {port} in place of its port")
    if "{port}" not in text and _named_port(words) is None:
        words += _LISTEN[2:] if "{host}" in text or any(w.startswith("--host") for w in words) else _LISTEN
    return ServerCommand(name=name, words=words, environment=environment or {})


def built_command(name: str, words: Sequence[str], environment: Mapping[str, str] | None = None) -> ServerCommand:
    """A command line that we build, for a server that takes --host and --port."""
    return ServerCommand(name=name, words=(*words, *_LISTEN), environment=environment or {})


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def is_free(port: int) -> bool:
    """Whether the port is free."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def _named_port(words: Sequence[str]) -> int | None:
    """The port in `--port 8000` or `--port=8000`; None if there is none."""
    after = [value for word, value in zip(words, words[1:], strict=False) if word == "--port"]
    values = after + [word.partition("=")[2] for word in words if word.startswith("--port=")]
    if not values:
        return None
    if not values[-1].isdigit() or not 0 < int(values[-1]) < 1 << 16:
        raise ValueError(f"engine_command: --port {values[-1]} is not allowed; allowed: 1 to 65535, or {{port}}")
    return int(values[-1])
