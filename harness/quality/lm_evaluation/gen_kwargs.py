"""Generation options of an evaluation, checked before anything is loaded: a wrong one would fail every arm."""

from __future__ import annotations

ALLOWED = ("until", "max_gen_toks", "do_sample", "temperature", "top_k", "top_p")  # lm-eval's aliases resolved
_NUMBERS = ("max_gen_toks", "temperature", "top_k", "top_p")


def check_gen_kwargs(text: str | None) -> None:
    """`max_gen_toks=128,temperature=0.7`, read as lm-eval reads it. ValueError for what the engine does not know."""
    from lm_eval.models.utils import normalize_gen_kwargs
    from lm_eval.utils import simple_parse_args_string

    try:
        given = dict(normalize_gen_kwargs(simple_parse_args_string(text)))
        for name in _NUMBERS:
            float(given.get(name) or 0)
    except (TypeError, ValueError) as error:
        raise ValueError(f"gen_kwargs: {text!r} is not allowed: {error}; give it as max_gen_toks=128") from error
    unknown = sorted(given.keys() - set(ALLOWED))
    if unknown:
        raise ValueError(f"gen_kwargs: {', '.join(unknown)} is not known; allowed: {', '.join(ALLOWED)}")
