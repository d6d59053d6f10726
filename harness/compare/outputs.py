"""Whether two arms said the same, request by request."""

from __future__ import annotations

import pandas as pd

from .figures import Side
from .keys import same_prompts

IMPORTED_KEY = "imported"


def same_outputs(a: Side, b: Side) -> tuple[int, int] | None:
    """(requests with identical tokens, requests paired): by repeat, prompt and n-th run of the prompt. None where the
    prompts differ, nothing pairs, or the tokens are not known."""
    if not same_prompts(a.run.manifest, b.run.manifest) or any(IMPORTED_KEY in s.run.manifest for s in (a, b)):
        return None
    keys = ["repeat", "prompt_id", "occurrence"]
    both = _hashes(a).merge(_hashes(b), on=keys, suffixes=("_a", "_b"))
    if both.empty:
        return None
    return int((both["output_sha256_a"] == both["output_sha256_b"]).sum()), len(both)


def _hashes(side: Side) -> pd.DataFrame:
    rows = side.run.rows("requests", side.arm).sort_values("request_id")
    rows = rows.assign(occurrence=rows.groupby(["repeat", "prompt_id"]).cumcount())
    return rows[["repeat", "prompt_id", "occurrence", "output_sha256"]]
