"""Forced acceptance in SGLang 0.5.16, as environment variables of its process."""

from __future__ import annotations

from specbench.harness.store.arm_record import FORCED

from .methods import EAGLE, EAGLE3, NEXTN, NGRAM, STANDALONE, Method

_CAN_FORCE = (EAGLE, EAGLE3, NEXTN, STANDALONE, NGRAM)
_ONE_DRAW = "SGLang forces one length, sampled in each step for the whole batch, and emits one fixed token"


def forced_acceptance(text: str, method: Method) -> tuple[dict[str, str], str, list[str]]:
    """The environment, the recorded value, and a note for the reader."""
    length = None if text == "real" else _length(text)
    if (
        length is None or method.algorithm is None
    ):  # negative is off; set explicitly, since the user's environment may differ
        return {"SGLANG_SIMULATE_ACC_LEN": "-1"}, "real", []
    if method.algorithm not in _CAN_FORCE:
        raise ValueError(
            f"acceptance: {text!r} is not allowed with {method.algorithm}; SGLang forces it for {', '.join(_CAN_FORCE)}"
        )
    if not method.depth:
        raise ValueError(f"acceptance: {text!r} is not allowed; {method.algorithm} also needs k=K")
    if not 1 <= length <= method.depth + 1:
        raise ValueError(f"acceptance: length {length:g} is not allowed; allowed: 1 to {method.depth + 1}")
    environment = {
        "SGLANG_SIMULATE_ACC_LEN": f"{length:g}",
        "SGLANG_SIMULATE_ACC_METHOD": "match-expected",
        "SGLANG_SIMULATE_ACC_TOKEN_MODE": "fixed",
    }
    return environment, f"synthetic:{length:g}", [f"{FORCED} ({length:g}); {_ONE_DRAW}"]


def _length(text: str) -> float:
    """Mean length of a round, including the bonus token, for any form of forced acceptance."""
    kind, _, how = text.partition(":")
    form, _, values = how.rpartition("=")
    try:
        numbers = [float(value) for value in values.split("/")]
        if kind != "synthetic" or form not in ("", "length", "rates", "histogram"):
            raise ValueError
    except ValueError:
        raise ValueError(
            f"acceptance: {text!r} is not known; allowed: real, synthetic:LENGTH, synthetic:rates=r1/r2/.., "
            "synthetic:histogram=n0/n1/.., of which SGLang takes the mean length"
        ) from None
    if form == "rates":
        return 1 + sum(numbers)
    if form == "histogram":
        return 1 + sum(accepted * count for accepted, count in enumerate(numbers)) / max(sum(numbers), 1e-9)
    return numbers[0]
