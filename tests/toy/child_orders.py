"""What a child process of another engine is asked, as our side asks it."""

from __future__ import annotations

from typing import Any

Order = dict[str, Any]


def request(number: int, *prompt: int, max_tokens: int = 7, arrival_s: float = 0.0, **more: object) -> Order:
    """Greedy, whatever ends a text ignored. `more`: in place of these."""
    drawn = {
        "temperature": 0,
        "top_k": 0,
        "top_p": 1,
        "stop_token_ids": [],
        "ignore_eos": True,
        "stop": [],
        "edits": {},
    }
    given = {"id": number, "prompt_ids": list(prompt), "max_tokens": max_tokens, "arrival_s": arrival_s}
    return {**given, **drawn, "seed": 0, **more}


def serve(*requests: Order, most: int = 4) -> Order:
    return {"do": "serve", "max_concurrency": most, "requests": list(requests)}
